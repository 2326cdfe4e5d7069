"""The loss of a step, computed again in float64 from the arrays of a bundle by our own objectives.

It is also computed with one thing changed at a time, to name the formula that a project uses in place of the promised
one.

Axes: N rollouts, T flat tokens, M microbatches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ansatz.audit.bundle import Array, Bundle
from ansatz.audit.promise import Promise
from ansatz.errors import ConfigError
from ansatz.objectives.build import build_objective
from ansatz.objectives.components import Component
from ansatz.objectives.objective import Objective
from ansatz.objectives.policy_loss import TokenTensors

TOLERANCE = 3e-4
"""Of the largest gradient at a token."""
WEIGHTS = ("token_mean", "sequence_mean", "sequence_sum", "fixed_length", "token_sum")
_REJECTING = ("ansatz", "verl")
"""Projects that reject tokens after the ratio of a rollout to its sampler is taken over all of them. Elsewhere, the
ratio is taken over the mask of the loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """loss_M: of each microbatch. gradient_T: with respect to policy_logp_T, of their sum."""

    loss_M: Array
    gradient_T: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """A promise with its objective. change: the difference from the promise, in words; empty for the promise itself.
    arrays: they replace the bundle's arrays of the same name. weight_mask: the array whose tokens are counted in
    denominators."""

    objective: Objective
    promise: Promise
    change: str = ""
    arrays: Mapping[str, Array] = dataclasses.field(default_factory=dict[str, Array])
    weight_mask: str = "mask_T"

    def changed(self, change: str, *, per_microbatch: bool | None = None, **values: Any) -> Formula:
        """Return the formula with other fields of the objective."""
        promise = self.promise
        if per_microbatch is not None:
            promise = dataclasses.replace(promise, per_microbatch=per_microbatch, scale=1.0)
        return dataclasses.replace(
            self, objective=dataclasses.replace(self.objective, **values), promise=promise, change=change
        )


def promised(bundle: Bundle, promise: Promise) -> Formula:
    """Return the promised formula. Raise ConfigError if it cannot be built, or not be computed from the bundle."""
    limit = bundle.options.get("max_completion_length") or bundle.options.get("max_response_tokens")
    spec = {key: value for key, value in promise.spec.items() if key not in ("masks", "preset")}
    objective = build_objective({**spec, "masks": "none"}, max_response_tokens=limit)
    if objective.token_divergence is not None and objective.kl_in == "loss":
        raise ConfigError(f"algorithm.kl = {objective.kl.name!r} compares whole distributions, which no bundle has.")
    if lacking := [name for name in _needed(objective, bundle.project) if name not in bundle]:
        raise ConfigError(f"the loss needs {', '.join(lacking)}, which the bundle does not have.")
    if not bundle.trained_T.any():
        raise ConfigError("microbatch_N says that no rollout is in this update.")
    return Formula(objective=objective, promise=promise)


def _needed(objective: Objective, project: str) -> list[str]:
    """Return the arrays that the loss depends on, besides those that every loss has. Before its first update, a policy
    of Ansatz is its own old policy."""
    sides = [objective.anchor, *(part.settings.get("sampler") for part in objective.correction)]
    sides += [objective.kl_to, objective.kl.settings.get("weight")] if objective.kl_coef != 0 else []
    needed = {
        "entropy_T": objective.needs_entropy,
        "likelihood_weight_T": objective.likelihood_coef != 0,
        "ref_logp_T": objective.needs_ref and objective.kl_in == "loss",
        "behavior_logp_T": objective.corrects_mismatch or "behavior" in sides,
        "old_logp_T": (objective.corrects_mismatch or "old" in sides) and project != "ansatz",
    }
    return [name for name, is_needed in needed.items() if is_needed]


