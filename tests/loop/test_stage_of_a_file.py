"""A stage in a user's file is added to a run by naming the file: it edits no other one.

`make test-slow` also runs the whole examination of `ansatz check` on its recipe.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from toy_runs import command, kill_in, toy_config, toy_recipe

from ansatz.config import load_recipe
from ansatz.config.load import check
from ansatz.errors import ConfigError
from ansatz.track.jsonl import read_jsonl
from benchmarks.faults.fingerprint import untimed

EXAMPLE = Path(__file__).parents[2] / "examples" / "best_response.py"
STAGE = f"{EXAMPLE}:BestResponse"
CHANGES = {
    "stages": ["sft", STAGE],
    "best_response": {"steps": 8, "problems": 8, "samples_per_prompt": 4, "batch_size": 4},
    "save": {"every": 3, "tensorboard": False},
}


@pytest.mark.e2e
def test_it_trains_resumes_after_a_kill_and_is_in_explain_and_report(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    code, out, err = command("explain", toy_recipe(tmp_path / "a", CHANGES))
    assert code == 0, err
    assert "Stage best_response:\nloss = - sum over response tokens" in out
    assert "the best of 4 to each of 8 problems of data.train" in out
    code, out, err = command("train", tmp_path / "a" / "toy.yaml")
    assert code == 0, err
    whole, killed = (tmp_path / name / "runs" / "toy" for name in "ab")
    steps = kill_in(killed / "best_response", after=5, arguments=["train", toy_recipe(tmp_path / "b", CHANGES)])
    assert 5 <= len(steps) < 9
    sampled = (killed / "best_response" / "best.jsonl").read_bytes()
    code, out, err = command("train", "--resume", killed)
    assert code == 0, err

    rows = [untimed(read_jsonl(run / "best_response" / "metrics.jsonl")) for run in (whole, killed)]
    assert rows[0] == rows[1]
    assert [row["step"] for row in rows[0]] == list(range(9))
    assert 0 <= rows[0][0]["best_response/reward"] <= 1
    assert (whole / "best_response" / "best.jsonl").read_bytes() == sampled
    models = [run / "best_response" / "checkpoints" / "step-000008" / "model.safetensors" for run in (whole, killed)]
    assert models[0].read_bytes() == models[1].read_bytes()
    assert models[0].read_bytes() != (whole / "sft" / "checkpoints" / "step-000004" / "model.safetensors").read_bytes()
    summary = json.loads((whole / "summary.json").read_text())
    assert [row["stage"] for row in summary["evaluations"]] == ["model", "sft", "best_response"]
    code, out, err = command("report", whole)
    assert code == 0, err
    assert "best_response" in (whole / "report.html").read_text()


@pytest.mark.e2e
@pytest.mark.slow
def test_a_recipe_with_it_passes_the_whole_examination(tmp_path: Path) -> None:
    code, out, err = command("check", toy_recipe(tmp_path, CHANGES), "--prompts", "2")
    assert code == 0, out + err


def test_an_entry_and_a_toy_run_change_its_section(tmp_path: Path) -> None:
    entry = {"stage": STAGE, "best_response": {"lr": 0.5, "problems": 99}}
    recipe = toy_recipe(tmp_path, {**CHANGES, "stages": ["sft", entry]})
    config = load_recipe(recipe, overrides={"model.toy": "true"})
    assert config.stage_names[-1] == "best_response"
    assert (config.best_response.steps, config.best_response.problems) == (3, 8)
    assert config.stages[1] == {"stage": STAGE, "best_response": {"lr": 0.5, "problems": 8}}
    assert check(config.model_dump()) == config


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"stages": ["nowhere.py:Stage"]}, "stage 'nowhere.py:Stage': 'nowhere.py' does not exist"),
        ({"stages": [f"{EXAMPLE}:Best"]}, "has no 'Best'."),
        (
            {"stages": [f"{EXAMPLE}:sample_best"]},
            "is not a stage: expected a subclass of ansatz.loop.stages.stage.Stage",
        ),
        ({"best_response": {"step": 3}}, "best_response has no key 'step'. Did you mean 'steps'?"),
        ({"best_response": {"steps": 0}}, "best_response.steps = 0: it should be greater than 0."),
    ],
    ids=str,
)
def test_what_is_wrong_with_it_is_said_in_a_sentence(tmp_path: Path, changes, sentence) -> None:
    with pytest.raises(ConfigError) as error:
        toy_config(tmp_path, {**CHANGES, **changes})
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_two_stages_cannot_have_one_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from ansatz.config.stage import StageDeclaration\n"
        "from ansatz.loop.stages.stage import Stage\n"
        "class Mine(Stage):\n"
        "    declaration = StageDeclaration(name='rl')\n"
    )
    with pytest.raises(ConfigError, match="is called 'rl', as another stage is"):
        toy_config(tmp_path, {"stages": [f"{file}:Mine"]})


def test_a_recipe_with_it_goes_to_another_process(tmp_path: Path) -> None:
    config = toy_config(tmp_path, CHANGES)
    assert pickle.loads(pickle.dumps(config)) == config
