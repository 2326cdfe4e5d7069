from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from tiny_models import ARCHITECTURES, packed, some_prompts, some_sequences, tiny_policy
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from ansatz.errors import ModelError
from ansatz.models.layers import configure_layers
from ansatz.models.load import Policy
from ansatz.models.threads import parallel_map
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import NativeSampler

MICROBATCHES = [(9, 5, 14), (20, 3), (7, 7, 7, 30), (40,)]


def microbatch_gradients(policy: Policy, lengths: tuple[int, ...]) -> list[Tensor | None]:
    hidden_TH = policy.packed_hidden(*packed(some_sequences(*lengths)))
    parameters = list(policy.model.parameters())
    return list(torch.autograd.grad(hidden_TH.square().sum(), parameters, allow_unused=True))


def gradients(policy: Policy) -> list[Tensor]:
    """Gradients of all microbatches, computed in parallel threads as in a step."""
    per_microbatch = parallel_map(
        lambda lengths: microbatch_gradients(policy, lengths), MICROBATCHES, policy.parallel_microbatches
    )
    return [gradient for gradients in per_microbatch for gradient in gradients if gradient is not None]


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


def saved_bytes(policy: Policy, lengths: tuple[int, ...]) -> int:
    """Bytes that autograd keeps for the backward pass, without the weights and each storage once."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in policy.model.parameters()}
    kept: dict[int, Tensor] = {}  # holds the tensors, so that no address is reused

    def keep(value: Tensor) -> Tensor:
        kept.setdefault(value.untyped_storage().data_ptr(), value)
        return value

    with saved_tensors_hooks(keep, lambda value: value):
        hidden_TH = policy.packed_hidden(*packed(some_sequences(*lengths)))
    assert hidden_TH.requires_grad
    return sum(value.untyped_storage().nbytes() for address, value in kept.items() if address not in weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_gradients_with_checkpointing_have_the_same_bits(name: str, dtype: torch.dtype) -> None:
    policy, other = tiny_policy(name, dtype=dtype), tiny_policy(name, dtype=dtype)
    configure_layers(other, checkpointing=True)
    with threads(2):
        expected, recomputed = gradients(policy), gradients(other)
    assert len(recomputed) == len(expected) > 0
    assert all(torch.equal(a, b) for a, b in zip(recomputed, expected, strict=True))


def test_checkpointing_keeps_only_the_input_of_each_layer() -> None:
    policy, other = tiny_policy(), tiny_policy()
    configure_layers(other, checkpointing=True)
    whole, less = saved_bytes(policy, (40, 60, 80)), saved_bytes(other, (40, 60, 80))
    layer_input = 512 * 32 * 4  # tokens padded to 512, 32 hidden, float32
    ends = 5 * layer_input  # embedding indices, rotary tables, final norm and its scales, the last layer's output
    assert less <= 2 * layer_input + ends
    assert whole > 5 * less


def test_checkpointing_does_not_affect_sampling() -> None:
    policy, other = tiny_policy(), tiny_policy()
    configure_layers(other, checkpointing=True)
    sampling = Sampling(num_samples=2, max_response_tokens=6, temperature=1.0, seed=3)
    rollouts = [NativeSampler(model, max_concurrent=8).generate(some_prompts(3), sampling) for model in (policy, other)]
    assert rollouts[0] == rollouts[1]


def test_the_layers_of_a_copy_use_the_weights_of_the_copy() -> None:
    policy = tiny_policy()
    configure_layers(policy, checkpointing=True)
    other = dataclasses.replace(policy, model=copy.deepcopy(policy.model))
    expected = microbatch_gradients(policy, (9, 5))
    for parameter in other.model.parameters():
        parameter.data.mul_(1.5)
    again = microbatch_gradients(policy, (9, 5))
    assert all(torch.equal(a, b) for a, b in zip(again, expected, strict=True))
    of_copy = microbatch_gradients(other, (9, 5))
    assert not any(torch.equal(a, b) for a, b in zip(of_copy, expected, strict=True))


def test_a_model_without_marked_layers_is_refused() -> None:
    module = nn.Linear(2, 2)
    module.device = torch.device("cpu")  # type: ignore[assignment]
    policy = dataclasses.replace(tiny_policy(), model=module)
    with pytest.raises(ModelError, match=r"no layers of Linear for gradient checkpointing\. Remove model"):
        configure_layers(policy, checkpointing=True)
    configure_layers(policy)


def test_compiled_microbatches_run_one_after_the_other() -> None:
    with threads(2):
        policy, other = tiny_policy(), tiny_policy()
        configure_layers(policy, checkpointing=True)
        configure_layers(other, compiled=True)
        assert policy.parallel_microbatches == 2
        assert other.parallel_microbatches == 1


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_of_compiled_layers_differ_by_rounding(checkpointing: bool) -> None:
    with threads(1):
        policy, other = tiny_policy(), tiny_policy()
        configure_layers(other, checkpointing=checkpointing, compiled=True)
        expected, compiled = gradients(policy), gradients(other)
    assert not all(torch.equal(a, b) for a, b in zip(compiled, expected, strict=True))
    for gradient, reference in zip(compiled, expected, strict=True):
        assert float((gradient - reference).norm()) <= 1e-5 * float(reference.norm())
