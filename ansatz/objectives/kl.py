"""Estimators of KL(policy || reference) from the sampled token. `divergences` has those of whole distributions.

Axes: T response tokens, V vocabulary. With x = policy_logp - ref_logp and tokens sampled from the policy (J. Schulman,
joschu.net/blog/kl-approx.html): k1 = x and k3 = exp(-x) - 1 + x are unbiased, k2 = x^2 / 2 and |x| are not. All except
k1 are >= 0. The four estimators share the settings of `KLSettings`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_type_hints

import torch
from torch import Tensor

from ansatz.objectives.components import ClippingFunction, Function, formula
from ansatz.registry import Registry, settings_of

DIVERGENCES = ("full", "full_reverse", "jensen_shannon", "top_k")
"""Components that see whole distributions. They are in a module of their own, which is imported when one is used."""
KLS: Registry[Function] = Registry(
    "kl", elsewhere={name: f"ansatz.objectives.divergences:{name}" for name in DIVERGENCES}
)
Weight = Literal["none", "on_policy", "ratio", "behavior"]
Divergence = Callable[..., Tensor]

_FACTORS = {"on_policy": "policy / constant(policy)", "ratio": "rho", "behavior": "policy / behavior"}
_NOTES = {
    "clamp_in": ", log(policy / reference) within +-{clamp_in}",
    "weight": {weight: f", times {factor}" for weight, factor in _FACTORS.items()},
    "clamp_out": ", within +-{clamp_out}",
    "straight_through": ", with the gradient of log(policy / reference)^2 / 2",
}


def _gradient(plain: str) -> Callable[..., str]:
    """Return the coefficient of an estimator with its settings; plain: without any."""

    def text(*, weight: str, straight_through: bool, **bounds: float | None) -> str:
        if straight_through:
            return "log(policy / reference)"
        # The derivative of a product: its own value, since each factor's log has the gradient of log policy.
        whole = plain if weight == "none" else f"KL + {_FACTORS[weight]} x ({plain})"
        return f"{whole}, 0 where a bound holds" if any(bound is not None for bound in bounds.values()) else whole

    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class KLSettings:
    """Settings that every sampled estimator accepts.

    clamp_in, clamp_out: bounds on |x| and on the |value|; the gradient is 0 beyond them, also through the weight.
    weight: a factor with gradient. "on_policy" is policy / constant(policy): its value is 1, and it adds the
    score-function part that makes the gradient unbiased on-policy. "ratio" (the objective's rho) and "behavior"
    (policy / behavior) also correct for off-policy tokens.
    straight_through: keep the value, but use the gradient of k2, which on-policy equals the gradient of the KL.
    """

    clamp_in: float | None = None
    clamp_out: float | None = None
    weight: Weight = "none"
    straight_through: bool = False


def _sampled(value: Callable[..., Tensor]) -> Function:
    """Turn `value`, a function of x with settings of its own, into a component that also has KLSettings."""

    @functools.wraps(value)
    def estimator(
        policy_logp_T: Tensor, ref_logp_T: Tensor, log_ratio_T: Tensor, behavior_logp_T: Tensor, **settings: Any
    ) -> Tensor:
        shared = KLSettings(**{name: settings.pop(name) for name in list(settings) if name in shared_types})
        x_T = policy_logp_T - ref_logp_T
        value_T = value(_clamped(x_T, shared.clamp_in), **settings)
        if shared.weight != "none":
            log_weight_T = {
                "on_policy": policy_logp_T - policy_logp_T.detach(),
                "ratio": log_ratio_T,
                "behavior": policy_logp_T - behavior_logp_T,
            }[shared.weight]
            if shared.clamp_in is not None:
                beyond_T = x_T.abs() > shared.clamp_in
                log_weight_T = torch.where(beyond_T, log_weight_T.detach(), log_weight_T)
            value_T = value_T * log_weight_T.exp()
        value_T = _clamped(value_T, shared.clamp_out)
        if shared.straight_through:
            square_T = x_T.square() / 2
            value_T = value_T.detach() + square_T - square_T.detach()
        return value_T

    shared_types = get_type_hints(KLSettings)
    inputs = [p for p in inspect.signature(estimator, follow_wrapped=False).parameters.values() if p.name != "settings"]
    settings = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=shared_types[field.name]
        )
        for field in fields(KLSettings)
    ]
    estimator.__dict__["__signature__"] = inspect.Signature([*inputs, *settings_of(value).values(), *settings])
    return estimator


@KLS.register("k1", "kl")
@formula("log(policy / reference)", _gradient("1"), notes={"at_least": ", at least {at_least}", **_NOTES})
@_sampled
def k1(x_T: Tensor, *, at_least: float | None = None) -> Tensor:
    """x: unbiased, any sign. Its plain gradient in the loss is 0 on average, so use it in the reward or with a weight.

    at_least: a lower bound; PPO's reward uses 0.
    """
    return x_T if at_least is None else x_T.clamp(min=at_least)


@KLS.register("k2", "mse")
@formula("log(policy / reference)^2 / 2", _gradient("log(policy / reference)"), notes=_NOTES)
@_sampled
def k2(x_T: Tensor) -> Tensor:
    """x^2 / 2: a biased value, whose gradient on-policy equals the gradient of the KL."""
    return x_T.square() / 2


@KLS.register("k3", "low_var_kl")
@formula("reference / policy - 1 - log(reference / policy)", _gradient("1 - reference / policy"), notes=_NOTES)
@_sampled
def k3(x_T: Tensor) -> Tensor:
    """exp(-x) - 1 + x: unbiased, never negative (GRPO, arXiv:2402.03300 eq. 4)."""
    return torch.expm1(-x_T) + x_T


@KLS.register("abs")
@formula("|log(policy / reference)|", _gradient("sign(log(policy / reference))"), notes=_NOTES)
@_sampled
def abs_(x_T: Tensor) -> Tensor:
    """|x|: biased; its pull is the same however far the policy has moved."""
    return x_T.abs()


def bound_divergence(function: ClippingFunction, settings: Mapping[str, Any]) -> Divergence:
    """Return the function of whole distributions behind a component; `exact_kl` for a user's own component."""
    own: Divergence | None = getattr(function, "divergence", None)
    return exact_kl if own is None else functools.partial(own, **settings)


def exact_kl(policy_logp_TV: Tensor, ref_logp_TV: Tensor) -> Tensor:
    """Compute sum_v p (log p - log q) in nats for rows of log-probs [T, V], shape T."""
    return (policy_logp_TV.exp() * (policy_logp_TV - ref_logp_TV)).sum(-1)


def _clamped(value_T: Tensor, bound: float | None) -> Tensor:
    return value_T if bound is None else value_T.clamp(-bound, bound)
