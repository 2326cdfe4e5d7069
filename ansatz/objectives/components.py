"""A component of an objective: a pure function, its settings and its inputs.

The positional parameters of a component are its inputs (`reward_N`, `segment_T`, ...); the keyword-only ones are its
settings in a recipe. Nothing is declared twice: `Objective` passes exactly the inputs in the signature.

Axes everywhere in this package: N rollouts, T flat tokens, K reward components. Components only see the tokens that the
policy sampled: everything outside the mask (prompts, tool output) is removed first.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ansatz.errors import ConfigError
from ansatz.registry import Registry, settings_of


class Clipped(NamedTuple):
    """What a component that clips returns: a value per token, and the tokens that it clipped.

    A token counts as clipped where the clipped branch was taken, so that its gradient through the ratio is cut. low_T:
    the ratio was below its interval; high_T: above.
    """

    value_T: Tensor
    low_T: Tensor
    high_T: Tensor


Function = Callable[..., Tensor]
ClippingFunction = Callable[..., Tensor | Clipped]
F = TypeVar("F", bound=ClippingFunction)

INPUTS = {
    "reward_N": "a reward per rollout",
    "group_N": "the prompt of each rollout",
    "length_N": "the number of response tokens",
    "segment_T": "the rollout of each token",
    "token_reward_T": "a reward per token",
    "value_T": "a critic (`ppo` has one)",
    "old_value_T": "the critic's values before this update",
    "return_T": "the critic's targets",
    "baseline_N": "the reward of a greedy rollout of the same prompt",
    "component_NK": "the reward components before they are added up",
    "step_reward_T": "a reward at the last token of each reasoning step",
    "step_end_T": "the last token of each reasoning step",
    "policy_logp_T": "log-probs of the policy",
    "old_logp_T": "log-probs before this update",
    "anchor_logp_T": "the log-probs that the ratio compares the policy with",
    "behavior_logp_T": "the sampler's log-probs",
    "ref_logp_T": "log-probs of a reference model",
    "log_ratio_T": "the log of the importance ratio",
    "advantage_N": "one advantage per rollout (a per-token advantage component has none)",
    "mismatch_weight_T": "the correction for sampler mismatch",
    "advantage_T": "advantages",
    "entropy_T": "the policy's entropy at each token",
    "full_kl_T": "the exact KL at each token, from whole distributions",
    "truncated_N": "which rollouts hit the length limit",
    "num_rollouts": "the number of rollouts of the step",
    "kl_coef": "the coefficient of the KL",
    "rollout_kl": "the KL to the reference, summed over a response",
    "token_kl": "the KL to the reference, per token",
    "chosen_gain_P": "log(policy / reference) of each chosen response",
    "rejected_gain_P": "log(policy / reference) of each rejected response",
}


def formula(text: str, gradient: str = "") -> Callable[[F], F]:
    """Decorator: the component as a formula in words; `{setting}` is replaced by the value of that setting.

    gradient: the factor of grad log policy(token) in a surrogate (in the direction of ascent) or in a KL.
    """

    def add(function: F) -> F:
        function.__dict__.update(formula=text, gradient=gradient)
        return function

    return add


def whole_minibatch(function: F) -> F:
    """Decorator: the component compares tokens of the whole minibatch, so microbatches would not add up."""
    function.__dict__["whole_minibatch"] = True
    return function


def before_rejection(function: F) -> F:
    """Decorator: the component sees every token that the policy sampled, including those that masks reject."""
    function.__dict__["before_rejection"] = True
    return function


@dataclass(frozen=True, slots=True)
class Component:
    """A function of `kind` under its primary name, with a value for every setting."""

    kind: str
    name: str
    settings: Mapping[str, Any]
    function: ClippingFunction

    @property
    def inputs(self) -> tuple[str, ...]:
        parameters = inspect.signature(self.function).parameters.values()
        return tuple(p.name for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY)

    @property
    def per_token(self) -> bool:
        """Whether it gives the tokens of a rollout different numbers."""
        return "segment_T" in self.inputs

    @property
    def whole_minibatch(self) -> bool:
        by_setting = any(self.settings.get(name) for name in ("self_normalize", "centered"))
        return bool(getattr(self.function, "whole_minibatch", False)) or by_setting

    @property
    def before_rejection(self) -> bool:
        return bool(getattr(self.function, "before_rejection", False))

    def formula(self) -> str:
        text: str | None = getattr(self.function, "formula", None)
        if text is not None:
            return text.format(**self.settings)
        return f"{self.name}({', '.join(f'{key} {value}' for key, value in self.settings.items())})"

    def gradient(self) -> str:
        text: str = getattr(self.function, "gradient", "")
        return f"({text.format(**self.settings)})" if text else f"(the gradient of {self.name})"

    def __call__(self, inputs: Mapping[str, Any]) -> Tensor:
        """The function applied to those of `inputs` that it has. A missing input is a ConfigError that describes it."""
        return self.clipping(inputs).value_T

    def clipping(self, inputs: Mapping[str, Any]) -> Clipped:
        """As the call, with the tokens that were clipped: none, unless the function returns a `Clipped`."""
        for key in self.inputs:
            if inputs.get(key) is None:
                raise ConfigError(f"algorithm.{self.kind} = {self.name!r} needs {INPUTS.get(key, key)} ({key}).")
        result = self.function(*(inputs[key] for key in self.inputs), **self.settings)
        if isinstance(result, Clipped):
            return result
        never_T = torch.zeros_like(result, dtype=torch.bool)
        return Clipped(result, never_T, never_T)


def build_component(registry: Registry[Any], name: str, settings: Mapping[str, Any]) -> Component:
    """The named function with its settings checked. Unknown names and settings are ConfigErrors with a suggestion."""
    function, bound = registry.get(name), registry.bind(name, settings)
    checked: Mapping[str, Any] = bound.keywords if isinstance(bound, functools.partial) else {}
    known = settings_of(function)
    for key, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and key not in settings:
            raise ConfigError(f"algorithm.{registry.kind} = {name!r} needs a value for {key!r}.")
    defaults = {key: parameter.default for key, parameter in known.items()}
    return Component(registry.kind, function.__name__.rstrip("_"), {**defaults, **checked}, function)
