"""Six causes of a gap between sampler and trainer, planted into the log-probs of a small unigram policy.

Every token is drawn from the sampler's distribution, as in a run: a softmax of eight logits, another one at each place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ansatz.audit.bundle import Bundle
from ansatz.audit.gap import explain_gap

LENGTH, ROLLOUTS = 12, 60


def log_softmax(logits_TV: np.ndarray) -> np.ndarray:
    shifted_TV = logits_TV - logits_TV.max(-1, keepdims=True)
    return shifted_TV - np.log(np.exp(shifted_TV).sum(-1, keepdims=True))


def step(kind: str, *, recomputed: bool = True) -> Bundle:
    """A step whose sampler differs from its trainer by `kind`. recomputed: with what only a recorder knows."""
    draws = np.random.default_rng(0)
    count, temperature = LENGTH * ROLLOUTS, 0.5 if kind == "temperature" else 1.0
    raw_TV = draws.normal(0, 1.5, (count, 8))
    trainer_TV = log_softmax(raw_TV / temperature)
    rounded_TV = log_softmax(raw_TV + draws.normal(0, 0.01, raw_TV.shape))
    sampler_TV = trainer_TV
    if kind == "dtype":
        sampler_TV = log_softmax(np.log(np.exp(rounded_TV)) + draws.normal(0, 0.002, raw_TV.shape))
    if kind == "stale weights":
        sampler_TV = log_softmax(raw_TV + draws.normal(0, 0.4, raw_TV.shape))
    if kind == "truncation":
        order_TV = (-trainer_TV).argsort(-1).argsort(-1)
        sampler_TV = log_softmax(np.where(order_TV < 3, trainer_TV, -np.inf))
    if kind == "kernels":
        sampler_TV = trainer_TV + draws.normal(0, 2e-5, trainer_TV.shape)
    token_T = np.array([draws.choice(8, p=np.exp(row) / np.exp(row).sum()) for row in sampler_TV])
    at = (np.arange(count), token_T)
    told_T = (log_softmax(raw_TV) if kind == "temperature" else sampler_TV)[at]
    if kind == "other tokens":
        later_T = np.isin(np.arange(count) // LENGTH, range(0, ROLLOUTS, 4)) & (np.arange(count) % LENGTH > 4)
        told_T = np.where(later_T, -draws.exponential(2, count), told_T)
    arrays: dict[str, Any] = {
        "token_T": token_T,
        "segment_T": np.arange(count) // LENGTH,
        "prompt_length_N": np.zeros(ROLLOUTS, int),
        "sampled_mask_T": np.ones(count, bool),
        "behavior_logp_T": told_T,
        "old_logp_T": trainer_TV[at],
    }
    if recomputed:
        arrays |= {"recomputed_old_logp_T": trainer_TV[at], "recomputed_bfloat16_logp_T": rounded_TV[at]}
        arrays |= {"recomputed_raw_logp_T": log_softmax(raw_TV)[at]} if kind == "temperature" else {}
    return Bundle(project="trl", version="1.16", step=1, arrays=arrays)


@pytest.mark.parametrize("kind", ["temperature", "dtype", "stale weights", "truncation", "other tokens"])
def test_a_cause_is_named(kind: str):
    gap = explain_gap(step(kind))
    assert gap is not None
    assert gap.cause.startswith(kind)


@pytest.mark.parametrize("kind", ["truncation", "stale weights", "other tokens"])
def test_a_cause_is_named_from_a_log_without_a_recorder(kind: str):
    gap = explain_gap(step(kind, recomputed=False))
    assert gap is not None
    assert gap.cause.startswith(kind)


def test_kernel_noise_is_no_cause():
    gap = explain_gap(step("kernels"))
    assert gap is not None
    assert (gap.cause, gap.largest < 2e-4) == ("", True)


def test_the_mean_ratio_under_truncation_is_the_mass_that_was_kept():
    """The three likeliest of eight tokens are kept; tokens come from them, so trainer / sampler is their mass."""
    gap = explain_gap(step("truncation"))
    assert gap is not None
    assert f"{gap.mean_ratio:.3f} on average" in gap.cause
    assert 0.6 < gap.mean_ratio < 0.95


def test_the_versions_of_tokens_say_how_stale_they_are():
    bundle = step("stale weights")
    versions = {"version_T": np.where(bundle.arrays["segment_T"] < 10, 3, 5)}
    gap = explain_gap(Bundle(project="ansatz", version="1", step=1, arrays={**bundle.arrays, **versions}))
    assert gap is not None
    assert gap.cause == "stale weights: the sampler is up to 2 versions behind"


def test_without_one_side_there_is_no_gap():
    bundle = step("dtype")
    arrays = {name: value for name, value in bundle.arrays.items() if name != "behavior_logp_T"}
    assert explain_gap(Bundle(project="trl", version="1", step=1, arrays=arrays)) is None
