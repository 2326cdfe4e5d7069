"""Whole runs on a GPU: trained, killed, resumed and checked by the real commands."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from test_resume import assert_same_checkpoints
from tiny_models import tiny_folder
from toy_runs import command, kill_in, toy_recipe

from ansatz.track.jsonl import read_jsonl
from benchmarks.faults.fingerprint import untimed
from tools.family_runs import train

pytestmark = [pytest.mark.gpu, pytest.mark.e2e]

needs_bitsandbytes = pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed"
)
ADAPTERS = {"lora": {"rank": 4}}
MODELS: list[Any] = [
    pytest.param({}, id="float32"),
    pytest.param({"checkpointing": True}, id="checkpointing"),
    pytest.param(ADAPTERS, id="adapters"),
    pytest.param({**ADAPTERS, "quantize": "nf4"}, id="adapters on 4 bits", marks=needs_bitsandbytes),
]


@pytest.mark.parametrize("model", MODELS)
def test_a_run_trains_and_resumes_with_the_same_bits(tmp_path: Path, model: dict[str, Any]) -> None:
    start = tiny_folder(tmp_path / "model", "Qwen3Config")
    _, steps, same_bits = train(tmp_path, start, model=model, algorithm={"preset": "grpo", "kl_coef": 0.1})
    assert steps >= 2
    assert same_bits


def test_a_run_that_is_killed_ends_in_the_same_bits(tmp_path: Path) -> None:
    changes = {"model": {"dtype": "bfloat16"}, "train": {"steps": 12, "updates_per_step": 2}, "save": {"every": 3}}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    code, _, err = command("train", toy_recipe(tmp_path / "a", changes))
    assert code == 0, err
    whole, killed = (tmp_path / name / "runs" / "toy" for name in "ab")
    logged = kill_in(killed / "rl", after=4, arguments=["train", toy_recipe(tmp_path / "b", changes)])
    assert logged[-1] < 12
    code, _, err = command("train", "--resume", killed)
    assert code == 0, err
    assert_same_checkpoints(whole / "rl", killed / "rl")
    assert untimed(read_jsonl(whole / "rl" / "metrics.jsonl")) == untimed(read_jsonl(killed / "rl" / "metrics.jsonl"))


def test_every_row_of_ansatz_check_passes(tmp_path: Path) -> None:
    code, out, err = command("check", toy_recipe(tmp_path, {"algorithm": {"preset": "grpo"}}))
    assert code == 0, out + err


def test_the_doctor_names_the_card_and_finds_nothing_wrong(tmp_path: Path) -> None:
    code, out, err = command("doctor", "--folder", tmp_path / "runs")
    assert code == 0, out + err
    assert torch.cuda.get_device_name() in out
