"""Adapters of peft that are trained further: what is read of their folders, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import some_sequences, tiny_folder
from torch import Tensor
from transformers import AutoModelForCausalLM

from ansatz.errors import ConfigError, ModelError
from ansatz.hub import model_folder
from ansatz.models import lora
from ansatz.models.load import load_policy

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def written_by_peft(base: Path, folder: Path, **settings: Any) -> Tensor:
    """Write an adapter with peft, as if it were trained, and return its logits."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(base)
    adapted: Any = peft.get_peft_model(
        model, peft.LoraConfig(**{"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "down_proj"], **settings})
    )
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data += 0.1 * torch.randn_like(parameter)
    adapted.save_pretrained(folder)
    return logits(adapted.eval())


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        return model(torch.tensor(some_sequences(20))).logits


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("base"))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"use_rslora": True},
        {"target_modules": r".*layers\.0\..*(q|v)_proj", "lora_dropout": 0.3},
        {"layers_to_transform": [1], "init_lora_weights": "gaussian"},
        {"target_modules": "all-linear", "r": 1, "lora_alpha": 0.5},
    ],
    ids=lambda settings: " ".join(settings) or "plain",
)
def test_an_adapter_of_peft_is_continued_and_peft_loads_what_is_written(
    base: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    expected = written_by_peft(base, tmp_path / "given", **settings)
    policy = lora.add_adapters(load_policy(base), "Some/Model@0123abc", path=str(tmp_path / "given"))
    assert torch.allclose(logits(policy.model), expected, rtol=1e-4, atol=1e-5)
    assert not lora.are_new(policy)
    lora.save_merged(policy, tmp_path / "out", dtype=torch.float32)
    written = json.loads((tmp_path / "out" / "adapter" / CONFIG).read_text())
    assert (written["base_model_name_or_path"], written["revision"]) == ("Some/Model", "0123abc")
    model = AutoModelForCausalLM.from_pretrained(base)
    loaded = peft.PeftModel.from_pretrained(model, str(tmp_path / "out" / "adapter"))
    assert torch.allclose(logits(loaded), expected, rtol=1e-4, atol=1e-5)
    assert torch.allclose(
        logits(AutoModelForCausalLM.from_pretrained(tmp_path / "out")), expected, rtol=1e-3, atol=1e-4
    )


def changed_config(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / CONFIG).read_text())
        (folder / CONFIG).write_text(json.dumps({**config, **changes}))

    return change


def changed_weights(change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Callable[[Path], None]:
    return lambda folder: save_file(change(load_file(folder / WEIGHTS)), folder / WEIGHTS)


FIRST = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda folder: (folder / CONFIG).unlink(), "has no adapter_config.json. Give a folder"),
    "pickled weights": (lambda folder: (folder / WEIGHTS).rename(folder / "adapter_model.bin"), f"has no {WEIGHTS}"),
    "cut weights": (lambda folder: (folder / WEIGHTS).write_bytes(b"\x08"), "cannot be read"),
    "config of a list": (lambda folder: (folder / CONFIG).write_text("[]"), "it is not a JSON object"),
    "deep config": (lambda folder: (folder / CONFIG).write_text("[" * 10**5), f"{CONFIG} cannot be read"),
    "another kind": (changed_config(peft_type="IA3"), "peft_type = 'IA3', expected LORA"),
    "rank of a text": (changed_config(r="3"), "r = '3', expected a number from 1 to 1024"),
    "alpha 0": (changed_config(lora_alpha=0), "lora_alpha = 0, expected a positive number"),
    "two ranks": (changed_config(rank_pattern={"q_proj": 8}), r"rank_pattern = \{'q_proj': 8\}, which Ansatz cannot"),
    "dora": (changed_config(use_dora=True), "use_dora = True, which Ansatz cannot train further"),
    "whole layers": (changed_config(modules_to_save=["lm_head"]), "modules_to_save = "),
    "biases": (changed_config(bias="all"), "bias = 'all'"),
    "a changed base": (changed_config(init_lora_weights="pissa"), "init_lora_weights = 'pissa'"),
    "a key of the future": (changed_config(spin=2), "spin = 2, which Ansatz cannot train further"),
    "another rank": (changed_config(r=4), r"has the shape \[3, 32\], expected \[4, 32\]"),
    "half a layer": (
        changed_weights(lambda each: {k: v for k, v in each.items() if k != FIRST}),
        "is missing, expected",
    ),
    "an unknown layer": (
        changed_weights(lambda each: {**each, "x.lora_A.weight": torch.ones(3, 2)}),
        "no linear layer",
    ),
    "no tensors": (changed_weights(lambda each: {}), "it has no tensors"),
    "nan": (changed_weights(lambda each: {**each, FIRST: each[FIRST] * float("nan")}), "nan or infinite"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_adapter_that_cannot_be_continued_is_refused_in_a_sentence(base: Path, tmp_path: Path, case: str) -> None:
    change, message = REFUSED[case]
    written_by_peft(base, tmp_path / "given")
    change(tmp_path / "given")
    with pytest.raises(ModelError, match=f"model.lora.path = .*{message}"):
        lora.add_adapters(load_policy(base), path=str(tmp_path / "given"))


def test_settings_that_are_not_those_of_the_adapter_are_refused(base: Path, tmp_path: Path) -> None:
    given = str(tmp_path / "given")
    written_by_peft(base, tmp_path / "given")
    assert lora.read_adapter(given, settings={"rank": 3, "alpha": 5.0}).rank == 3
    with pytest.raises(ConfigError, match=r"model\.lora\.rank = 4, but the adapter in .* has 3\. Leave rank out"):
        lora.read_adapter(given, settings={"rank": 4})
    lora.add_adapters(load_policy(base), path=given, targets=("down_proj", "q_proj"))
    with pytest.raises(ConfigError, match=r"targets = q_proj, but the adapter .* has down_proj, q_proj\. Leave"):
        lora.add_adapters(load_policy(base), path=given, targets=("q_proj",))


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("Qwen/Qwen2.5-1.5B", "--model.path Qwen/Qwen2.5-1.5B --model.lora.path "),
        ("x; rm -rf ~", "--model.path 'x; rm -rf ~' --model.lora.path "),
        ("a\nb", "--model.path BASE --model.lora.path "),
        (7, "--model.path BASE --model.lora.path "),
    ],
)
def test_the_base_that_an_adapter_names_is_not_loaded_but_shown(
    base: Path, tmp_path: Path, name: Any, typed: str
) -> None:
    written_by_peft(base, tmp_path / "given")
    changed_config(base_model_name_or_path=name)(tmp_path / "given")
    with pytest.raises(ModelError) as caught:
        model_folder(tmp_path / "given")
    assert str(caught.value).endswith(f"{typed}{tmp_path / 'given'}")
    assert "\n" not in str(caught.value)
