"""The precision of the weights in a model folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ansatz.models.save import export_dtype, stored_dtype


def folder_of(folder: Path, config: dict[str, str], **weights: torch.Tensor) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    if weights:
        save_file(weights, folder / "model.safetensors")
    return folder


def test_the_precision_of_a_folder_is_that_of_most_of_its_weights_whatever_its_config_says(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path,
        {"dtype": "float32"},
        codes=torch.zeros(100, dtype=torch.uint8),
        layer=torch.zeros(8, 8, dtype=torch.bfloat16),
        norm=torch.zeros(8),
    )
    assert stored_dtype(folder) == torch.bfloat16


def test_other_files_than_the_models_do_not_count(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {}, layer=torch.zeros(4, dtype=torch.float16))
    save_file({"moments": torch.zeros(100)}, folder / "optimizer.safetensors")
    assert stored_dtype(folder) == torch.float16


@pytest.mark.parametrize(
    ("config", "expected"),
    [({"torch_dtype": "bfloat16"}, torch.bfloat16), ({"dtype": "float16"}, torch.float16), ({}, torch.float32)],
)
def test_without_safetensors_the_config_decides(tmp_path: Path, config: dict[str, str], expected: torch.dtype) -> None:
    assert stored_dtype(folder_of(tmp_path, config)) == expected


def test_a_named_precision_needs_no_folder(tmp_path: Path) -> None:
    assert export_dtype("float32", tmp_path / "nowhere") == torch.float32
    assert export_dtype("bfloat16", tmp_path / "nowhere") == torch.bfloat16
    assert export_dtype("auto", folder_of(tmp_path, {}, layer=torch.zeros(4, dtype=torch.bfloat16))) == torch.bfloat16


def test_the_precision_of_a_model_of_the_hub_is_that_of_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, commit = tmp_path / "models--us--tiny", "c" * 40
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    (repository / "snapshots" / commit).mkdir(parents=True)
    folder_of(repository / "snapshots" / commit, {}, layer=torch.zeros(4, dtype=torch.bfloat16))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert export_dtype("auto", "us/tiny") == torch.bfloat16
    assert export_dtype("auto", f"us/tiny@{commit}") == torch.bfloat16
