"""The memory estimate compared with real tensors: parameters, moments, sums, and what autograd saves."""

import dataclasses

import pytest
import torch
from tiny_models import packed, some_sequences, tiny_policy

from ansatz.config.schema import TrainSection
from ansatz.models import attention, layer_operations
from ansatz.models.known_models import KNOWN_MODELS, _from_config
from ansatz.models.layers import configure_layers
from ansatz.models.lora import add_adapters
from ansatz.models.memory import (
    Workload,
    activation_bytes,
    adapter_parameters,
    host_bytes,
    layer_activation_bytes,
    memory_parts,
    peak_bytes,
)
from ansatz.models.threads import one_thread
from ansatz.train.critic import Critic
from ansatz.train.optimizers import bind_optimizer

NAMES = [
    "llama, one key head per query head, untied",
    "qwen2, biases, untied",
    "qwen3, untied",
    "qwen3, grouped heads, tied",
]
TOLERANCE = 0.02  # relative, of the activations: indices and rotary tables are estimated roughly


def shape(policy):
    return _from_config(policy.model.config.to_dict(), "tiny")


def workload(policy, **changes) -> Workload:
    sizes = {"max_prompt_tokens": 16, "max_response_tokens": 16, "rollouts": 4, "prefilled": 1}
    model = {"shape": shape(policy), "dtype_bytes": policy.dtype.itemsize, "microbatch_tokens": 64, "targets": 32}
    return Workload(**{**sizes, **model, **changes})


def part(work: Workload, name: str) -> int:
    return next(part.bytes for part in memory_parts(work) if part.name == name)


def names(work: Workload) -> list[str]:
    return [part.name for part in memory_parts(work)]


