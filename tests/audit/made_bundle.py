"""A step whose loss is the promised one, made by our own objective: the start of tests that plant a mistake."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ansatz.audit.bundle import Bundle
from ansatz.audit.loss import compute, promised
from ansatz.audit.promise import Promise, promise_of

OPTIONS = {
    "loss_type": "dapo", "beta": 0.0, "num_generations": 4, "gradient_accumulation_steps": 2,
    "steps_per_generation": 2, "num_iterations": 2, "max_completion_length": 8, "epsilon": 0.2, "use_vllm": False,
    "reward_weights": [1.0], "scale_rewards": "group",
}  # fmt: skip


def made(seed: int = 0, **options: Any) -> Bundle:
    """Two prompts with four responses each, in two microbatches, as TRL with these options computes them."""
    draws = np.random.default_rng(seed)
    length_N = draws.integers(3, 8, 8)
    segment_T = np.repeat(np.arange(8), length_N + 2)
    place_T = np.concatenate([np.arange(length + 2) for length in length_N])
    sampled_T = place_T >= 2
    reward_NK = np.round(draws.random((8, 1)), 2)
    group_N = np.arange(8) // 4
    centred_N = reward_N = reward_NK[:, 0]
    for group in (0, 1):
        at = group_N == group
        centred_N = np.where(at, (reward_N - reward_N[at].mean()) / (reward_N[at].std(ddof=1) + 1e-4), centred_N)
    old_T = -draws.exponential(1, len(segment_T)) * sampled_T
    arrays: dict[str, Any] = {
        "token_T": draws.integers(3, 9, len(segment_T)),
        "segment_T": segment_T,
        "prompt_length_N": np.full(8, 2),
        "group_N": group_N,
        "sampled_mask_T": sampled_T,
        "mask_T": sampled_T,
        "component_NK": reward_NK,
        "advantage_N": centred_N,
        "advantage_T": centred_N[segment_T] * sampled_T,
        "old_logp_T": old_T,
        "recomputed_old_logp_T": old_T,
        "policy_logp_T": old_T + draws.normal(0, 0.3, len(segment_T)) * sampled_T,
        "ref_logp_T": old_T + draws.normal(0, 0.2, len(segment_T)) * sampled_T,
        "microbatch_N": np.array([0, 1, 0, 1, 0, 1, 0, 1]),
    }
    bundle = Bundle(project="trl", version="1.16.0", step=1, options={**OPTIONS, **options}, arrays=arrays)
    return with_loss(bundle)


def with_loss(bundle: Bundle, **changes: Any) -> Bundle:
    """Return the bundle with the value and gradient of its promised loss. changes: fields of the objective."""
    promise = promise_of(bundle)
    assert isinstance(promise, Promise), promise
    formula = promised(bundle, promise)
    formula = dataclasses.replace(formula, objective=dataclasses.replace(formula.objective, **changes))
    loss = compute(bundle, formula)
    expected = {"loss_of_microbatches": loss.loss_M.tolist()}
    return dataclasses.replace(with_arrays(bundle, gradient_T=loss.gradient_T), expected=expected)


def with_arrays(bundle: Bundle, **arrays: Any) -> Bundle:
    return dataclasses.replace(bundle, arrays={**bundle.arrays, **arrays})
