"""Our rewards in the real TRL and verifiers, each in its own environment; `make test-trainers` installs them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from toy_runs import REPOSITORY

from ansatz.models.tiny import build_tiny_model

SCRIPTS = REPOSITORY / "tests" / "trainers"


def output_of(environment: str, script: str, *arguments: Path) -> Any:
    """The last line that the script prints in that environment, as JSON."""
    python = REPOSITORY / environment / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{environment} is not installed; make test-trainers")
    variables = {"PYTHONPATH": str(REPOSITORY), "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [python, SCRIPTS / script, *arguments], env={**os.environ, **variables}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_two_steps_of_trl_train_on_our_reward(tmp_path):
    texts = [f"Question: {number} + 1?\nAnswer:\n{number + 1}" for number in range(50)]
    build_tiny_model(tmp_path / "model", texts=texts, vocab_size=300, hidden_size=32, num_layers=2, num_heads=2)
    steps = output_of(".venv-trl", "trl_steps.py", tmp_path / "model", tmp_path / "out")
    # a random model never writes a box, so every response gets `wrong`, which is -1 there
    assert [(row["step"], row["reward"], row["rewards/ansatz_reward/mean"]) for row in steps] == [
        (1, -1, -1),
        (2, -1, -1),
    ]


@pytest.mark.slow
def test_a_rubric_of_verifiers_scores_with_its_weight():
    assert output_of(".venv-verifiers", "verifiers_scores.py") == [0.5, 0.0]