def saved_bytes(policy, lengths) -> int:
    """Bytes that a packed forward pass keeps for the backward pass, without the parameters."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in policy.model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = policy.packed_hidden(*packed(some_sequences(*lengths)))
    assert hidden.requires_grad
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lengths", [[64] * 16, [128] * 8], ids=["16 x 64", "8 x 128"])
def test_activations_are_what_autograd_saves(name, lengths, monkeypatch):
    """The kernels of a CPU save one tensor less of a gate, so the estimate is an upper bound there. Attention is
    that of a GPU, which keeps no probabilities."""
    monkeypatch.setattr(attention, "_dense_is_faster", lambda query, padded: False)
    policy = tiny_policy(name)
    counted = sum(lengths) * activation_bytes(shape(policy), 4)
    with one_thread():
        policy.packed_hidden(*packed(some_sequences(*lengths)))  # compares the kernels with torch, which saves more
        assert saved_bytes(policy, lengths) <= counted * (1 + TOLERANCE)
    monkeypatch.setattr(layer_operations, "can_take", lambda *tensors: False)
    assert saved_bytes(policy, lengths) == pytest.approx(counted, rel=TOLERANCE)


@pytest.mark.parametrize("name", NAMES)
def test_activations_with_checkpointing_are_the_inputs_of_layers_and_one_layer(name):
    policy = tiny_policy(name)
    configure_layers(policy, checkpointing=True)
    sizes = shape(policy)
    counted = 1024 * (activation_bytes(sizes, 4, checkpointing=True) - layer_activation_bytes(sizes, 4))
    arguments = 1024 * (2 * sizes.head_dim * 4 + 5 * 8)  # rotary tables and indices, which the hooks do not see
    assert counted - arguments <= saved_bytes(policy, [64] * 16) <= counted


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_weights_masters_sums_and_moments_equal_the_bytes_of_the_tensors(dtype):
    policy = tiny_policy("qwen2, biases, untied")
    optimizer = bind_optimizer(TrainSection().optimizer)(policy.model, dtype)
    work = workload(policy)
    hidden = policy.packed_hidden(*packed(some_sequences(9, 7)))
    loss = (hidden @ policy.head.weight.T).float().square().mean()
    gradients = [gradient for gradient in optimizer.gradients(loss) if gradient is not None]
    optimizer.accumulate(gradients)
    sums = sum(master.grad.nbytes for master in optimizer.masters.values())
    optimizer.step(lr=1e-3, max_grad_norm=0.0)
    moments = [value for key, value in optimizer.state().items() if value.ndim > 0]
    weights = sum(parameter.nbytes for parameter in policy.model.parameters())
    assert part(work, "weights") == weights
    assert part(work, "microbatch gradients") == sum(gradient.nbytes for gradient in gradients)
    assert part(work, "gradient sums") == sums
    assert part(work, "Adam moments") == sum(value.nbytes for value in moments)
    if dtype == torch.bfloat16:
        assert part(work, "float32 masters") == sum(master.nbytes for master in optimizer.masters.values())
    else:
        assert "float32 masters" not in names(work)


def test_offloading_moves_the_optimizer_to_the_host_and_changes_no_sum():
    work = workload(tiny_policy(dtype=torch.bfloat16))
    offloaded = dataclasses.replace(work, optimizer="adamw_offload")
    on_device, moved = memory_parts(work), memory_parts(offloaded)
    assert sum(part.bytes for part in on_device) == sum(part.bytes for part in moved)
    assert host_bytes(on_device) == 0
    assert host_bytes(moved) == 16 * work.shape.num_parameters  # 4 masters, 8 moments, 4 sums
    assert peak_bytes(moved)["update"] == peak_bytes(on_device)["update"] - 16 * work.shape.num_parameters


def test_with_adapters_only_they_have_masters_and_moments():
    work = workload(tiny_policy(dtype=torch.bfloat16), reference=True)
    size = adapter_parameters(work.shape, rank=4, targets=["q_proj", "down_proj"])
    lora = dataclasses.replace(work, trained=size)
    assert size == 2 * 4 * ((32 + 32) + (48 + 32))  # two layers; q 32 -> 32, down 48 -> 32
    assert part(lora, "Adam moments") == 8 * size
    assert part(lora, "weights") == 2 * (work.shape.num_parameters + size)
    assert "reference model" in names(work)
    assert "reference model" not in names(lora)  # it is the model without its adapters


@pytest.mark.parametrize("name", ["qwen2, biases, untied", "Phi3Config"])
def test_the_adapters_of_all_linear_layers_are_counted_from_the_shape(name):
    sizes, policy = shape(tiny_policy(name)), add_adapters(tiny_policy(name), rank=4)
    trained = sum(value.numel() for value in policy.model.parameters() if value.requires_grad)
    assert adapter_parameters(sizes, rank=4, targets=tuple(sizes.linears)) == trained


def test_the_cache_of_a_3b_model_by_hand():
    # 36 layers x (keys + values) x 2 heads x 128 x 2 bytes = 36,864 bytes per token; 256 rollouts of 1,280 tokens.
    work = workload(tiny_policy(), shape=KNOWN_MODELS["Qwen/Qwen2.5-3B"], dtype_bytes=2, rollouts=256, prefilled=32)
    work = dataclasses.replace(work, max_prompt_tokens=256, max_response_tokens=1024)
    assert part(work, "key/value cache") == 256 * 1280 * 36_864
    shared = dataclasses.replace(work, shared_prompts=True)
    assert part(shared, "key/value cache") == (256 * 1024 + 32 * 256) * 36_864


def test_a_critic_is_a_second_trained_model():
    plain = workload(tiny_policy(dtype=torch.bfloat16))
    extra = peak_bytes(memory_parts(dataclasses.replace(plain, critic=plain.shape)))
    more = extra["update"] - peak_bytes(memory_parts(plain))["update"]
    assert more == 20 * (plain.shape.num_parameters + plain.shape.hidden_size + 1)


def test_a_critic_that_starts_from_another_model_has_the_bytes_of_its_own_tensors():
    other = tiny_policy("llama, one key head per query head, untied")
    work = workload(tiny_policy(), critic=shape(other))
    assert shape(other).num_parameters != work.shape.num_parameters
    assert part(work, "critic's weights") == sum(value.nbytes for value in Critic(other).parameters())


def test_a_critic_on_a_policy_with_adapters_has_its_own_adapters_and_head_only():
    policy = add_adapters(tiny_policy("qwen3, untied"), rank=4, alpha=8, targets=("q_proj",), seed=0)
    base = shape(tiny_policy("qwen3, untied"))
    size = adapter_parameters(base, rank=4, targets=["q_proj"])
    work = workload(tiny_policy("qwen3, untied"), trained=size, critic=base, critic_adapters=size)
    held = [value for value in Critic(policy).parameters() if value.requires_grad]
    assert part(work, "critic's weights") == sum(value.nbytes for value in held)
    assert part(work, "critic's Adam moments") == 2 * part(work, "critic's weights")


def test_the_activations_are_those_of_the_larger_of_policy_and_critic():
    small, large = KNOWN_MODELS["Qwen/Qwen2.5-0.5B"], KNOWN_MODELS["Qwen/Qwen2.5-7B"]
    policy = workload(tiny_policy(), shape=small, dtype_bytes=2)
    with_large = dataclasses.replace(policy, critic=large)
    assert part(with_large, "microbatch activations") == 64 * activation_bytes(large, 2)
    with_small = dataclasses.replace(policy, shape=large, critic=small)
    assert part(with_small, "microbatch activations") == 64 * activation_bytes(large, 2)
    assert part(with_large, "weights") == part(policy, "weights")
