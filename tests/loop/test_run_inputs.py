"""The problems and the built model of a run: a resumed run notices when they have changed."""

import os
import signal
import subprocess

import pytest
from toy_runs import toy_config

from ansatz.errors import CheckpointError, RunInterrupted
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.run_folder import resume_config
from ansatz.loop.stages.problems import ProblemsStage

SHORT = {"data": {"sft": None}, "train": {"steps": 1}, "evaluate": {"every": 0}}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return run_pipeline(toy_config(tmp_path_factory.mktemp("run"), SHORT))


@pytest.mark.parametrize("name", ["problems/train.jsonl", "problems/heldout.jsonl", "model/model.safetensors"])
def test_a_changed_input_is_named(run, name):
    file = run / name
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=rf"{name} is not as this run wrote it"):
        run_pipeline(resume_config(run, {"train.steps": "2"}), resume=True)
    file.write_bytes(whole)


def test_a_signal_while_the_inputs_are_checked_ends_the_run_before_it_has_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(ProblemsStage, "input_checks", lambda stage, sources: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(RunInterrupted, match=r"stopped by SIGTERM.*The run had not begun; run the command again"):
        run_pipeline(toy_config(tmp_path, SHORT))
    assert not (tmp_path / "runs").exists()


def test_sha256sum_itself_verifies_the_inputs(run):
    lines = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=run, capture_output=True, text=True, check=True)
    assert "problems/train.jsonl: OK" in lines.stdout
    assert "model/tokenizer.json: OK" in lines.stdout