def compute(bundle: Bundle, formula: Formula) -> Loss:
    """Compute the loss of each microbatch and its gradient at each token."""
    arrays = {name: bundle.get(name) for name in bundle.arrays} | dict(formula.arrays)
    if bundle.project not in _REJECTING:
        arrays.pop("sampled_mask_T", None)
    micro_N = arrays.get("microbatch_N")
    micro_N = np.zeros(bundle.num_rollouts, np.int64) if micro_N is None else micro_N
    micro_T = micro_N[arrays["segment_T"]]
    used_T = np.flatnonzero(micro_T >= 0)
    policy_T = torch.tensor(arrays["policy_logp_T"], dtype=torch.float64, requires_grad=True)
    whole = _weights(arrays, formula, used_T) if not formula.promise.per_microbatch else None
    numbers, losses = range(int(micro_N.max()) + 1), list[Tensor]()
    for number in numbers:
        inside_T = np.flatnonzero(micro_T == number)
        if whole is None:
            weight_T = _weights(arrays, formula, inside_T) / len(numbers)
        else:
            weight_T = whole[torch.tensor(np.isin(used_T, inside_T))]
        batch, entropy_T = _batch(arrays, formula, inside_T, policy_T, weight_T * formula.promise.scale)
        losses.append(formula.objective.loss(batch, policy_T[inside_T], entropy_T).loss)
    (gradient_T,) = torch.autograd.grad(torch.stack(losses).sum(), policy_T, allow_unused=True)
    found_T = torch.zeros_like(policy_T) if gradient_T is None else gradient_T
    return Loss(loss_M=torch.stack(losses).detach().numpy(), gradient_T=found_T.numpy())


def _weights(arrays: Mapping[str, Any], formula: Formula, inside_T: Array) -> Tensor:
    rollouts, segment_T = np.unique(arrays["segment_T"][inside_T], return_inverse=True)
    mask_T = torch.tensor(arrays[formula.weight_mask][inside_T] != 0)
    group_N = torch.tensor(arrays["group_N"][rollouts])
    how: dict[str, Any] = {"num_rollouts": len(rollouts), "group_N": group_N, "dtype": torch.float64}
    weight_T = formula.objective.token_weights(torch.tensor(segment_T), mask_T, **how)
    return weight_T * torch.tensor(arrays["mask_T"][inside_T] != 0)


def _batch(
    arrays: Mapping[str, Any], formula: Formula, inside_T: Array, policy_T: Tensor, weight_T: Tensor
) -> tuple[TokenTensors, Tensor | None]:
    def tensor(name: str) -> Tensor | None:
        value = arrays.get(name)
        return None if value is None else torch.tensor(np.nan_to_num(value[inside_T]), dtype=torch.float64)

    mask_T = torch.tensor(arrays["mask_T"][inside_T] != 0)
    old_T, behavior_T, policy_now_T = tensor("old_logp_T"), tensor("behavior_logp_T"), policy_T.detach()[inside_T]
    if old_T is None:
        old_T, stale_T = policy_now_T, tensor("stale_T")
        if stale_T is not None and behavior_T is not None and not formula.objective.corrects_mismatch:
            old_T = torch.where(stale_T != 0, behavior_T, policy_now_T)  # as `TrainBatch.with_old_logps`
    sampled_T = arrays.get("sampled_mask_T")
    segment_T = torch.tensor(np.unique(arrays["segment_T"][inside_T], return_inverse=True)[1])
    penalty, advantage_T = formula.objective.penalty_weights, tensor("advantage_T")
    assert advantage_T is not None  # `claims` asks for a loss only if it is there
    batch = TokenTensors(
        segment_T=segment_T,
        mask_T=mask_T,
        sampled_mask_T=mask_T if sampled_T is None else mask_T | torch.tensor(sampled_T[inside_T] != 0),
        old_logp_T=old_T,
        behavior_logp_T=old_T if behavior_T is None else behavior_T,
        ref_logp_T=tensor("ref_logp_T"),
        advantage_T=advantage_T * mask_T,
        weight_T=weight_T,
        penalty_weight_T=weight_T if penalty is None else _penalty(arrays, formula, segment_T, mask_T),
        likelihood_weight_T=tensor("likelihood_weight_T"),
    )
    return batch, tensor("entropy_T")


