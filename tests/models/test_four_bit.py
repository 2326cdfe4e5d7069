"""Weights of 4 bits: their values by the definition, what copies share, and what is refused."""

from __future__ import annotations

import copy
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import packed, some_prompts, some_sequences, tiny_folder
from torch import Tensor, nn

from ansatz.errors import ConfigError, MissingExtraError, ModelError
from ansatz.models import four_bit
from ansatz.models.four_bit import Linear4bit, check_four_bit, float_weights, num_four_bit, stored_bytes
from ansatz.models.load import Policy, cast, head_logits, load_policy
from ansatz.models.lora import add_adapters, merge_adapters
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import NativeSampler
from tools.families import LATENT

FAMILIES = ["LlamaConfig", "Qwen2Config", "Qwen3Config", "Gemma2Config", "Phi3Config", "DeepseekV3Config"]

NF4 = [  # the 16 levels of arXiv:2305.14314, appendix E
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
    *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
    *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
]


def linear(outputs: int, inputs: int, *, bias: bool = False) -> tuple[nn.Linear, Linear4bit]:
    """A layer, and the same with weights of 4 bits."""
    torch.manual_seed(outputs)
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.normal_(layer.weight)
    return layer, Linear4bit(layer, four_bit._store(layer.weight.detach(), path="x"))


def by_definition(weight: Tensor) -> Tensor:
    """Each block of 64 is divided by its largest absolute value and rounded to the nearest level, in float64. The
    largest values are exact: their double quantisation is bounded by the tolerance of the test."""
    blocks = nn.functional.pad(weight.flatten().double(), (0, -weight.numel() % 64)).view(-1, 64)
    scale = blocks.abs().amax(1, keepdim=True)
    levels = torch.tensor(NF4, dtype=torch.float64)
    nearest = (blocks / scale)[..., None].sub(levels).abs().argmin(-1)
    return (levels[nearest] * scale).flatten()[: weight.numel()].view(weight.shape)


