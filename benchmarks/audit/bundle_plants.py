"""Plants a bug of `planted.BUGS` into the arrays of a bundle that a run without a bug has written."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ansatz.audit.bundle import Bundle
from ansatz.audit.loss import Formula, compute, promised
from ansatz.audit.promise import Promise, promise_of


def with_arrays(bundle: Bundle, **arrays: Any) -> Bundle:
    return dataclasses.replace(bundle, arrays={**bundle.arrays, **arrays})


def retokenized(bundle: Bundle) -> Bundle:
    """From some token on, the trainer sees other tokens than the sampler: a third of the rollouts have another end."""
    behavior_T = bundle.arrays["recomputed_old_logp_T"].copy()
    draws = np.random.default_rng(0)
    for row in range(0, bundle.num_rollouts, 3):
        places = np.flatnonzero((bundle.arrays["segment_T"] == row) & (bundle.arrays["sampled_mask_T"] != 0))
        behavior_T[places[2:]] = -draws.exponential(1.5, len(places[2:]))
    return with_arrays(bundle, behavior_logp_T=behavior_T)


def spike_of_leave_one_out(bundle: Bundle) -> Bundle:
    """One success whose others have std 0: the rounding error of a std in float32 divides its advantage."""
    reward_N = np.where(np.arange(bundle.num_rollouts) % 4 == 0, 1.0, 0.35).astype(np.float32)
    others = (reward_N - 0.35) / 1.6e-4
    advantage_N = np.where(reward_N > 0.5, others, -0.65 / 3 / 0.325).astype(np.float32)
    spec = {"advantage": {"name": "leave_one_out_std"}}
    options = {"algorithm": spec, "num_generations": 4}
    arrays = {name: bundle.arrays[name] for name in ("token_T", "segment_T", "prompt_length_N", "sampled_mask_T")}
    arrays |= {"group_N": np.arange(bundle.num_rollouts) // 4, "reward_N": reward_N, "advantage_N": advantage_N}
    return dataclasses.replace(bundle, project="ansatz", options=options, arrays=arrays)


def observations_in_denominator(bundle: Bundle) -> Bundle:
    promise = promise_of(bundle)
    assert isinstance(promise, Promise)
    counted = {"counted_T": (bundle.arrays["mask_T"] != 0) | bundle.arrays["observation_T"]}
    formula = dataclasses.replace(promised(bundle, promise), arrays=counted, weight_mask="counted_T")
    assert isinstance(formula, Formula)
    found = compute(bundle, formula)
    expected = {**bundle.expected, "loss_of_microbatches": found.loss_M.tolist()}
    changed = with_arrays(bundle, gradient_T=found.gradient_T.astype(np.float32))
    return dataclasses.replace(changed, expected=expected)


def rewards_of_neighbours(bundle: Bundle) -> Bundle:
    """Right and wrong answers in turns of three, and the reward of the next row."""
    right_N = np.arange(bundle.num_rollouts) % 3 == 0
    texts = [
        {**text, "response": f"The answer is {text['answer'] if right else '77'}"}
        for text, right in zip(bundle.rollouts, right_N, strict=True)
    ]
    rewards = np.roll(right_N, -1).astype(np.float32)[:, None]
    notes = {**bundle.notes, "rewards": ["correct"]}
    changed = with_arrays(bundle, component_NK=rewards)
    return dataclasses.replace(changed, rollouts=texts, notes=notes)


BUNDLE_PLANTS: dict[str, Callable[[Bundle], Bundle]] = {
    "retokenized": retokenized,
    "spike_of_leave_one_out": spike_of_leave_one_out,
    "observations_in_denominator": observations_in_denominator,
    "rewards_of_neighbours": rewards_of_neighbours,
}
