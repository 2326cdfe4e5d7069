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

from ansatz.errors import ConfigError, ModelError
from ansatz.models.layers import configure_layers
from ansatz.models.load import Policy
from ansatz.models.threads import parallel_map
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import NativeSampler

SLICES = [(9, 5, 14), (20, 3), (7, 7, 7, 30), (40,)]


def slice_gradients(policy: Policy, lengths: tuple[int, ...]) -> list[Tensor | None]:
    hidden_TH = policy.packed_hidden(*packed(some_sequences(*lengths)))
    parameters = list(policy.model.parameters())
    return list(torch.autograd.grad(hidden_TH.square().sum(), parameters, allow_unused=True))


def gradients(policy: Policy) -> list[Tensor]:
    """Of all slices, side by side in threads as a step has them."""
    found = parallel_map(lambda lengths: slice_gradients(policy, lengths), SLICES, policy.parallel_microbatches)
    return [gradient for one in found for gradient in one if gradient is not None]


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


def saved_bytes(policy: Policy, lengths: tuple[int, ...]) -> int:
    """What autograd keeps for the backward pass besides the weights; each storage once."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in policy.model.parameters()}
    kept: dict[int, Tensor] = {}  # the tensors themselves, so that no address is used twice

    def keep(value: Tensor) -> Tensor:
        kept.setdefault(value.untyped_storage().data_ptr(), value)
        return value

    with saved_tensors_hooks(keep, lambda value: value):
        hidden_TH = policy.packed_hidden(*packed(some_sequences(*lengths)))
    assert hidden_TH.requires_grad
    return sum(value.untyped_storage().nbytes() for place, value in kept.items() if place not in weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_gradients_of_layers_computed_again_are_the_same_bits(name: str, dtype: torch.dtype) -> None:
    policy, other = tiny_policy(name, dtype=dtype), tiny_policy(name, dtype=dtype)
    configure_layers(other, checkpointing=True)
    with threads(2):
        expected, found = gradients(policy), gradients(other)
    assert len(found) == len(expected) > 0
    assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))


def test_of_each_layer_only_its_input_is_kept() -> None:
    policy, other = tiny_policy(), tiny_policy()
    configure_layers(other, checkpointing=True)
    whole, less = saved_bytes(policy, (40, 60, 80)), saved_bytes(other, (40, 60, 80))
    layer_input = 512 * 32 * 4  # tokens filled up to 512, 32 hidden, float32
    ends = 5 * layer_input  # embedding indices, rotary tables, final norm and its scales, the last layer's output
    assert less <= 2 * layer_input + ends
    assert whole > 5 * less


def test_sampling_is_untouched_and_keeps_its_cache() -> None:
    policy, other = tiny_policy(), tiny_policy()
    configure_layers(other, checkpointing=True)
    sampling = Sampling(num_samples=2, max_response_tokens=6, temperature=1.0, seed=3)
    rollouts = [NativeSampler(one, max_concurrent=8).generate(some_prompts(3), sampling) for one in (policy, other)]
    assert [r.token_ids for r in rollouts[0]] == [r.token_ids for r in rollouts[1]]
    assert [list(r.behavior_logps) for r in rollouts[0]] == [list(r.behavior_logps) for r in rollouts[1]]


def test_the_layers_of_a_copy_use_the_copys_weights() -> None:
    policy = tiny_policy()
    configure_layers(policy, checkpointing=True)
    other = dataclasses.replace(policy, model=copy.deepcopy(policy.model))
    expected = slice_gradients(policy, (9, 5))
    for parameter in other.model.parameters():
        parameter.data.mul_(1.5)
    assert all(torch.equal(one, two) for one, two in zip(slice_gradients(policy, (9, 5)), expected, strict=True))
    found = slice_gradients(other, (9, 5))
    assert not any(torch.equal(one, two) for one, two in zip(found, expected, strict=True))


def test_a_model_without_marked_layers_is_refused() -> None:
    module = nn.Linear(2, 2)
    module.device = torch.device("cpu")  # type: ignore[assignment]
    policy = dataclasses.replace(tiny_policy(), model=module)
    with pytest.raises(ModelError, match=r"no layers of Linear for gradient checkpointing\. Remove model"):
        configure_layers(policy, checkpointing=True)
    configure_layers(policy)


def test_compiled_slices_are_refused_where_they_would_run_side_by_side() -> None:
    with threads(2), pytest.raises(ConfigError, match="Set threads: 1"):
        configure_layers(tiny_policy(), compiled=True)


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
def test_compiled_layers_have_the_same_gradients_to_rounding(checkpointing: bool) -> None:
    with threads(1):
        policy, other = tiny_policy(), tiny_policy()
        configure_layers(other, checkpointing=checkpointing, compiled=True)
        expected, found = gradients(policy), gradients(other)
    assert not all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))
    for one, two in zip(found, expected, strict=True):
        assert float((one - two).norm()) <= 1e-5 * float(two.norm())
