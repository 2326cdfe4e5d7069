"""The kernels of a decode step: what they compute, that a row does not depend on its batch, and what happens where
those for a CPU cannot be compiled.

Those in Triton run on a GPU, or without one in Triton's interpreter: `make test-kernels`.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
import torch
from avx2 import load_for_avx2
from tiny_models import some_prompts, tiny_policy
from torch import Tensor, nn

from ansatz.models.compiled import _load
from ansatz.models.load import Policy, cast
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import NativeSampler, cpu_kernels, equal_rows, fused, step_choice
from ansatz.rollout.native.forward import FastDecodeStep
from ansatz.rollout.native.fused import CompiledDecodeStep, _join
from ansatz.rollout.sampling import draw_noise, draw_seeds
from tests.rollout import cpu_calls
from tools.families import END_ID

if cpu_kernels.library() is None:
    pytest.skip("this machine has no compiler for the kernels", allow_module_level=True)

KINDS = (torch.float32, torch.bfloat16)
ROWS, GROUP, HEADS, SPAN, COLUMNS, PROMPTS = 7, 3, 2, 40, 21, 3


def near(dtype: torch.dtype) -> dict[str, float]:
    return {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.02, "atol": 0.02}


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    numbers = torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)), device="cpu")
    return numbers.to(torch.get_default_device(), dtype)


def side_by_side(kernels: ModuleType, wide: Tensor, sizes: list[int]) -> list[Tensor]:
    """Parts of the rows of a tensor, as one product computes them on a GPU; copies for a CPU."""
    return [part.contiguous() if kernels is cpu_calls else part for part in wide.split(sizes, -1)]


@pytest.fixture(scope="module")
def avx2_library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels as they are compiled on a processor without AVX-512."""
    cpus = Path("/proc/cpuinfo")
    if not cpus.is_file() or " avx512f " not in cpus.read_text(encoding="utf-8"):
        pytest.skip("the kernels of this processor are not those for AVX-512")
    return load_for_avx2(cpu_kernels.library.__wrapped__, tmp_path_factory.mktemp("avx2"))


@contextmanager
def kernels_of(request: pytest.FixtureRequest, in_triton: str) -> Iterator[ModuleType]:
    """The kernels of a CPU, those for AVX2, or a module of those in Triton, with the device of new tensors."""
    if request.param == "compiled":
        yield cpu_calls
    elif request.param == "avx2":
        library = request.getfixturevalue("avx2_library")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cpu_kernels, "library", lambda: library)
            yield cpu_calls
    else:
        with torch.device(triton_device()):
            yield importlib.import_module(in_triton)


