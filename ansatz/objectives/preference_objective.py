"""The objective of pairs: preference losses, and the likelihood of the chosen responses, as an `Objective`.

Axes: P pairs, N rollouts, T flat tokens. A pair is a group of two rollouts with the rewards 1 (chosen) and 0. For
losses on labelled responses, it is one with the reward 1 (desirable) or -1, and a mismatched one with the reward 0. The
gradient coefficient is the same for all tokens of a response, because the losses see sums over tokens.

A microbatch has whole pairs (`whole_groups`), so the losses of microbatches add up. The likelihood of the chosen
responses is the likelihood term that every objective has (`likelihood_weights`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ansatz.errors import ConfigError
from ansatz.objectives import diagnostics, segments
from ansatz.objectives.build import build_objective
from ansatz.objectives.components import Component, build_component
from ansatz.objectives.objective import LossParts, Objective, TokenBatch
from ansatz.objectives.preference import DIVERGENCES, PREFERENCES

LIKELIHOOD = "likelihood"
_LIKELIHOOD_WEIGHTS: dict[str, dict[str, Any]] = {
    "token_mean": {"name": "token_mean"},
    "sequence_sum": {"name": "sequence_sum", "rollouts": "nonempty"},
    "sequence_mean": {"name": "sequence_mean", "rollouts": "nonempty"},
}
"""By the kind of the likelihood. "nonempty" counts the chosen responses only: the others have no such token."""


class _Pairs(Protocol):
    @property
    def reward_N(self) -> Tensor: ...
    @property
    def group_N(self) -> Tensor: ...


@runtime_checkable
class PairBatch(Protocol):
    """A batch that knows the pair of each rollout, and which of the two is the chosen one."""

    @property
    def packed(self) -> _Pairs: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceObjective(Objective):
    """losses: (weight, component) of each preference loss. divergence: of the scores."""

    losses: tuple[tuple[float, Component], ...]
    divergence: Component

    @property
    def needs_ref(self) -> bool:
        """Tell whether a loss compares the policy with a reference."""
        return any(name.endswith(("_gain_P", "_score_P")) for _, component in self.losses for name in component.inputs)

    @property
    def unpaired(self) -> bool:
        """Tell whether the losses learn from single labelled responses."""
        return any(_is_unpaired(component) for _, component in self.losses)

    @property
    def whole_minibatch(self) -> bool:
        return any(component.whole_minibatch for _, component in self.losses)

    @property
    def whole_groups(self) -> bool:
        return True

    def loss(
        self,
        batch: TokenBatch,
        policy_logp_T: Tensor,
        entropy_T: Tensor | None = None,
        *,
        full_kl_T: Tensor | None = None,
        entropy_coef: float | None = None,
    ) -> LossParts:
        """Compute the loss of a microbatch of whole pairs.

        sums: also pairs, and the numbers of docs/metrics.md over pairs. For labelled responses, the numbers of each
        label (chosen, rejected) are over the count of its responses, which is named after the label.
        """
        assert isinstance(batch, PairBatch), "a preference objective needs to know the pair of each rollout"
        inputs = self._inputs_of_pairs(batch, batch.packed, policy_logp_T)
        loss_P = torch.stack([weight * component(inputs) for weight, component in self.losses]).sum(0)
        loss = (loss_P * inputs["weight_P"]).sum()
        mask_T = batch.mask_T
        zero_T = torch.zeros_like(policy_logp_T[mask_T].detach())  # a ratio of 1: no loss of pairs has one
        never_T = zero_T.bool()
        measured = (_labelled_sums if self.unpaired else _pair_sums)(inputs)
        sums = {**diagnostics.ratio_sums(zero_T, never_T, never_T), "surrogate": loss.detach(), **measured}
        if batch.likelihood_weight_T is not None:
            likelihood = -(policy_logp_T[mask_T] * batch.likelihood_weight_T[mask_T]).sum()
            loss = loss + self.likelihood_coef * likelihood
            sums["likelihood"] = likelihood.detach()
        return LossParts(
            loss=loss,
            sums=sums,
            maxima=diagnostics.ratio_maxima(zero_T),
            mismatch_weight_T=batch.sampled_mask_T.to(policy_logp_T.dtype),
            clipped_T=torch.zeros_like(mask_T),
        )

    def _inputs_of_pairs(self, batch: TokenBatch, pairs: _Pairs, policy_logp_T: Tensor) -> dict[str, Tensor]:
        """Return all inputs of losses, and weight_P: the weight of each pair in the minibatch."""
        mask_T, segment_T = batch.mask_T, batch.segment_T[batch.mask_T]
        num_rollouts = len(pairs.reward_N)
        length_N = segments.count(segment_T, num_rollouts)
        of_rollout = {
            "logp": segments.total(policy_logp_T[mask_T], segment_T, num_rollouts),
            "length": length_N,
            "weight": segments.total(batch.weight_T[mask_T], segment_T, num_rollouts) / length_N,
        }
        if batch.ref_logp_T is not None:
            ref_logp_N = segments.total(batch.ref_logp_T[mask_T], segment_T, num_rollouts)
            gain_N = of_rollout["logp"] - ref_logp_N
            of_rollout |= {"gain": gain_N, "score": self.divergence({"gain_P": gain_N})}
        one, other = ("labelled", "mismatched") if self.unpaired else ("chosen", "rejected")
        one_P, other_P = _sides(pairs)
        inputs = {"desirable_P": pairs.reward_N[one_P] > 0} if self.unpaired else {}
        for side, index_P in ((one, one_P), (other, other_P)):
            inputs |= {f"{side}_{name}_P": value_N[index_P] for name, value_N in of_rollout.items()}
        inputs["weight_P"] = inputs[f"{one}_weight_P"] + inputs[f"{other}_weight_P"]
        return inputs


def _is_unpaired(component: Component) -> bool:
    return "desirable_P" in component.inputs


def _sides(pairs: _Pairs) -> tuple[Tensor, Tensor]:
    """Return (rollouts that are chosen or labelled, rollouts that are not), in the order of the pairs."""
    by_reward_N = pairs.reward_N.abs().argsort(descending=True, stable=True)
    order_N = by_reward_N[pairs.group_N[by_reward_N].argsort(stable=True)]
    return order_N[0::2], order_N[1::2]


def _pair_sums(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Sum the measurements of pairs over the pairs that count.

    The margin is taken of the gains, or without a reference of the log-probs.
    """
    counted_P = (inputs["weight_P"] > 0).to(inputs["chosen_logp_P"].dtype)
    kind = "gain" if "chosen_gain_P" in inputs else "logp"
    margin_P = inputs[f"chosen_{kind}_P"] - inputs[f"rejected_{kind}_P"]
    values = {
        "preference/margin": margin_P,
        "preference/accuracy": margin_P > 0,
        "preference/chosen_logp": inputs["chosen_logp_P"],
        "preference/rejected_logp": inputs["rejected_logp_P"],
        "preference/chosen_length": inputs["chosen_length_P"],
        "preference/rejected_length": inputs["rejected_length_P"],
    }
    return {"pairs": counted_P.sum(), **{name: (value.detach() * counted_P).sum() for name, value in values.items()}}


