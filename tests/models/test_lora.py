from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import ARCHITECTURES, packed, some_sequences, tiny_folder, tiny_policy
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from ansatz.errors import ConfigError, MissingExtraError
from ansatz.models import lora
from ansatz.models.load import Policy, head_logits, load_policy
from ansatz.models.lora import add_adapters, bind_adapters
from ansatz.models.threads import parallel_map
from tools.families import GPT2_SIZES


def logits(policy: Policy) -> Tensor:
    with torch.no_grad():
        return head_logits(policy.packed_hidden(*packed(some_sequences(9, 5, 14))), policy.head.weight)


def below(policy: Policy) -> Policy:
    return Policy(
        **{name: getattr(policy, name) for name in ("tokenizer", "max_context", "end_ids", "path")}, model=policy.base
    )


def trained(policy: Policy) -> dict[str, Tensor]:
    return {name: value for name, value in policy.model.named_parameters() if value.requires_grad}


def moved(policy: Policy) -> Policy:
    """With changed adapters, so that B is no longer zero."""
    generator = torch.Generator().manual_seed(5)
    for value in trained(policy).values():
        value.data += 0.1 * torch.randn(value.shape, generator=generator)
    return policy


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_new_adapters_do_not_change_the_model_and_trained_ones_not_the_base(name: str) -> None:
    expected = logits(tiny_policy(name))
    policy = add_adapters(tiny_policy(name))
    assert torch.equal(logits(policy), expected)
    assert torch.equal(logits(below(moved(policy))), expected)
    assert not torch.allclose(logits(policy), expected, atol=1e-3)


def test_the_base_shares_the_weights_and_only_adapters_are_trained() -> None:
    policy = add_adapters(tiny_policy(), rank=3, targets=("q_proj", "down_proj"))
    ids = {id(parameter) for parameter in policy.model.parameters()}
    assert all(id(parameter) in ids and not parameter.requires_grad for parameter in policy.base.parameters())
    sizes = (32 + 4 * 8) + (48 + 32)  # in + out of q_proj and down_proj: hidden 32, 4 heads of 8, intermediate 48
    assert sum(value.numel() for value in trained(policy).values()) == 2 * 3 * sizes
    assert {name.split(".")[4] for name in trained(policy)} == {"q_proj", "down_proj"}


def test_by_default_all_linear_layers_except_the_output_embedding_have_adapters() -> None:
    names = {
        name.rpartition(".lora_")[0].rpartition(".")[2] for name in trained(add_adapters(tiny_policy("qwen3, untied")))
    }
    assert names == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def test_base_and_policy_can_be_computed_in_parallel_threads() -> None:
    policy = moved(add_adapters(tiny_policy()))
    expected = [logits(policy), logits(below(policy))]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        in_parallel = list(parallel_map(logits, [policy, below(policy)] * 8, policy.parallel_microbatches))
    finally:
        torch.set_num_threads(before)
    for index, result in enumerate(in_parallel):
        assert torch.allclose(result, expected[index % 2], atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "qwen3, grouped heads, tied",
        "qwen2, biases, untied",
        "qwen3 mixture of experts",
        "deepseek v3, latents, experts in groups",
    ],
)
def test_merged_weights_give_the_same_logits(name: str) -> None:
    policy = moved(add_adapters(tiny_policy(name), rank=4, alpha=6.0))
    plain = tiny_policy(name)
    linears = {name for name, module in plain.model.named_modules() if isinstance(module, nn.Linear)} - {"lm_head"}
    assert {name.partition(".lora_")[0] for name in trained(policy)} == linears
    weights = lora.merge_adapters(policy, dict(policy.base.named_parameters()), trained(policy))
    assert weights.keys() == dict(plain.model.named_parameters()).keys()
    for key, parameter in plain.model.named_parameters():
        parameter.data.copy_(weights[key])
    assert torch.allclose(logits(plain), logits(policy), rtol=1e-4, atol=1e-4)


def test_saved_adapters_are_read_by_us_and_by_peft(tmp_path: Path) -> None:
    import peft

    policy = moved(add_adapters(load_policy(tiny_folder(tmp_path / "model")), rank=4, alpha=6.0))
    lora.save_adapters(policy, tmp_path / "adapter", weights=trained(policy))
    adapters = lora.read_adapters(tmp_path / "adapter")
    assert adapters.keys() == trained(policy).keys()
    assert all(torch.equal(adapters[name], value) for name, value in trained(policy).items())

    peft_model = peft.PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(tmp_path / "model"), tmp_path / "adapter"
    )
    tokens = torch.tensor(some_sequences(20))
    with torch.no_grad():
        assert torch.allclose(peft_model(tokens).logits, policy.model(tokens).logits, rtol=1e-4, atol=1e-4)


def test_the_seed_of_the_adapters_does_not_affect_other_random_numbers() -> None:
    torch.manual_seed(1)
    expected = torch.rand(())
    torch.manual_seed(1)
    first, same_seed, other_seed = (trained(add_adapters(tiny_policy(), seed=seed)) for seed in (0, 0, 1))
    assert torch.rand(()) == expected
    assert all(torch.equal(value, same_seed[name]) for name, value in first.items())
    assert not all(torch.equal(value, other_seed[name]) for name, value in first.items())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"targets": ["q_porj"]}, "targets: the model has no linear layer 'q_porj'. Did you mean 'q_proj'?"),
        ({"targets": ["lm_head"]}, "the model has no linear layer 'lm_head'."),
        ({"rank": 0}, "model.lora: rank = 0: input should be greater than 0."),
        ({"dropout": 0.1}, "model.lora has no setting 'dropout'."),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        bind_adapters(settings, seed=0)(tiny_policy("qwen3, untied"))
    assert message in str(caught.value)


@pytest.mark.parametrize("targets", [(), ("c_attn",)])
def test_a_model_without_linear_layers_is_refused(tmp_path: Path, targets: tuple[str, ...]) -> None:
    policy = load_policy(tiny_folder(tmp_path, "GPT2Config", **GPT2_SIZES))
    with pytest.raises(ConfigError, match=r"has no linear layers that take adapters .* Leave model\.lora out"):
        add_adapters(policy, targets=targets)


def test_a_missing_peft_is_reported_only_if_adapters_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    assert bind_adapters(None, seed=0) is None
    with pytest.raises(MissingExtraError, match=r"-m pip install .*peft"):
        bind_adapters({}, seed=0)
