"""What is cached on first use is also right where it is first met: in a layer that is computed twice, in a thread of a
microbatch, and while sampling. All other tests of a process find it warm.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import packed, some_prompts, some_sequences, tiny_policy
from torch import Tensor

import ansatz
from ansatz.models.layers import configure_layers
from ansatz.models.load import Policy
from ansatz.models.threads import parallel_map
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import NativeSampler

PACKAGE = Path(ansatz.__file__).parent
CACHE = re.compile(r"^@(?:functools\.)?(?:lru_)?cache\b.*\n(?:@.*\n)*def (\w+)", re.M)
ELSEWHERE = {
    "ansatz.models.four_bit._tables": "needs bitsandbytes; its tests start with it",
    "ansatz.models.layers._compiled": "compiled layers have a slow test",
    "ansatz.models.load._say_once": "a sentence about a tokenizer",
    "ansatz.models.logps._library": "kernels of log-probs, which no self-test compares first",
    "ansatz.models.threads._pool": "a pool of threads, which a second one would only repeat",
}
"""Caches that no test of this file meets cold, and the reason."""


def cached_functions() -> dict[str, Any]:
    """The cached functions of models, rollout and train, by their full names."""
    found: dict[str, Any] = {}
    for file in (
        file for folder in ("models", "rollout", "train") for file in sorted((PACKAGE / folder).rglob("*.py"))
    ):
        if names := CACHE.findall(file.read_text(encoding="utf-8")):
            module = importlib.import_module(".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts))
            found |= {f"{module.__name__}.{name}": getattr(module, name) for name in names}
    return found


CACHED = cached_functions()


def gradients(policy: Policy) -> list[Tensor]:
    hidden_TH = policy.packed_hidden(*packed(some_sequences(40, 23, 1)))
    return list(torch.autograd.grad(hidden_TH.square().sum(), list(policy.model.parameters())))


def in_checkpointed_layers(policy: Policy) -> list[Tensor]:
    configure_layers(policy, checkpointing=True)
    return gradients(policy)


def in_threads(policy: Policy) -> list[Tensor]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        configure_layers(policy, checkpointing=True)
        both = list(parallel_map(gradients, [policy, policy], 2))
        assert all(map(torch.equal, *both))
        return both[0]
    finally:
        torch.set_num_threads(before)


def after_sampling(policy: Policy) -> list[Tensor]:
    sampling = Sampling(num_samples=2, max_response_tokens=6, temperature=1.0, seed=3)
    NativeSampler(policy, max_concurrent=8).generate(some_prompts(3), sampling)
    return gradients(policy)


@pytest.fixture
def _cold():
    for function in CACHED.values():
        if function is not CACHED["ansatz.models.threads._pool"]:
            function.cache_clear()


@pytest.mark.usefixtures("_cold")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("first", [in_checkpointed_layers, in_threads, after_sampling])
def test_gradients_are_the_same_wherever_a_cache_is_first_met(
    first: Callable[[Policy], list[Tensor]], dtype: torch.dtype
):
    cold = first(tiny_policy(dtype=dtype))
    warm = gradients(tiny_policy(dtype=dtype))
    assert all(map(torch.equal, cold, warm))


@pytest.mark.usefixtures("_cold")
def test_every_cache_of_a_training_process_is_met_cold_by_these_tests():
    in_threads(tiny_policy())
    after_sampling(tiny_policy())
    unused = {name for name, function in CACHED.items() if not function.cache_info().currsize}
    assert unused - set(ELSEWHERE) == set()
    assert set(ELSEWHERE) - set(CACHED) == set()
    assert len(CACHED) > 8
