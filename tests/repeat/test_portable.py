"""Other instructions give other bits, except in portable arithmetic; a card names the cause."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from toy_runs import REPOSITORY, toy_recipe

from ansatz.errors import ConfigError
from ansatz.models.arithmetic import VARIABLES, arithmetic_class
from ansatz.repeat import portable
from benchmarks.faults.processes import COMMAND, environment

on_avx2 = pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="needs AVX2 to switch off")
VARIED = {"rewards": {"math_answer": {"weight": 0}, "repetition": {"ngram": 1}}, "train": {"lr": 1e-3}}


def in_process(*arguments: str | Path, **variables: str) -> tuple[int, str]:
    """The exit code and output of the command in an interpreter of its own, in which torch obeys the variables."""
    clean = {name: value for name, value in environment().items() if name not in VARIABLES}
    command = [sys.executable, *COMMAND, *map(str, arguments)]
    done = subprocess.run(command, cwd=REPOSITORY, env={**clean, **variables}, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@on_avx2
@pytest.mark.slow
def test_a_run_without_avx2_differs_and_the_card_names_the_cause(tmp_path: Path):
    code, out = in_process("train", toy_recipe(tmp_path, VARIED))
    assert code == 0, out
    run = tmp_path / "runs" / "toy"
    code, out = in_process("repeat", run, "--out", tmp_path / "low", ATEN_CPU_CAPABILITY="default")
    assert code == 1, out
    assert "weights: different from the start of sft on" in out
    assert "cause: arithmetic class: instructions AVX" in out
    assert "DEFAULT here" in out


@on_avx2
@pytest.mark.slow
def test_a_portable_run_has_the_same_bits_where_other_instructions_were_asked_for(tmp_path: Path):
    code, out = in_process("train", toy_recipe(tmp_path, VARIED), "--model.dtype", "portable")
    assert code == 0, out
    run = tmp_path / "runs" / "toy"
    low = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}
    code, out = in_process("repeat", run, "--out", tmp_path / "low", **low)
    assert (code, "same bits to the end (8 steps)" in out) == (0, True), out
    begin = json.loads((run / "card.json").read_text())["stages"]["sft"][0]["arithmetic"]
    assert begin["variables"] == portable.VARIABLES
    assert (begin["dtype"], begin["instructions"]) == ("float32", "AVX2")


def test_portable_arithmetic_is_refused_where_torch_was_loaded_without_it(monkeypatch: pytest.MonkeyPatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="torch was loaded with all instructions"):
        arithmetic_class(torch.device("cpu"), "portable")


def test_another_kind_of_processor_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(portable.platform, "machine", lambda: "aarch64")
    with pytest.raises(ConfigError, match="this is aarch64"):
        portable.restrict_instructions("portable")


def test_the_command_is_started_anew_if_torch_is_loaded(monkeypatch: pytest.MonkeyPatch):
    started = list[object]()
    monkeypatch.setattr(os, "execv", lambda *arguments: started.append(arguments))
    monkeypatch.setattr(portable.platform, "machine", lambda: "x86_64")
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    portable.restrict_instructions("float32")
    assert (started, "MKL_CBWR" in os.environ) == ([], False)
    try:
        portable.restrict_instructions("portable")
        assert started == [(sys.executable, sys.orig_argv)]
        portable.restrict_instructions("portable")
        assert len(started) == 1
    finally:
        for name in VARIABLES:
            os.environ.pop(name, None)
