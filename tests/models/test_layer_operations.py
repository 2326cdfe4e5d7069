"""The kernels of a layer in training on a CPU have the bits of torch's own operations, forward and backward."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from avx2 import load_for_avx2
from tiny_models import tiny_policy
from torch import Tensor, nn
from transformers.models.gemma.configuration_gemma import GemmaConfig
from transformers.models.gemma2.modeling_gemma2 import Gemma2MLP
from transformers.models.qwen3 import modeling_qwen3

from ansatz.models import layer_operations
from ansatz.models.packing import pack
from ansatz.models.threads import one_thread

if layer_operations.library() is None or torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
    pytest.skip("this machine has no compiler for the kernels, or another processor", allow_module_level=True)

KINDS = (torch.float32, torch.bfloat16)


@functools.cache
def avx2_library(folder: Path) -> ctypes.CDLL:
    return load_for_avx2(layer_operations.library.__wrapped__, folder)


@pytest.fixture(params=["native", "avx2"])
def _kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch):
    if request.param == "avx2":
        library = avx2_library(tmp_path_factory.getbasetemp())
        monkeypatch.setattr(layer_operations, "library", lambda: library)


def numbers(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 3
    values.view(-1)[::17] = 0.0
    values.view(-1)[5::31] *= 1e-4
    return values.to(dtype)


def bits(*values: Tensor) -> list[Tensor]:
    """The bits of numbers: 0 and -0 differ, and nan equals itself."""
    return [value.contiguous().view(torch.int32 if value.dtype == torch.float32 else torch.int16) for value in values]


def assert_same_bits(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for a, b in zip(bits(*found), bits(*expected), strict=True):
        assert torch.equal(a, b)


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("size", [8, 13, 32, 100, 256, 1000, 4096])
def test_a_norm_has_the_bits_of_torch(size: int, dtype: torch.dtype):
    x_RX, grad_RX = (numbers(33, size, dtype=dtype, seed=seed) for seed in (1, 2))
    weight_X = numbers(size, dtype=dtype, seed=3)
    out_RX, *saved = layer_operations._normalise(x_RX, weight_X, 1e-6)
    assert_same_bits(layer_operations.normalise(x_RX, weight_X, 1e-6), (out_RX, *saved))
    expected = layer_operations._normalise_backward(grad_RX, weight_X, *saved)
    assert_same_bits(layer_operations.normalise_backward(grad_RX, weight_X, *saved), expected)


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("dtype", KINDS)
def test_a_gate_has_the_bits_of_torch(dtype: torch.dtype):
    gate_X, up_X, grad_X = (numbers(2**17, dtype=dtype, seed=seed) for seed in range(3))
    assert layer_operations._has_even_shares(len(gate_X))
    gate_X[:4] = torch.tensor([-100.0, 100.0, -3e38, 3e38])
    leaves = gate_X.requires_grad_(), up_X.requires_grad_()
    out_X = nn.functional.silu(gate_X) * up_X
    assert_same_bits((layer_operations.gate(gate_X, up_X),), (out_X.detach(),))
    expected = torch.autograd.grad(out_X, leaves, grad_X)
    assert_same_bits(layer_operations.gate_backward(grad_X, gate_X, up_X), expected)


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("size", [2, 20, 64])
def test_a_rotation_has_the_bits_of_transformers(size: int, dtype: torch.dtype):
    x_BTHD, grad_BTHD = (numbers(2, 9, 3, size, dtype=dtype, seed=seed) for seed in (1, 2))
    cosine_BTD, sine_BTD = (numbers(2, 9, size, dtype=dtype, seed=seed) for seed in (3, 4))
    x_BTHD.requires_grad_()
    original = getattr(modeling_qwen3.apply_rotary_pos_emb, "original", modeling_qwen3.apply_rotary_pos_emb)
    out_BHTD, _ = original(x_BTHD.transpose(1, 2), x_BTHD.transpose(1, 2), cosine_BTD, sine_BTD)
    found_BTHD = layer_operations.rotate(x_BTHD, cosine_BTD, sine_BTD, back=False)
    assert_same_bits((found_BTHD,), (out_BHTD.detach().transpose(1, 2),))
    expected = torch.autograd.grad(out_BHTD, x_BTHD, grad_BTHD.transpose(1, 2))
    assert_same_bits((layer_operations.rotate(grad_BTHD, cosine_BTD, sine_BTD, back=True),), expected)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_bits_do_not_depend_on_the_threads(threads: int):
    x_RX, weight_X = numbers(37, 64, dtype=torch.bfloat16), numbers(64, dtype=torch.bfloat16)
    before = torch.get_num_threads()
    expected = layer_operations.normalise(x_RX, weight_X, 1e-6), layer_operations.gate(x_RX, x_RX)
    torch.set_num_threads(threads)
    try:
        assert_same_bits(layer_operations.normalise(x_RX, weight_X, 1e-6), expected[0])
        assert_same_bits((layer_operations.gate(x_RX, x_RX),), (expected[1],))
    finally:
        torch.set_num_threads(before)


def gradients_of_a_model(dtype: torch.dtype, use: Callable[[str], None]) -> dict[str, Tensor]:
    policy = tiny_policy()
    policy.model.to(dtype)
    for name in ("normalise", "normalise_backward", "rotate", "gate", "gate_backward"):
        use(name)
    index_T = torch.arange(64)
    hidden_TH = policy.packed_hidden(index_T % 20, index_T % 16, index_T // 16)
    (hidden_TH.float() * torch.linspace(-1, 2, hidden_TH.numel()).view(hidden_TH.shape)).sum().backward()
    return {name: value.grad for name, value in policy.model.named_parameters() if value.grad is not None}


@pytest.mark.parametrize("dtype", KINDS)
def test_gradients_of_a_model_have_the_same_bits_with_and_without_kernels(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
):
    called = set[str]()

    def count(name: str) -> None:
        kernel = getattr(layer_operations, name)
        monkeypatch.setattr(layer_operations, name, lambda *args, **more: (called.add(name), kernel(*args, **more))[1])

    with one_thread():
        found = gradients_of_a_model(dtype, count)
    assert called == {"normalise", "normalise_backward", "rotate", "gate", "gate_backward"}
    called.clear()
    monkeypatch.setattr(layer_operations, "can_take", lambda *tensors: False)
    with one_thread():
        expected = gradients_of_a_model(dtype, lambda name: None)
    assert called == set()
    assert found.keys() == expected.keys()
    assert_same_bits(tuple(found.values()), tuple(expected.values()))


def test_a_kernel_with_other_bits_is_not_used(monkeypatch: pytest.MonkeyPatch):
    kernel = layer_operations.gate
    monkeypatch.setattr(layer_operations, "gate", lambda gate_X, up_X: kernel(gate_X, up_X) * 1.0000001)
    assert not layer_operations._has_gate_kernel.__wrapped__(torch.float32)
    assert layer_operations._has_gate_kernel.__wrapped__(torch.bfloat16)  # which rounds the difference away
    monkeypatch.setattr(
        layer_operations, "normalise", lambda x, weight, _: layer_operations._normalise(x, weight, 2e-6)
    )
    assert not layer_operations._has_kernel.__wrapped__(torch.float32, 8)
    rotate = layer_operations.rotate
    monkeypatch.setattr(layer_operations, "rotate", lambda *args, **_: rotate(*args, back=False))
    original = modeling_qwen3.apply_rotary_pos_emb
    assert not layer_operations._has_rotation_kernel.__wrapped__(original, torch.float32, 8)


def test_without_a_compiler_torch_computes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CXX", os.devnull)
    assert layer_operations.library.__wrapped__() is None
    monkeypatch.setattr(layer_operations, "library", lambda: None)
    assert not layer_operations._has_kernel.__wrapped__(torch.float32, 8)


def test_a_compilation_that_failed_in_a_thread_is_not_repeated_in_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    compiler, tried = tmp_path / "c++", tmp_path / "tried"
    compiler.write_text(f"#!/bin/sh\n[ $1 = --version ] && exit\necho >> '{tried}'\nexit 1\n", encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: layer_operations.library.__wrapped__(), range(4)))
    assert found == [None] * 4
    assert tried.read_text(encoding="utf-8") == "\n"  # it was tried once


def test_gates_are_left_to_torch_where_its_threads_end_within_a_register(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    sizes = (2**16, 2**16 + 128, 2**16 + 64, 2**15, 2**18 + 1)
    assert [layer_operations._has_even_shares(size) for size in sizes] == [True, True, False, False, False]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert [layer_operations._has_even_shares(size) for size in (64, 640, 65)] == [True, True, False]


def test_rows_shorter_than_a_register_are_left_to_torch():
    assert not layer_operations._has_kernel(torch.float32, 7)
    assert layer_operations._has_kernel(torch.float32, 8)


def test_a_gate_of_another_kind_is_not_replaced():
    config = GemmaConfig(hidden_size=8, intermediate_size=16, hidden_act="gelu_pytorch_tanh")
    config.hidden_activation = "gelu_pytorch_tanh"
    module = Gemma2MLP(config)
    layer_operations.install(module)
    assert not isinstance(module.forward, layer_operations._GatedForward)


def test_values_in_cells_and_their_gradients_are_those_of_an_index():
    segment_T, prompt_id_T = torch.tensor([0] * 5 + [1] * 4), torch.tensor([0, 0, 0, -1, -1, 0, 0, 0, -1])
    position_T = torch.tensor([*range(5), *range(4)])
    packed = pack(position_T, segment_T, prompt_id_T)
    value_1HTD = numbers(1, 2, packed.num_tokens, 3, dtype=torch.float32).requires_grad_()
    rows_NHLD = packed.padded.to_rows(value_1HTD)
    cells_NHD = torch.zeros(2 * 16, 2, 3)
    cells_NHD = cells_NHD.index_put((segment_T * 16 + position_T,), value_1HTD[0].transpose(0, 1)[packed.source_T])
    assert torch.equal(rows_NHLD.transpose(1, 2).flatten(0, 1), cells_NHD)
    grad_NHLD = numbers(*rows_NHLD.shape, dtype=torch.float32, seed=1)
    found, expected = (
        torch.autograd.grad(each, value_1HTD, grad)[0]
        for each, grad in ((rows_NHLD, grad_NHLD), (cells_NHD, grad_NHLD.transpose(1, 2).flatten(0, 1)))
    )
    torch.testing.assert_close(found, expected)

    cell_C = (segment_T * 16 + position_T)[packed.computed_T]
    by_head_XD = cells_NHD.detach().view(2, 16, 2, 3).transpose(1, 2).flatten(0, 2).requires_grad_()
    flat_1THD = packed.padded.to_flat(by_head_XD, heads=2)
    assert torch.equal(flat_1THD[0, :6], cells_NHD[cell_C])
    assert not flat_1THD[0, 6:].any()
    grad_1THD = numbers(*flat_1THD.shape, dtype=torch.float32, seed=2)
    (found,) = torch.autograd.grad(flat_1THD, by_head_XD, grad_1THD)
    expected = torch.zeros(32, 2, 3).index_put((cell_C,), grad_1THD[0, :6])
    assert torch.equal(found.view(2, 2, 16, 3).transpose(1, 2).flatten(0, 1), expected)
