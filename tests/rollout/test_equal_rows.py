"""The native sampler gives a response the same bits in every batch, also where oneDNN's own products do not."""

import pytest
import torch
from test_native import by_key, generate
from tiny_models import some_prompts, tiny_folder
from torch import nn

from ansatz.models.load import cast, load_policy
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import cpu_kernels, equal_rows, fused
from ansatz.rollout.native.equal_rows import in_blocks

SIZES = (1, 31, 48, 64, 96, 200)
LONG_SUMS = [
    pytest.param({"hidden_size": 128, "intermediate_size": 512}, id="in the MLP"),
    pytest.param({"hidden_size": 512, "intermediate_size": 128, "vocab_size": 512}, id="elsewhere"),
]


def test_a_row_of_a_product_in_blocks_does_not_depend_on_the_others():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(128, 512, generator=generator).mul(0.05).bfloat16()
    bias = torch.randn(128, generator=generator).bfloat16()

    def product(rows: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(rows, weight, bias)

    for _ in range(40):
        rows = torch.randn(512, 512, generator=generator).bfloat16()
        whole = in_blocks(product, 128, rows)
        assert whole.float().allclose(nn.functional.linear(rows.float(), weight.float(), bias.float()), atol=0.05)
        for size in SIZES:
            assert in_blocks(product, 128, rows[:size]).equal(whole[:size])
        assert in_blocks(product, 128, rows.view(4, 128, 512)).equal(whole.view(4, 128, 128))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", LONG_SUMS)
@pytest.mark.parametrize("is_large", [False, True])
def test_log_probs_are_equal_in_every_batch(tmp_path, monkeypatch, sizes, dtype, is_large):
    """On a processor with AMX, 33 of 640 responses in bfloat16 differ without blocks of rows. is_large: the prompts are
    computed by the kernels of the decode step."""
    if is_large:
        monkeypatch.setattr(fused, "SMALL_MODEL", 0)
    policy = load_policy(tiny_folder(tmp_path, **sizes))
    cast(policy, dtype)
    prompts, sampling = some_prompts(80), Sampling(num_samples=8, max_response_tokens=24, seed=7, step=4)
    whole = by_key(generate(policy, prompts, sampling))
    parts = [generate(policy, prompts[start : start + 8], sampling) for start in range(0, len(prompts), 8)]
    alone = by_key([rollout for part in parts for rollout in part])
    assert alone.keys() == whole.keys()
    single = Sampling(num_samples=1, max_response_tokens=24, seed=7, step=4)
    alone |= by_key([generate(policy, prompts[number : number + 1], single)[0] for number in (0, 40, 79)])
    differing = [key for key, each in alone.items() if each.behavior_logps != whole[key].behavior_logps]
    assert differing == []


@pytest.mark.skipif(cpu_kernels.library() is None, reason="there is no compiler")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("columns", "terms"), [(192, 576), (576, 1536), (65, 386), (3, 2)])
def test_a_row_of_a_packed_product_does_not_depend_on_rows_threads_and_places(columns, terms, dtype):
    generator = torch.Generator().manual_seed(columns)
    weight, bias = (torch.randn(*shape, generator=generator).to(dtype) for shape in ((columns, terms), (columns,)))
    rows = torch.randn(300, terms, generator=generator).to(dtype)
    expected = rows.double() @ weight.double().T + bias.double()
    before = torch.get_num_threads()
    found = dict[int, torch.Tensor]()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            panels = cpu_kernels.pack(weight)
            found[threads] = cpu_kernels.multiply(rows, panels, bias, columns)
            for size in (1, 2, 5, 6, 31, 33, 97, 128):
                for first in (0, 7, 300 - size):
                    part = cpu_kernels.multiply(rows[first : first + size], panels, bias, columns)
                    assert part.equal(found[threads][first : first + size]), (size, first)
    finally:
        torch.set_num_threads(before)
    assert found[1].equal(found[2])
    of_torch = (nn.functional.linear(rows, weight, bias).double() - expected).abs().mean()
    assert (found[1].double() - expected).abs().mean() <= 1.2 * of_torch + 1e-12
    assert cpu_kernels.multiply(rows.view(3, 100, terms), panels, None, columns).shape == (3, 100, columns)


def test_weights_are_packed_within_the_block_only_and_those_of_4_bits_not_at_all(tmp_path, monkeypatch):
    policy = load_policy(tiny_folder(tmp_path))
    layer = policy.model.base_model.layers[0].mlp.up_proj
    row = torch.randn(1, layer.in_features)
    with equal_rows.equal_rows(policy):
        assert (equal_rows.panels_of(layer) is not None) == equal_rows.packs(policy)
        packed = layer(row)
    assert equal_rows.panels_of(layer) is None
    assert "forward" not in vars(layer)
    assert packed.allclose(layer(row), atol=1e-5)
    layer.__class__ = type("Other", (nn.Linear,), {})  # its forward may do anything
    monkeypatch.setattr(equal_rows, "_depend_on_rows", lambda: True)
    with equal_rows.equal_rows(policy):
        assert equal_rows.panels_of(layer) is None
        assert "forward" in vars(layer)


def test_blocks_are_used_where_products_depend_on_the_number_of_rows(tmp_path, monkeypatch):
    """Here, a product adds up otherwise for 64 rows. MKL's do, with MKL_ENABLE_INSTRUCTIONS=AVX2."""
    policy = load_policy(tiny_folder(tmp_path))
    linear = nn.functional.linear
    monkeypatch.setattr(nn.functional, "linear", lambda x, w: linear(x, w) + (1e-6 if len(x) == 64 else 0))
    equal_rows._depend_on_rows.cache_clear()
    try:
        assert equal_rows.blocks_of(policy) == (96, 1)
    finally:
        monkeypatch.undo()
        equal_rows._depend_on_rows.cache_clear()