def _labelled_sums(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Sum the measurements of labelled responses: desirable ones (chosen) and the others (rejected).

    The margin is the difference of their mean gains, if there are both.
    """
    desirable_P = inputs["desirable_P"]
    sums = {"pairs": torch.ones_like(desirable_P).sum()}
    for side, of_P in (("chosen", desirable_P), ("rejected", ~desirable_P)):
        values = {f"preference/{side}_{name}": inputs[f"labelled_{name}_P"] for name in ("logp", "length")}
        sums |= {side: of_P.sum(), **{name: value_P.detach()[of_P].sum() for name, value_P in values.items()}}
    if "labelled_gain_P" in inputs:
        sums["preference/kl"] = inputs["mismatched_gain_P"].detach().sum()
        good_P, bad_P = (inputs["labelled_gain_P"].detach()[of_P] for of_P in (desirable_P, ~desirable_P))
        if len(good_P) and len(bad_P):
            sums["preference/margin"] = sums["pairs"] * (good_P.mean() - bad_P.mean())
    return sums


def build_preference_objective(
    losses: Mapping[str, Mapping[str, Any] | None], *, divergence: Mapping[str, Any] | None = None
) -> PreferenceObjective:
    """Build the objective of a recipe's `preference.losses`: settings and `weight` (default 1) by the name of the loss.

    divergence: {name: ..., settings}; None: the reverse KL. Raise ConfigError for an unknown loss or setting, for a
    loss that is named twice, and without a preference loss.
    """
    terms, likelihood = list[tuple[float, Component]](), dict[str, Any]()
    named = dict[Any, str]()
    for name, given in losses.items():
        settings = dict(given or {})
        weight = _weight(name, settings.pop("weight", 1.0))
        component = build_component(PREFERENCES, name, settings)
        if (first := named.setdefault(component.function, name)) != name:
            raise ConfigError(f"preference.losses: {first} and {name} are names of the same loss. Keep one of them.")
        if component.name == LIKELIHOOD:
            kind = _LIKELIHOOD_WEIGHTS.get(component.settings["kind"])
            likelihood = {"likelihood_weights": kind, "likelihood_coef": weight}
        else:
            terms.append((weight, component))
    if not terms:
        raise ConfigError(
            "preference.losses has no preference loss, so rejected responses would have no effect. Add one, such as "
            "dpo: {beta: 0.1}, or fine-tune on the chosen responses with the stage sft."
        )
    names = {_is_unpaired(component): component.name for _, component in terms}
    if len(names) > 1:
        raise ConfigError(
            f"preference.losses: {names[True]} learns from labelled responses, and {names[False]} from pairs. Leave "
            "one of them out, or list the stage preference twice, with different losses."
        )
    settings = {"name": "reverse_kl", **(divergence or {})}
    base = build_objective({"preset": "reinforce", "weights": "sequence_sum", **likelihood})
    return PreferenceObjective(
        **{field.name: getattr(base, field.name) for field in dataclasses.fields(base)},
        losses=tuple(terms),
        divergence=build_component(DIVERGENCES, settings.pop("name"), settings),
    )


def _weight(name: str, weight: Any) -> float:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight > 0:
        raise ConfigError(f"preference.losses.{name}.weight = {weight!r}: expected a number above 0.")
    return float(weight)