def _penalty(arrays: Mapping[str, Any], formula: Formula, segment_T: Tensor, mask_T: Tensor) -> Tensor:
    """Return weights of KL and entropy that differ from the surrogate's: within each microbatch, as in TRL."""
    count, micro_N = int(segment_T.max()) + 1, arrays.get("microbatch_N")
    penalties = dataclasses.replace(formula.objective, weights=formula.objective.penalty_weights)
    weight_T = penalties.token_weights(segment_T, mask_T, num_rollouts=count, dtype=torch.float64)
    return weight_T / (1 if micro_N is None else int(micro_N.max()) + 1)


def alternatives(bundle: Bundle, formula: Formula) -> Iterator[Formula]:
    """Yield the promise with one thing changed, the most plausible change first."""
    objective = formula.objective
    yield from _other_weights(bundle, formula)
    for anchor in ("policy", "old", "behavior"):
        if anchor != objective.anchor and (anchor == "policy" or f"{anchor}_logp_T" in bundle):
            yield formula.changed(f"the anchor of the ratio is {anchor} instead of {objective.anchor}", anchor=anchor)
    for name in ("token", "sequence", "product"):
        if name != objective.ratio.name:
            yield formula.changed(f"ratio {name} instead of {objective.ratio.name}", ratio=_named("ratio", name))
    yield from _other_surrogates(formula)
    advantage_T = bundle.get("advantage_T")
    if advantage_T is not None and (advantage_T < 0).any():
        for words, other_T in (("negative", np.maximum(advantage_T, 0)), ("positive", np.minimum(advantage_T, 0))):
            yield dataclasses.replace(formula, change=f"{words} advantages set to 0", arrays={"advantage_T": other_T})
    yield from _other_kls(formula)
    yield from _other_corrections(bundle, formula)


def _other_weights(bundle: Bundle, formula: Formula) -> Iterator[Formula]:
    limit = bundle.options.get("max_completion_length") or 1
    here = formula.objective.weights.name, formula.promise.per_microbatch
    for name in WEIGHTS:
        for alone in (False, True):
            if (name, alone) == here:
                continue
            where = "within each microbatch" if alone else "over the whole step"
            promise = f"{here[0]} {'within each microbatch' if here[1] else 'over the whole step'}"
            settings = {"max_tokens": int(limit)} if name == "fixed_length" else {}
            words = f"{name} {where} instead of {promise}"
            yield formula.changed(words, per_microbatch=alone, weights=_named("weights", name, settings))
    if "observation_T" in bundle and bool(bundle.arrays["observation_T"].any()):
        counted = {"counted_T": (bundle.arrays["mask_T"] != 0) | bundle.arrays["observation_T"]}
        words = "denominators that also count observations"
        yield dataclasses.replace(formula, change=words, arrays=counted, weight_mask="counted_T")


def _other_surrogates(formula: Formula) -> Iterator[Formula]:
    now = formula.objective.surrogate
    low, high = now.settings.get("low"), now.settings.get("high")
    if low is not None and high is not None:
        if low != high:
            for new in ({"low": low, "high": low}, {"low": high, "high": high}, {"low": high, "high": low}):
                words = f"clip (low {new['low']}, high {new['high']}) instead of (low {low}, high {high})"
                yield formula.changed(words, surrogate=_named(now.kind, now.name, {**now.settings, **new}))
        if (bound := now.settings.get("delta")) is not None:
            both = {"low": low, "high": high}
            yield formula.changed(
                f"no upper bound of the ratio (delta {bound})", surrogate=_named(now.kind, "clip", both)
            )
        wrong = Component(now.kind, "clip_wrong", {"low": low, "high": high}, _clip_wrong)
        yield formula.changed("the clip is on the wrong side (max in place of min)", surrogate=wrong)
    for name in ("plain", "log_prob"):
        if name != now.name:
            yield formula.changed(f"surrogate {name} instead of {now.name}", surrogate=_named(now.kind, name))


def _clip_wrong(log_ratio_T: Tensor, advantage_T: Tensor, *, low: float, high: float) -> Tensor:
    ratio_T = log_ratio_T.exp()
    return -torch.maximum(ratio_T * advantage_T, ratio_T.clamp(1 - low, 1 + high) * advantage_T)


