"""The native sampler gives a response the same bits in every batch, also where oneDNN's own products do not."""

import pytest
import torch
from test_native import by_key, generate
from tiny_models import some_prompts, tiny_folder
from torch import nn

from ansatz.models.load import cast, load_policy
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import equal_rows
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
def test_log_probs_are_equal_in_every_batch(tmp_path, sizes, dtype):
    """On a processor with AMX, 33 of 640 responses in bfloat16 differ without blocks of rows."""
    policy = load_policy(tiny_folder(tmp_path, **sizes))
    cast(policy, dtype)
    prompts, sampling = some_prompts(80), Sampling(num_samples=8, max_response_tokens=24, seed=7, step=4)
    whole = by_key(generate(policy, prompts, sampling))
    parts = [generate(policy, prompts[start : start + 8], sampling) for start in range(0, len(prompts), 8)]
    alone = by_key([rollout for part in parts for rollout in part])
    assert alone.keys() == whole.keys()
    differing = [key for key, each in alone.items() if each.behavior_logps != whole[key].behavior_logps]
    assert differing == []


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
