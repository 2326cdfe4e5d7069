"""The published runs at toy size: three steps of the real command, without data files and without a network."""

import json

import pytest
import yaml
from toy_runs import REPOSITORY, command

from ansatz.config import load_run
from ansatz.models.known_models import KNOWN_MODELS
from ansatz.track.jsonl import read_jsonl

RECIPES = [
    path for path in sorted((REPOSITORY / "recipes").glob("*.yaml")) if "Hardware:" in path.read_text(encoding="utf-8")
]
COUNTDOWN = REPOSITORY / "recipes" / "qwen3b_countdown_grpo_48gib.yaml"
OVERLAY = REPOSITORY / "recipes" / "overlays" / "gpu_24gib.yaml"


def three_steps(tmp_path, recipe, *more):
    code, out, err = command("train", recipe, *more, "--model.toy", "true", "--out", tmp_path, "--threads", "1")
    assert code == 0, err
    run = tmp_path / f"{recipe.stem}_toy"
    rows = read_jsonl(run / "rl" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(row["align/mean_exp_gap"] < 1.05 for row in rows)
    config = load_run(run)
    assert config.model.toy
    assert all(line in out for line in config.model.toy)
    return run, config, rows


@pytest.mark.e2e
def test_the_24_gb_countdown_run_takes_three_steps_at_toy_size(tmp_path):
    run, config, rows = three_steps(tmp_path, COUNTDOWN, "--overlay", OVERLAY)
    assert config.train.optimizer["name"] == "adamw_offload"
    assert config.model.checkpointing
    assert all(row["perf/peak_memory_gb"] >= 0 for row in rows)
    assert '"model_type": "qwen2"' in (run / "model" / "config.json").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_published_run_takes_three_steps_at_toy_size(tmp_path, recipe):
    path = yaml.safe_load(recipe.read_text(encoding="utf-8"))["model"]["path"]
    run, _, _ = three_steps(tmp_path, recipe)
    built = json.loads((run / "model" / "config.json").read_text(encoding="utf-8"))
    assert built["model_type"] == KNOWN_MODELS[path].architecture