@pytest.fixture(params=["compiled", "avx2", "triton"])
def kernels(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """A module with the kernels of a decode step."""
    with kernels_of(request, "ansatz.rollout.native.kernels") as module:
        yield module


def triton_device() -> str:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed; make test-kernels")
    if torch.cuda.is_available():
        return "cuda"
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("there is no GPU, and Triton's interpreter is not on; make test-kernels")
    return "cpu"


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("size", [64, 37])
def test_norm_and_gate_are_those_of_torch(kernels: ModuleType, size: int, dtype: torch.dtype) -> None:
    hidden, delta, weight = (random(*shape, dtype=dtype, seed=3) for shape in ((ROWS, size), (ROWS, size), (size,)))
    total = hidden + delta
    alone = kernels.add_and_normalise(hidden.clone(), None, weight, 1e-6)
    torch.testing.assert_close(alone, nn.functional.rms_norm(hidden, (size,), eps=1e-6) * weight, **near(dtype))
    normed = kernels.add_and_normalise(hidden, delta, weight, 1e-6)
    assert hidden.equal(total)
    torch.testing.assert_close(normed, nn.functional.rms_norm(total, (size,), eps=1e-6) * weight, **near(dtype))
    expected = nn.functional.silu(hidden * 30) * delta
    parts = side_by_side(kernels, torch.cat((hidden * 30, delta), -1), [size, size])
    torch.testing.assert_close(kernels.gate(*parts), expected, **near(dtype))


def test_a_gate_keeps_nan_and_bears_the_largest_numbers() -> None:
    numbers = torch.tensor([[float("nan"), 1e30, -1e30, 0.0, 88.5, -88.5, float("inf")]])
    out = cpu_calls.gate(numbers.clone(), torch.ones_like(numbers))
    assert out[0, 0].isnan()
    assert out[0, 1:].tolist() == pytest.approx([1e30, 0.0, 0.0, 88.5, 0.0, float("inf")], rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("has_norms", [False, True])
def test_queries_and_keys_are_rotated_and_stored(kernels: ModuleType, has_norms: bool, dtype: torch.dtype) -> None:
    head = 24
    sizes = [HEADS * GROUP * head, HEADS * head, HEADS * head]
    parts = side_by_side(kernels, random(ROWS, sum(sizes), dtype=dtype), sizes)
    query, key, value = (part.unflatten(-1, (-1, head)) for part in parts)
    angle = random(50, head // 2, dtype=torch.float32)
    cosine, sine = (torch.cat((f(angle), f(angle)), -1).to(dtype) for f in (torch.cos, torch.sin))
    signed = torch.cat((-sine[:, : head // 2], sine[:, head // 2 :]), -1)
    norms = (random(head, dtype=dtype), random(head, dtype=dtype, seed=9)) if has_norms else None
    absolute, place = torch.arange(ROWS) * 7, torch.arange(ROWS) * 5
    cache = torch.zeros(ROWS, HEADS, SPAN, head, dtype=dtype), torch.zeros(ROWS, HEADS, SPAN, head, dtype=dtype)

    def rotated(vectors: Tensor, norm: Tensor | None) -> Tensor:
        if norm is not None:
            vectors = nn.functional.rms_norm(vectors, (head,), eps=1e-6) * norm
        low, high = vectors.chunk(2, -1)
        return vectors * cosine[absolute, None] + torch.cat((-high, low), -1) * sine[absolute, None]

    expected = rotated(query, norms and norms[0]), rotated(key, norms and norms[1])
    kernels.rotate_and_write(query, key, value, (cosine, signed), norms, 1e-6, absolute, place, cache)
    torch.testing.assert_close(query, expected[0], **near(dtype))
    rows = torch.arange(ROWS)
    torch.testing.assert_close(cache[0][rows, :, place], expected[1], **near(dtype))
    assert cache[1][rows, :, place].equal(value)
    assert int((cache[0] != 0).any(-1).sum()) == ROWS * HEADS


def batch_of(head: int, dtype: torch.dtype) -> dict[str, Tensor | tuple[Tensor, Tensor]]:
    """Rows with and without a shared prompt; the last one only rounds the batch up, and its prompt is gone."""

    def pair(*shape: int) -> tuple[Tensor, Tensor]:
        return random(*shape, dtype=dtype, seed=1), random(*shape, dtype=dtype, seed=2)

    return {
        "query_BQD": random(ROWS, HEADS * GROUP, head, dtype=dtype),
        "cache": pair(ROWS, HEADS, SPAN, head),
        "prompts": pair(PROMPTS, HEADS, COLUMNS, head),
        "place_B": torch.tensor([0, 3, 15, 16, 33, 39, 8]),
        "prompt_B": torch.tensor([0, 1, 2, -1, 1, 0, -1]),
        "shared_B": torch.tensor([21, 16, 3, 0, 17, 1, 900]),
    }


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("head", [16, 24, 32, 64, 128])
def test_attention_sees_the_shared_prompt_and_the_own_positions(
    kernels: ModuleType, head: int, dtype: torch.dtype
) -> None:
    if kernels is not cpu_calls and dtype == torch.bfloat16 and not torch.cuda.is_available():
        pytest.skip("Triton's interpreter multiplies the bits of bfloat16 as if they were integers")
    batch = batch_of(head, dtype)
    (query, _) = side_by_side(kernels, batch["query_BQD"].flatten(1).repeat(1, 2), [HEADS * GROUP * head] * 2)
    batch["query_BQD"] = query.unflatten(-1, (-1, head))
    out = kernels.attend(**batch, scale=0.3)
    for row in range(ROWS - 1):
        shared, own = int(batch["shared_B"][row]), int(batch["place_B"][row]) + 1
        key, value = (
            torch.cat((batch["prompts"][i][batch["prompt_B"][row], :, :shared], batch["cache"][i][row, :, :own]), 1)
            for i in range(2)
        )
        query = batch["query_BQD"][row].unflatten(0, (HEADS, GROUP)).float()
        weight = (0.3 * query @ key.float().transpose(1, 2)).softmax(-1)
        torch.testing.assert_close(out[row].float(), (weight @ value.float()).flatten(0, 1), **near(dtype))
    assert out.isfinite().all()


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("head", [24, 64])
def test_a_row_has_the_same_bits_alone_and_with_another_number_of_threads(head: int, dtype: torch.dtype) -> None:
    batch = batch_of(head, dtype)
    together = cpu_calls.attend(**batch, scale=0.3)
    torch.set_num_threads(1)
    assert cpu_calls.attend(**batch, scale=0.3).equal(together)
    for row in range(ROWS):
        lone = {name: batch[name][row : row + 1] for name in ("query_BQD", "place_B", "prompt_B", "shared_B")}
        cache = tuple(each[row : row + 1] for each in batch["cache"])
        assert cpu_calls.attend(**lone, cache=cache, prompts=batch["prompts"], scale=0.3).equal(together[row : row + 1])


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("name", ["qwen3, grouped heads, tied", "qwen2, biases, untied"])
@pytest.mark.parametrize(("is_large", "num_samples"), [(False, 3), (True, 3), (True, 1)])
def test_the_compiled_step_samples_what_the_plain_one_does(
    monkeypatch: pytest.MonkeyPatch, name: str, dtype: torch.dtype, is_large: bool, num_samples: int
) -> None:
    """is_large: the step also computes the prompts, those of groups and those of single rows."""
    if is_large:
        monkeypatch.setattr(fused, "SMALL_MODEL", 0)
    policy = dataclasses.replace(tiny_policy(name, dtype=dtype, device="cpu"), end_ids=(END_ID, 5, 9))
    rollouts = []
    for step in (CompiledDecodeStep(policy), FastDecodeStep(policy)):
        sampler = NativeSampler(policy, max_concurrent=30)
        sampler._step = step
        rollouts.append(
            sampler.generate(
                some_prompts(40), Sampling(num_samples=num_samples, max_response_tokens=60, seed=7, step=4)
            )
        )
    same = [pair for pair in zip(*rollouts, strict=True) if pair[0].token_ids == pair[1].token_ids]
    assert len(same) > (0.98 if dtype == torch.float32 else 0.4) * 40 * num_samples
    for compiled, fast in same:
        gap = 1e-4 if dtype == torch.float32 else 0.3
        assert compiled.behavior_logps == pytest.approx(fast.behavior_logps, abs=gap)


@pytest.mark.parametrize("dtype", KINDS)
def test_a_response_has_the_same_bits_however_threads_share_the_rows(dtype: torch.dtype) -> None:
    policy = dataclasses.replace(tiny_policy(dtype=dtype, device="cpu"), end_ids=(END_ID, 5, 9))
    sampling = Sampling(num_samples=3, max_response_tokens=40, seed=7, step=4)
    rollouts = []
    for threads, max_concurrent, is_small in [
        (1, 120, True),
        (2, 120, True),
        (3, 120, True),
        (2, 66, True),
        (2, 120, False),
    ]:
        torch.set_num_threads(threads)
        sampler = NativeSampler(policy, max_concurrent=max_concurrent)
        assert isinstance(sampler._step, CompiledDecodeStep)
        assert sampler._step._is_small
        sampler._step._is_small = is_small  # False: all threads share each operation
        rollouts.append(sampler.generate(some_prompts(40), sampling))
    assert all(each == rollouts[0] for each in rollouts[1:])


def multiplied_by_torch(monkeypatch: pytest.MonkeyPatch) -> Policy:
    """A policy in bfloat16 as on a CPU with AMX, where no weights are packed."""
    monkeypatch.setattr(equal_rows, "_has_amx", lambda: True)
    policy = tiny_policy(device="cpu")
    cast(policy, torch.bfloat16)
    return policy


def test_a_step_whose_products_fail_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = multiplied_by_torch(monkeypatch)
    sampler = NativeSampler(policy, max_concurrent=100)
    refuse = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)(lambda *_: 1)
    table = type(cpu_kernels.find_products(policy.dtype))(*cpu_kernels.find_products(policy.dtype))
    table[2] = ctypes.cast(refuse, ctypes.c_void_p).value
    monkeypatch.setattr(cpu_kernels, "find_products", lambda dtype: table)
    with pytest.raises(RuntimeError, match="did not multiply"):
        sampler.generate(some_prompts(40), Sampling(num_samples=2, max_response_tokens=4))


def test_models_with_llamas_layout_use_the_kernels_unless_a_layer_has_a_window_or_another_shape() -> None:
    assert isinstance(step_choice.choose_decode_step(tiny_policy()), CompiledDecodeStep)
    assert not isinstance(step_choice.choose_decode_step(tiny_policy("mistral, sliding window")), CompiledDecodeStep)
    policy = tiny_policy()
    mlp = policy.model.base_model.layers[1].mlp
    for name in ("gate_proj", "up_proj"):
        setattr(mlp, name, nn.Linear(mlp.gate_proj.in_features, 24, bias=False))
    mlp.down_proj = nn.Linear(24, mlp.down_proj.out_features, bias=False)
    assert isinstance(step_choice.choose_decode_step(policy), FastDecodeStep)


def test_without_products_of_torch_for_c_the_plain_step_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_kernels, "_IN_TORCH", (*cpu_kernels._IN_TORCH, "of_another_version"))
    monkeypatch.setattr(cpu_kernels, "find_products", cpu_kernels.find_products.__wrapped__)
    policy = multiplied_by_torch(monkeypatch)
    assert isinstance(step_choice.choose_decode_step(policy), FastDecodeStep)
    cast(policy, torch.float32)
    assert isinstance(step_choice.choose_decode_step(policy), CompiledDecodeStep)


def test_without_a_compiler_or_with_one_that_fails_the_plain_step_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library = cpu_kernels.library.__wrapped__
    for compiler in (str(tmp_path / "missing"), "false"):
        monkeypatch.setenv("CXX", compiler)
        assert library() is None
    monkeypatch.setattr(cpu_kernels, "library", library)
    assert isinstance(step_choice.choose_decode_step(tiny_policy(device="cpu")), FastDecodeStep)


def test_a_compiled_file_is_kept_and_a_folder_of_others_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "ansatz" / "kernels"
    assert cpu_kernels.library.__wrapped__() is not None
    (made,) = folder.iterdir()
    before = made.stat().st_mtime_ns
    _load.cache_clear()  # as in another process
    assert cpu_kernels.library.__wrapped__() is not None
    assert [path.stat().st_mtime_ns for path in folder.iterdir()] == [before]
    folder.chmod(0o777)
    assert cpu_kernels.library.__wrapped__() is None


def test_parameters_become_neighbours_without_a_change_of_their_values() -> None:
    parts = [nn.Parameter(random(rows, 32, dtype=torch.bfloat16, seed=rows)) for rows in (8, 4, 4)]
    before = torch.cat([part.detach() for part in parts])
    assert _join(parts).equal(before)
    places = [part.data_ptr() for part in parts]
    with torch.no_grad():
        parts[1].mul_(2.0)
    joined = _join(parts)
    assert joined[8:12].equal(2 * before[8:12])
    assert [part.data_ptr() for part in parts] == places
    assert joined.data_ptr() == places[0]
    (joined[0].sum() + parts[0].sum()).backward()
    assert parts[0].grad.equal(torch.ones_like(parts[0]))
    parts[2].data = parts[2].data.clone()  # as a cast does
    assert _join(parts).equal(torch.cat([part.detach() for part in parts]))
    assert _join([parts[0], nn.Parameter(random(3, 32, dtype=torch.bfloat16))]) is None  # 192 bytes


@pytest.fixture(params=["compiled", "avx2", "triton"])
def chooser(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """A module that chooses tokens."""
    with kernels_of(request, "ansatz.rollout.gumbel_kernels") as module:
        yield module


def test_the_noise_of_a_kernel_has_the_bits_of_torch(chooser: ModuleType) -> None:
    keys = [0, -1, 2**62 + 3, -(2**63), 987654321]
    with torch.device("cpu"):
        seed_B22, token_BC = draw_seeds(torch.tensor(keys), torch.arange(5) * 1000), torch.arange(1000).expand(5, -1)
        expected_BC = draw_noise(seed_B22, token_BC)
    noise_BC = torch.empty(5, 1000, dtype=torch.float64)
    if chooser is cpu_calls:
        places = [ctypes.c_void_p(each.data_ptr()) for each in (seed_B22, noise_BC)]
        sizes = [ctypes.c_int64(size) for size in noise_BC.shape]
        cpu_kernels.library().noise_float32(*places, *sizes, ctypes.c_int(1))
    else:
        store_noise = importlib.import_module("tests.rollout.noise_kernel").store_noise
        store_noise[(5, 1000)](seed_B22.to(noise_BC.device), noise_BC, 1000, enable_fp_fusion=False)
    assert noise_BC.cpu().equal(expected_BC)


@pytest.mark.parametrize(
    ("num_tokens", "scale"), [(1, 1.0), (3, 0.0), (300, 8.0), (2048, 1.0), (5000, 0.0), (300, 90.0)]
)
def test_a_kernel_chooses_the_largest_noisy_logit(chooser: ModuleType, num_tokens: int, scale: float) -> None:
    rows = 40
    logits_BV = random(rows, num_tokens, dtype=torch.float32) * scale
    logits_BV[:, 1::5] = -torch.inf
    seed_B22 = draw_seeds(torch.full((rows,), num_tokens), torch.arange(rows))
    winner_B1, log_total_B1 = chooser.find_winners(logits_BV, seed_B22)
    noisy_BV = logits_BV.double() + draw_noise(seed_B22, torch.arange(num_tokens)[None])
    assert winner_B1[:, 0].equal(noisy_BV.argmax(-1))
    torch.testing.assert_close(log_total_B1[:, 0], logits_BV.logsumexp(-1), rtol=1e-5, atol=1e-5)


def test_a_logit_that_is_no_number_shows_in_the_sum(chooser: ModuleType) -> None:
    logits_BV = random(3, 300, dtype=torch.float32)
    logits_BV[1, 7] = torch.nan
    winner_B1, log_total_B1 = chooser.find_winners(logits_BV, draw_seeds(torch.arange(3), torch.arange(3)))
    assert log_total_B1[:, 0].isnan().tolist() == [False, True, False]
    assert ((winner_B1 >= 0) & (winner_B1 < 300)).all()
