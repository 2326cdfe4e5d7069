"""Decoding as on a GPU, with a stand-in for CUDA graphs that, like them, works only on the captured memory."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from decoding import at_each_step
from tiny_models import some_prompts, tiny_policy

from ansatz.models.load import Policy
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import NativeSampler, sampler
from ansatz.rollout.native.cache import SPAN_STEP, slots_that_fit
from ansatz.rollout.native.forward import StepGraph, Work
from ansatz.rollout.native.sampler import token_bytes
from tools.families import END_ID

PROMPTS = some_prompts(40)
SAMPLING = Sampling(num_samples=3, max_response_tokens=60, seed=7, step=4)


class Graphs:
    """Counts captures and replays."""

    def __init__(self) -> None:
        self.captured = self.replayed = 0

    def __call__(self, work: Work) -> Work:
        self.captured += 1
        work()

        def replay() -> None:
            self.replayed += 1
            work()

        return replay


@pytest.fixture(scope="module")
def policy() -> Policy:
    return dataclasses.replace(tiny_policy(), end_ids=(END_ID, 5, 9))


def test_a_captured_step_samples_the_same_rollouts(policy: Policy) -> None:
    """Rows finish, others enter and the cache grows. Each new shape is captured once and then replayed."""
    graphs = Graphs()
    with_graphs = NativeSampler(policy, max_concurrent=70, capture=graphs).generate(PROMPTS, SAMPLING)
    without = NativeSampler(policy, max_concurrent=70).generate(PROMPTS, SAMPLING)
    assert [rollout.token_ids for rollout in with_graphs] == [rollout.token_ids for rollout in without]
    assert [rollout.behavior_logps for rollout in with_graphs] == [rollout.behavior_logps for rollout in without]
    assert 2 <= graphs.captured <= 12
    assert graphs.replayed > 5 * graphs.captured


def test_a_shape_is_captured_again_after_another_shape() -> None:
    """A cache that shrank and grew again, or that holds other prompts, has the same sizes in different memory."""
    graphs, number, out = Graphs(), torch.zeros(1), torch.zeros(1)
    graph = StepGraph(graphs)

    def results(*shapes: tuple[int, ...]) -> list[float]:
        values = list[float]()
        for shape in shapes:
            number.add_(1)
            graph(shape, lambda: out.copy_(number * 2) and None)
            values.append(float(out))
        return values

    assert results((64,), (64,), (64,), (160,), (64,), (64,), (64,)) == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
    assert (graphs.captured, graphs.replayed) == (2, 2)
    assert results((64, 1), (64, 1), (64, 1)) == [16.0, 18.0, 20.0]
    assert (graphs.captured, graphs.replayed) == (3, 3)


def test_slots_are_bounded_by_free_memory(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    active = at_each_step(monkeypatch, before=lambda batch: batch.active)
    native = NativeSampler(policy, max_concurrent=0)
    whole = native.generate(PROMPTS, SAMPLING)
    assert max(active) > 100  # of 120, some of which end with their first token

    active.clear()
    bytes_per_token = token_bytes(policy)
    span = SAMPLING.max_response_tokens + SPAN_STEP  # a third of a prompt fits in the rest
    monkeypatch.setattr(sampler, "free_bytes", lambda _: int(40 * bytes_per_token * span / 0.8))
    native._token_bytes = bytes_per_token
    assert [rollout.token_ids for rollout in native.generate(PROMPTS, SAMPLING)] == [
        rollout.token_ids for rollout in whole
    ]
    assert 20 < max(active) <= 32


def test_token_bytes_are_those_of_all_layers_keys_and_values() -> None:
    config = tiny_policy().model.config
    heads = config.num_key_value_heads * config.head_dim
    assert token_bytes(tiny_policy()) == 2 * config.num_hidden_layers * heads * 4


@pytest.mark.parametrize(
    ("free", "requested", "expected"),
    [(10**6, 0, 96), (10**6, 64, 64), (10**6, 500, 96), (10**5, 0, 12), (0, 0, 1), (10**5, 4, 4)],
)
def test_slots_are_whole_blocks_of_rows_with_rounded_spans(free: int, requested: int, expected: int) -> None:
    """800 kB of 100 bytes x 64 positions are 125 rows: three blocks of 32, and 80 kB are 12 rows."""
    assert slots_that_fit(free, 100, 40, requested=requested) == expected