# Blocks that end with a row, that reach into the next one, and numbers of weights that blocks do not divide. For an odd
# number, bitsandbytes compiles a kernel at its first use on a machine.
SHAPES = [(48, 64), (3, 128), (32, 48), (33, 96), (8, 112), (1, 40), pytest.param(7, 9, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_values_are_the_levels_of_nf4_times_the_largest_of_their_block(outputs: int, inputs: int) -> None:
    layer, small = linear(outputs, inputs)
    expected = by_definition(layer.weight.detach())
    torch.testing.assert_close(small.weight.double(), expected, rtol=0.02, atol=0.02)
    assert (small.weight == 0).equal(expected == 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_outputs_and_gradients_are_those_of_a_linear_layer_with_these_values(dtype: torch.dtype) -> None:
    layer, small = linear(48, 32, bias=True)
    with torch.no_grad():
        layer.weight.copy_(small.weight)
    layer, small = layer.to(dtype), small.to(dtype)
    x, y = (torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(0)).to(dtype) for _ in range(2))
    x.requires_grad_(), y.requires_grad_()
    small(x).square().sum().backward()
    layer(y).square().sum().backward()
    for value, expected in ((small(x), layer(y)), (x.grad, y.grad)):
        assert value is not None
        assert expected is not None
        assert (value - expected).norm() < (1e-5 if dtype == torch.float32 else 0.02) * expected.norm()


def test_the_backward_pass_keeps_no_values_of_the_weights() -> None:
    _, small = linear(64, 64)
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda value: kept.append(value) or value, lambda value: value):
        small(torch.randn(3, 64, requires_grad=True)).sum()
    assert sum(value.numel() for value in kept) < 64 * 64


def test_the_bytes_of_a_layer_are_those_of_its_tensors() -> None:
    for outputs, inputs in [(48, 64), (33, 96), (7, 9), (300, 512)]:
        stored = linear(outputs, inputs)[1].stored
        state = stored.state
        tensors = [stored.packed, state.absmax, state.state2.absmax, state.offset]
        assert sum(value.nbytes for value in tensors) == stored_bytes(outputs * inputs)
    first, second = (linear(8, 64)[1].stored.state for _ in range(2))
    assert first.code is second.code
    assert first.state2.code is second.state2.code
    assert first.code.nbytes + first.state2.code.nbytes == four_bit.TABLE_BYTES
    assert stored_bytes(2**20) * 8 / 2**20 == pytest.approx(4 + 8 / 64 + 32 / (64 * 256), rel=1e-4)


def with_values_of_four_bits(policy: Policy, plain: Policy) -> Policy:
    """`plain` in float32 with the values that the policy's weights of 4 bits have."""
    parameters = dict(plain.model.named_parameters())
    for name, value in float_weights(policy.model):
        parameters[name].data.copy_(value)
    return plain


def logits(policy: Policy) -> Tensor:
    hidden = policy.packed_hidden(*packed(some_sequences(9, 5, 14)))
    return head_logits(hidden, policy.head.weight, softcap=policy.softcap)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_computes_what_its_dequantised_weights_compute(tmp_path: Path, family: str) -> None:
    settings = {**LATENT, "first_k_dense_replace": 2} if family == "DeepseekV3Config" else {}
    folder = tiny_folder(tmp_path, family, **settings)
    policy = load_policy(folder, four_bits=True)
    plain = load_policy(folder)
    assert policy.num_parameters == plain.num_parameters
    assert num_four_bit(policy.model) == policy.num_parameters - sum(p.numel() for p in policy.model.parameters()) > 0
    with torch.no_grad():
        before = logits(plain)
        expected = logits(with_values_of_four_bits(policy, plain))
        torch.testing.assert_close(logits(policy), expected, rtol=1e-4, atol=1e-4)
        assert not torch.allclose(logits(policy), before, atol=1e-2)


def test_adapters_get_the_gradients_of_the_dequantised_model_and_merge_into_its_values(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path, "Qwen2Config", tie_word_embeddings=False)
    policy = load_policy(folder, four_bits=True)
    plain = add_adapters(with_values_of_four_bits(policy, load_policy(folder)), rank=4)
    policy = add_adapters(policy, rank=4)
    gradients: list[dict[str, Tensor]] = []
    for each in (policy, plain):
        trained = {name: value for name, value in each.model.named_parameters() if value.requires_grad}
        generator = torch.Generator().manual_seed(5)
        for value in trained.values():
            value.data += 0.1 * torch.randn(value.shape, generator=generator)
        values = torch.autograd.grad(logits(each).square().mean(), list(trained.values()))
        gradients.append(dict(zip(trained, values, strict=True)))
    assert gradients[0].keys() == gradients[1].keys()
    for name, value in gradients[0].items():
        torch.testing.assert_close(value, gradients[1][name], rtol=1e-3, atol=1e-4)

    adapters = {name: value for name, value in policy.model.named_parameters() if value.requires_grad}
    merged = merge_adapters(policy, dict(policy.base.named_parameters()), adapters)
    whole = load_policy(folder)
    assert merged.keys() == dict(whole.model.named_parameters()).keys()
    for name, parameter in whole.model.named_parameters():
        parameter.data.copy_(merged[name])
    with torch.no_grad():
        torch.testing.assert_close(logits(whole), logits(policy), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_sampler_reports_the_log_probs_of_training(tmp_path: Path, dtype: torch.dtype) -> None:
    policy = add_adapters(load_policy(tiny_folder(tmp_path, "Qwen3Config"), four_bits=True))
    cast(policy, dtype)
    rollouts = NativeSampler(policy, max_concurrent=4).generate(
        some_prompts(3), Sampling(num_samples=2, max_response_tokens=12)
    )
    for rollout in rollouts:
        text = [*rollout.prompt.token_ids, *rollout.token_ids]
        with torch.no_grad():
            hidden = policy.packed_hidden(*packed([text]))
        logp_TV = head_logits(hidden, policy.head.weight).log_softmax(-1)
        first = len(rollout.prompt.token_ids)
        expected = [float(logp_TV[at - 1, text[at]]) for at in range(first, len(text))]
        assert rollout.behavior_logps == pytest.approx(expected, abs=1e-4 if dtype == torch.float32 else 0.1)


def test_copies_share_the_weights(tmp_path: Path) -> None:
    policy = add_adapters(load_policy(tiny_folder(tmp_path, "Qwen3Config"), four_bits=True))
    copies = [copy.deepcopy(policy.model), policy.base]
    for other in copies:
        theirs = [module.stored for module in other.modules() if isinstance(module, Linear4bit)]
        mine = [module.stored for module in policy.model.modules() if isinstance(module, Linear4bit)]
        assert len(mine) == len(theirs) == 14
        assert all(a is b for a, b in zip(mine, theirs, strict=True))


def test_a_model_merged_from_a_base_of_4_bits_is_refused(tmp_path: Path) -> None:
    policy = load_policy(tiny_folder(tmp_path / "start", "Qwen3Config"), four_bits=True)
    plain = with_values_of_four_bits(policy, load_policy(tmp_path / "start"))
    generator = torch.Generator().manual_seed(0)
    for name, _ in float_weights(policy.model):
        weight = plain.model.get_parameter(name)
        low_rank = torch.randn(len(weight), 2, generator=generator) @ torch.randn(
            2, weight.shape[1], generator=generator
        )
        weight.data += 0.02 * low_rank * weight.norm() / low_rank.norm()
    plain.model.save_pretrained(tmp_path / "merged")
    plain.tokenizer.save_pretrained(tmp_path / "merged")
    with pytest.raises(ModelError, match="are those of a 4-bit base with merged adapters, and rounding them again"):
        load_policy(tmp_path / "merged", four_bits=True)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("GPT2Config", {"n_layer": 2, "n_head": 4, "n_embd": 32, "n_positions": 128}),
        ("GptOssConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    ],
)
def test_a_model_whose_weights_are_not_in_linear_layers_is_refused(
    tmp_path: Path, family: str, settings: dict[str, Any]
) -> None:
    folder = tiny_folder(tmp_path, family, **settings)
    with pytest.raises(ModelError, match=r"only \d+% of the weights of .* Leave model.quantize out.$"):
        load_policy(folder, four_bits=True)


def test_without_adapters_or_bitsandbytes_the_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"weights of 4 bits cannot be trained. Set model.lora as well"):
        check_four_bit(has_adapters=False)
    check_four_bit(has_adapters=True)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(MissingExtraError, match=r"-m pip install .*bitsandbytes"):
        check_four_bit(has_adapters=True)


def test_a_device_that_bitsandbytes_does_not_know_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*weights: Tensor, **settings: Any) -> Any:
        raise NotImplementedError("Could not run 'bitsandbytes::quantize_4bit' with arguments from this backend.")

    monkeypatch.setattr(four_bit._package().functional, "quantize_4bit", unknown)
    with pytest.raises(ModelError, match=r"bitsandbytes cannot quantise model\.path = 'x' on the device 'cpu'"):
        linear(8, 64)


def test_rounding_normal_weights_changes_them_by_more_than_the_least_error() -> None:
    layer, small = linear(256, 256)
    weight = layer.weight.detach()
    error = float((small.weight - weight).norm() / weight.norm())
    assert error == pytest.approx(0.092, abs=0.003)
    assert error > four_bit.LEAST_ERROR
    assert math.isclose(float(weight.std()), 1.0, abs_tol=0.01)