def _other_kls(formula: Formula) -> Iterator[Formula]:
    now, coef = formula.objective.kl, formula.objective.kl_coef
    if coef == 0:
        return
    yield formula.changed("no KL in the loss", kl_coef=0.0)
    for name in ("k1", "k2", "k3", "abs"):
        if name != now.name:
            weight = {key: value for key, value in now.settings.items() if key == "weight"}
            yield formula.changed(f"KL {name} instead of {now.name}", kl=_named("kl", name, weight))
    for weight in ("none", "on_policy", "ratio"):
        if weight != now.settings.get("weight"):
            words = f"KL {now.name} with weight {weight} instead of {now.settings.get('weight')}"
            yield formula.changed(words, kl=_named("kl", now.name, {**now.settings, "weight": weight}))
    function = _k3_reversed_weighted if now.settings.get("weight") == "ratio" else _k3_reversed
    reverse = Component("kl", "k3_reversed", {}, function)
    yield formula.changed("KL k3 is reversed: policy and reference change places", kl=reverse)
    yield formula.changed("the KL with the wrong sign", kl_coef=-coef)
    for factor in (0.5, 2.0, 10.0, 0.1):
        yield formula.changed(f"{factor:g} times the coefficient of the KL", kl_coef=coef * factor)


def _k3_reversed(policy_logp_T: Tensor, ref_logp_T: Tensor) -> Tensor:
    x_T = ref_logp_T - policy_logp_T
    return torch.expm1(-x_T) + x_T


def _k3_reversed_weighted(policy_logp_T: Tensor, ref_logp_T: Tensor, log_ratio_T: Tensor) -> Tensor:
    return _k3_reversed(policy_logp_T, ref_logp_T) * log_ratio_T.exp()


def _other_corrections(bundle: Bundle, formula: Formula) -> Iterator[Formula]:
    if formula.objective.correction:
        yield formula.changed("the correction for the sampler is missing", correction=())
    elif "behavior_logp_T" in bundle:
        for level in ("token", "sequence"):
            words = f"a correction for the sampler (truncate, {level}) that was not promised"
            yield formula.changed(words, correction=(_named("correction", "truncate", {"level": level}),))


def _named(kind: str, name: str, settings: Mapping[str, Any] | None = None) -> Component:
    objective = build_objective({kind: {"name": name, **(settings or {})}})
    value: Any = getattr(objective, kind)
    return value[0] if isinstance(value, tuple) else value


def ratio_to(found_T: Array, promised_T: Array) -> tuple[float, float]:
    """Return (c, deviation). c x promised is the best fit of found. The deviation is the largest error of this fit as a
    share of the largest number in found."""
    square = float(promised_T @ promised_T)
    factor = float(found_T @ promised_T) / square if square > 0 else 0.0
    scale = max(float(np.abs(found_T).max(initial=0)), 1e-30)
    return factor, float(np.abs(found_T - factor * promised_T).max(initial=0)) / scale


def fits(found_T: Array, loss: Loss) -> bool:
    scale = max(float(np.abs(found_T).max(initial=0)), float(np.abs(loss.gradient_T).max(initial=0)), 1e-30)
    return float(np.abs(found_T - loss.gradient_T).max(initial=0)) / scale <= TOLERANCE


def layout_change(bundle: Bundle, formula: Formula, *, tries: int = 8) -> float:
    """Return by how much, in per cent of its norm, the gradient at the tokens changes if the same rollouts lie in other
    microbatches of the same size: the largest of several shuffles. 0: the layout does not matter."""
    micro_N = bundle.arrays.get("microbatch_N")
    if micro_N is None or not formula.promise.per_microbatch:
        return 0.0
    before_T, draws = compute(bundle, formula).gradient_T, np.random.default_rng(0)
    norm, worst = float(np.linalg.norm(before_T)), 0.0
    for _ in range(tries if norm > 0 else 0):
        used_N, other_N = micro_N >= 0, micro_N.copy()
        other_N[used_N] = draws.permutation(micro_N[used_N])
        after_T = compute(bundle, dataclasses.replace(formula, arrays={"microbatch_N": other_N})).gradient_T
        worst = max(worst, float(np.linalg.norm(after_T - before_T)) / norm)
    return 100 * worst
