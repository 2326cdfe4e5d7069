"""The published runs at toy size: three steps of the real command, without data files and without a network.

The models are in a hub cache that is laid out by hand, as are the folders that other runs would have written.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_models import tiny_folder
from toy_runs import REPOSITORY, command

from ansatz.config import load_run
from ansatz.config.schema import Config
from ansatz.models.known_models import KNOWN_MODELS
from ansatz.track.jsonl import read_jsonl
from examples.judge_server import judge_server
from tools.families import SUPPORTED

RECIPES = sorted((REPOSITORY / "recipes").glob("*.yaml"))
COUNTDOWN = REPOSITORY / "recipes" / "qwen3b_countdown_grpo_48gib.yaml"
ONE_GPU = REPOSITORY / "recipes" / "qwen1_5b_gsm8k_grpo_24gib.yaml"
OVERLAY = REPOSITORY / "recipes" / "overlays" / "1x24gib.yaml"
CONFIGS = {family.model_type: family.config for family in SUPPORTED}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache that is the only source of models."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub_home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("HF_HUB_CACHE", "HF_ENDPOINT", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "hub_home" / "hub"


def put(hub: Path, name: str, architecture: str) -> None:
    """A model of the architecture under a hub name: refs/main with the commit, and snapshots/COMMIT."""
    folder = hub / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("a" * 40)
    tiny_folder(folder / "snapshots" / ("a" * 40), CONFIGS[architecture], letters=True, max_position_embeddings=1024)


def toy_run(tmp_path: Path, recipe: Path, *more: str | Path) -> tuple[Path, Config]:
    code, out, err = command("train", recipe, *more, "--model.toy", "true", "--out", tmp_path, "--threads", "1")
    assert code == 0, err
    run = tmp_path / f"{recipe.stem}_toy"
    config = load_run(run)
    assert config.model.toy
    assert f"{len(config.model.toy)} reduced keys" in out
    return run, config


def three_steps(run: Path) -> list[dict[str, Any]]:
    rows = read_jsonl(run / "rl" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(row["align/mean_exp_gap"] < 1.05 for row in rows)
    return rows


def architecture_of(run: Path) -> str:
    return json.loads((run / "model" / "config.json").read_text(encoding="utf-8"))["model_type"]


@pytest.mark.e2e
@pytest.mark.slow
def test_the_24_gb_countdown_run_takes_three_steps_at_toy_size(tmp_path: Path, hub: Path) -> None:
    put(hub, "Qwen/Qwen2.5-3B-Instruct", "qwen2")
    run, config = toy_run(tmp_path, COUNTDOWN, "--overlay", OVERLAY)
    assert config.train.optimizer["name"] == "adamw_offload"
    assert config.model.checkpointing
    assert all(row["perf/peak_memory_gb"] >= 0 for row in three_steps(run))
    assert architecture_of(run) == "qwen2"


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_published_run_takes_its_steps_at_toy_size(tmp_path: Path, hub: Path, recipe: Path) -> None:
    settings = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    if "reasoning_gym" in settings.get("rewards", {}):
        pytest.importorskip("reasoning_gym")
    if (settings.get("environment") or {}).get("name") == "verifiers":
        pytest.importorskip("verifiers")
    name, more = settings["model"]["path"], list[str]()
    if name is not None:
        put(hub, name, KNOWN_MODELS[name].architecture)
    if "teacher" in settings.get("rejection", {}):
        put(hub, "us/teacher", "qwen3")
        more = ["--rejection.teacher", "us/teacher", "--rollout.max_prompt_tokens", "512"]
    with judge_server() as url:
        if "judge" in settings.get("rewards", {}):
            more = ["--rewards.judge.url", url, "--rewards.judge.cache", str(tmp_path / "judge.sqlite")]
        run, config = toy_run(tmp_path, recipe, *more)
    if name is not None:
        assert architecture_of(run) == KNOWN_MODELS[name].architecture
    trained = {re.sub(r"_\d+$", "", path.parent.name) for path in run.glob("*/metrics.jsonl")}  # rounds have numbers
    assert trained - {"model"} == set(config.stage_names) - {"problems", "model"}
    if "rl" in config.stage_names:
        three_steps(run)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3"])
def test_a_model_that_is_only_in_the_cache_gives_the_toy_its_architecture(
    tmp_path: Path, hub: Path, architecture: str
) -> None:
    put(hub, "us/own", architecture)
    run, _ = toy_run(tmp_path, ONE_GPU, "--model.path", "us/own")
    three_steps(run)
    assert architecture_of(run) == architecture


@pytest.mark.slow
def test_the_recipe_for_a_model_of_your_own_trains_the_model_in_the_cache(tmp_path: Path, hub: Path) -> None:
    """Not at toy size: the weights are those of the cache, and the run names their commit."""
    put(hub, "Qwen/Qwen2.5-1.5B-Instruct", "qwen2")
    sizes = {
        "data.template": "boxed",
        "data.train": "{source: arithmetic, split: train, count: 40, seed: 1, max_level: 1}",
        "data.heldout": "{source: arithmetic, split: heldout, count: 8, seed: 2, max_level: 1}",
        "rollout.prompts_per_step": 2,
        "rollout.max_prompt_tokens": 100,
        "rollout.max_response_tokens": 20,
        "train.steps": 3,
        "evaluate.problems": 2,
        "evaluate.every": 0,
        "evaluate.max_response_tokens": 20,
    }
    options = [text for key, value in sizes.items() for text in (f"--{key}", str(value))]
    code, _, err = command("train", ONE_GPU, *options, "--out", tmp_path, "--threads", "1")
    assert code == 0, err
    three_steps(tmp_path / ONE_GPU.stem)
    assert load_run(tmp_path / ONE_GPU.stem).model.path == f"Qwen/Qwen2.5-1.5B-Instruct@{'a' * 40}"
