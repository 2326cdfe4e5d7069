"""Why sampler and trainer disagree about the log-probs of the same tokens.

Axes: T sampled tokens. The gap is behavior_logp - trainer's log-prob under the weights at the time of sampling. If the
same distribution was meant, the mean of trainer / behavior over sampled tokens is 1, whatever the weights: tokens come
from the behavior. Its value, the signs of the gap and the place where it begins tell the causes apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ansatz.audit.bundle import Array, Bundle

EXACT = 2e-4
"""Nats: the same weights in float32 in another layout (`benchmarks/audit/healthy.py`)."""
BFLOAT16 = 0.06
"""Nats, mean: more than this, kernels and a dtype of 16 bits do not explain. SmolLM2-135M in bfloat16 has 0.045."""


@dataclass(frozen=True, slots=True)
class Gap:
    """cause: empty if there is none. mean_abs, largest: of the gap, nats. mean_ratio: of trainer / behavior."""

    cause: str
    mean_abs: float
    largest: float
    mean_ratio: float


def explain_gap(bundle: Bundle) -> Gap | None:
    """Name the cause of the gap. None: a log-prob of either side is missing."""
    trainer_T = _first(bundle, "recomputed_old_logp_T", "old_logp_T", "policy_logp_T")
    behavior_T, sampled_T = bundle.get("behavior_logp_T"), bundle.arrays.get("sampled_mask_T")
    if trainer_T is None or behavior_T is None or sampled_T is None:
        return None
    at_T = (sampled_T != 0) & np.isfinite(behavior_T) & bundle.trained_T
    if not at_T.any():
        return None
    gap_T = (behavior_T - trainer_T)[at_T]
    ratio_T = np.exp(np.clip(-gap_T, -50, 50))
    others = {name: bundle.get(f"recomputed_{name}_logp_T") for name in ("raw", "bfloat16")}
    known = {name: (behavior_T - value)[at_T] for name, value in others.items() if value is not None}
    cause = _cause(gap_T, trainer_T[at_T], known, bundle.arrays["segment_T"][at_T], _lag(bundle, at_T))
    return Gap(cause, float(np.abs(gap_T).mean()), float(np.abs(gap_T).max()), float(ratio_T.mean()))


def _cause(gap_T: Array, trainer_T: Array, known: Mapping[str, Array], segment_T: Array, lag: int) -> str:
    size, ratio_T = float(np.abs(gap_T).mean()), np.exp(np.clip(-gap_T, -50, 50))
    if float(np.abs(gap_T).max()) <= EXACT:
        return ""
    if "raw" in known and float(np.abs(known["raw"]).mean()) <= 0.2 * size:
        return "temperature: the sampler reports log-probs at temperature 1, the trainer uses the run's"
    if "bfloat16" in known and _same_direction(gap_T, gap_T - known["bfloat16"]):
        return "dtype: the sampler's numbers are those of weights in bfloat16, and the trainer's are not"
    if float(gap_T.min()) >= -EXACT and float(ratio_T.mean()) < 1 - 1e-3:
        kept = float(ratio_T.mean())
        return f"truncation by top-p or top-k: the sampler divides by the mass that it keeps, {kept:.3f} on average"
    if _begins_later(gap_T, segment_T):
        return "other tokens: responses agree up to a place and no longer, as after decoding and encoding again"
    error = float(ratio_T.std()) / len(ratio_T) ** 0.5
    if lag:
        return f"stale weights: the sampler is up to {lag} versions behind"
    if size < BFLOAT16 and float(np.abs(gap_T).max()) < 20 * BFLOAT16:
        return "" if size < 5 * EXACT else "dtype of one side, or kernels of 16 bits: small, and on both sides"
    if abs(float(ratio_T.mean()) - 1) <= 4 * error + 0.02:
        return "stale weights: both are distributions of one family (mean ratio 1), but of different weights"
    slope = _slope(gap_T, trainer_T)
    if slope:
        return f"temperature: the sampler's log-probs are {slope:.2f} times as far from 0 as the trainer's"
    return "other tokens, or another template: the trainer's ratio to the sampler is not 1 on average"


def _same_direction(gap_T: Array, change_T: Array) -> bool:
    """Tell whether the gap points where rounding the weights points. Kernels of 16 bits alone do not."""
    norms = float(np.linalg.norm(gap_T) * np.linalg.norm(change_T))
    return norms > 0 and float(gap_T @ change_T) / norms > 0.5


def _begins_later(gap_T: Array, segment_T: Array) -> bool:
    """Tell whether rollouts agree exactly at their first tokens, and some of them disagree much from a place on."""
    clean, broken = 0, 0
    for segment in np.unique(segment_T):
        wide = np.abs(gap_T[segment_T == segment]) > 20 * EXACT
        first = int(wide.argmax()) if wide.any() else len(wide)
        clean += first == len(wide)
        broken += 0 < first < len(wide) and bool(wide[first:].mean() > 0.5)
    return broken > 0 and clean + broken == len(np.unique(segment_T))


def _slope(gap_T: Array, trainer_T: Array) -> float:
    """Return c if behavior = c x trainer leaves less than half of the gap, else 0: a hint of another temperature."""
    behavior_T, square = trainer_T + gap_T, float(trainer_T @ trainer_T)
    factor = float(behavior_T @ trainer_T) / square if square > 0 else 1.0
    rest = float(np.abs(behavior_T - factor * trainer_T).mean())
    return factor if abs(factor - 1) > 0.05 and rest < 0.5 * float(np.abs(gap_T).mean()) else 0.0


def _lag(bundle: Bundle, at_T: Array) -> int:
    """Return how many versions the oldest sampled token is behind the policy; 0 if versions are unknown."""
    version_T, now = bundle.arrays.get("version_T"), bundle.notes.get("policy_version")
    if version_T is None or not (version_T[at_T] >= 0).all():
        return 0
    return int((version_T[at_T].max() if now is None else now) - version_T[at_T].min())


def _first(bundle: Bundle, *names: str) -> Array | None:
    return next((bundle.get(name) for name in names if name in bundle), None)
