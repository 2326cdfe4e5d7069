"""What a sampler finds in a `WeightSource`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_models import tiny_policy

from ansatz.models import lora
from ansatz.models.save import save_model
from ansatz.models.weights import LiveWeights


@pytest.mark.parametrize("name", ["qwen3, grouped heads, tied", "qwen3, untied"])
def test_live_weights_have_the_names_of_the_saved_folder(name: str, tmp_path: Path) -> None:
    policy = tiny_policy(name)
    save_model(policy, tmp_path, state=policy.model.state_dict(), dtype=torch.float32)
    stored = load_file(tmp_path / "model.safetensors")
    tensors = LiveWeights(policy=policy, version=3).tensors()
    assert tensors.keys() == stored.keys()
    assert all(torch.equal(tensors[name], value) for name, value in stored.items())


def test_live_weights_are_the_models_own_tensors_and_follow_an_update() -> None:
    policy = tiny_policy()
    source = LiveWeights(policy=policy, version=0)
    held = source.tensors()
    with torch.no_grad():
        policy.head.weight += 1.0
    assert held["model.embed_tokens.weight"].data_ptr() == policy.head.weight.data_ptr()
    assert all(value is dict(policy.model.named_parameters())[name] for name, value in held.items())


def test_live_weights_of_a_model_with_adapters_are_merged_under_the_names_of_the_base() -> None:
    plain = tiny_policy()
    before = {name: value.detach().clone() for name, value in plain.model.named_parameters()}
    policy = lora.add_adapters(plain, rank=2, alpha=6.0, targets=("q_proj",))
    adapter = policy.model.base_model.layers[0].self_attn.q_proj
    a, b = adapter.lora_A["default"].weight, adapter.lora_B["default"].weight
    with torch.no_grad():
        b.fill_(0.5)  # B starts as zeros
    tensors = LiveWeights(policy=policy, version=1).tensors()
    assert tensors.keys() == before.keys()
    name = "model.layers.0.self_attn.q_proj.weight"
    # W + (alpha / rank) B A, with every entry of B equal to 0.5: 6 / 2 * 0.5 times the column sums of A in each row.
    expected = before[name] + 1.5 * a.detach().sum(0)
    assert torch.allclose(tensors[name], expected, atol=1e-6)
    assert not torch.allclose(tensors[name], before[name], atol=1e-3)
    other = "model.layers.0.self_attn.k_proj.weight"
    assert torch.equal(tensors[other], before[other])
