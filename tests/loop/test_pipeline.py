"""Whole runs at toy size."""

import io
import json
import re
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from rich.console import Console
from safetensors.torch import load_file
from toy_runs import toy_config

from ansatz.config import load_run
from ansatz.data.hygiene.report import digest, write_data_report
from ansatz.data.store import read_problems, write_problems
from ansatz.errors import ConfigError, DataError, ModelError, NonFiniteError, RewardError
from ansatz.findings.outcomes import read_solution_logps
from ansatz.loop import pipeline
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.repeat import repeat_skipped_update
from ansatz.loop.run_folder import resume_config
from ansatz.loop.run_sources import RunSources
from ansatz.loop.stages import problems
from ansatz.loop.stages.model import ModelStage
from ansatz.models.load import load_policy
from ansatz.models.tiny import build_tiny_model
from ansatz.track.base import EVALUATION_NUMBERS, LOG
from ansatz.track.console import PlainConsole, open_console
from ansatz.track.jsonl import read_jsonl
from ansatz.track.metrics import load_metrics
from ansatz.track.report import write_report
from ansatz.train.logps import response_logps
from ansatz.train.packed import pack_rollouts
from ansatz.train.sample import TrainSample

REWARDS = Path(__file__).with_name("user_rewards.py")


def user_reward(name, **settings):
    return {"math_answer": {"weight": 0}, f"{REWARDS}:{name}": settings}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return run_pipeline(toy_config(folder, {"rewards": user_reward("every_other")}))


def weights(checkpoint):
    return load_file(checkpoint / "model.safetensors")


def same(left, right):
    return left.keys() == right.keys() and all((left[name] == right[name]).all() for name in left)


def untimed(rows):
    return [{k: v for k, v in row.items() if k != "seconds" and not k.startswith(("time/", "perf/"))} for row in rows]


def test_every_stage_has_a_folder_with_its_config_and_its_output(run):
    stages = ("problems", "model", "sft", "rl")
    assert sorted(path.name for path in run.iterdir()) == sorted(
        [*stages, ".lock", "SHA256SUMS", "run.json", "config.yaml", "rendered.txt", "summary.json"]
    )
    for stage in stages:
        assert load_run(run / stage) == load_run(run)
        assert json.loads((run / stage / "done.json").read_text())["seconds"] >= 0
    assert {path.stem for path in (run / "problems").glob("*.jsonl")} == {"sft", "train", "heldout"}
    for stage in ("sft", "rl"):
        assert sorted(path.name for path in (run / stage / "checkpoints").iterdir()) == ["step-000002", "step-000004"]
        assert list((run / stage / "tensorboard").iterdir())


def test_the_resolved_config_is_the_first_thing_written(run):
    written = (run / "config.yaml").stat().st_mtime_ns
    later = [path for path in run.rglob("*") if path.is_file() and path.name not in (".lock", "run.json")]
    assert all(path.stat().st_mtime_ns >= written for path in later)
    assert yaml.safe_load((run / "config.yaml").read_text())["train"]["optimizer"] == {"name": "adamw"}


def test_every_evaluation_has_the_probability_of_each_worked_solution(run):
    """Recomputed from the checkpoint of the step, one problem at a time."""
    path = run / "rl" / "evaluations" / "heldout-000002.jsonl"
    logps = read_solution_logps(path, temperature=1.0)
    policy = load_policy(run / "rl" / "checkpoints" / "step-000002", device="cpu")
    renderer = RunSources(load_run(run)).renderer(policy)
    solved = read_problems(run / "problems" / "heldout.jsonl")[: len(logps)]
    assert list(logps) == [problem.id for problem in solved]
    for problem in solved:
        sample = TrainSample.from_demonstration(renderer.demonstration(problem), group=0)
        packed = pack_rollouts([sample], device=policy.device)
        alone = response_logps(policy, packed, temperatures=[1.0], tokens_per_microbatch=10_000)
        assert logps[problem.id] == pytest.approx(alone[0][0], rel=0.03)  # the run may have computed in bfloat16
    row = next(row for row in read_jsonl(run / "rl" / "evaluations.jsonl") if row["step"] == 2)
    assert row["exact_pass@1"] == pytest.approx(np.exp(list(logps.values())).mean(), rel=1e-4)
    for folder in ("model", "sft"):
        assert all("exact_pass@1" in row for row in read_jsonl(run / folder / "evaluations.jsonl"))
    with pytest.raises(DataError, match="found those at"):
        read_solution_logps(path, temperature=0.3)


def test_the_summary_holds_what_was_learned(run):
    summary = json.loads((run / "summary.json").read_text())
    assert list(summary) == ["seconds", "model", "evaluations"]
    assert Path(summary["model"]) == run / "rl" / "checkpoints" / "step-000004"
    evaluated = [(row["stage"], row["step"]) for row in summary["evaluations"]]
    assert evaluated == [("model", 0), ("sft", 4), ("rl", 2), ("rl", 4)]
    for row in summary["evaluations"]:
        assert row["split"] == "heldout"
        assert {*EVALUATION_NUMBERS, "pass@1_interval", "by_level", "num_problems", "k"} <= row.keys()
        assert list(row["by_level"]) == ["2"]
        assert set(EVALUATION_NUMBERS) <= row["by_level"]["2"].keys()
        assert row["num_problems"] == (
            2 if row["stage"] == "model" else 6
        )  # of random weights: a quarter of 6, rounded up
    seconds = sum(json.loads(path.read_text())["seconds"] for path in run.glob("*/done.json"))
    assert summary["seconds"] == pytest.approx(seconds, abs=0.01)


@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_every_metric_of_a_step_is_documented(run, stage):
    rows = read_jsonl(run / stage / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    docs = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    for name in rows[0].keys() - {"step", "seconds"}:
        metric = next((metric for metric in load_metrics().values() if metric.covers(name)), None)
        assert metric is not None, name
        assert f"`{metric.name}`" in docs
    assert all(row.keys() == rows[0].keys() for row in rows)


def test_samples_of_every_step_can_be_read_back(run):
    files = sorted((run / "rl" / "samples").glob("step-??????.jsonl"))
    assert [file.name for file in files] == [f"step-{step:06d}.jsonl" for step in (1, 2, 3, 4)]
    rows = read_jsonl(files[0])
    assert len(rows) == 16
    assert [row["sample"] for row in rows] == [0, 1, 2, 3] * 4
    assert {row["reward"] for row in rows} == {0.0, 1.0}
    assert all(row["mean_logp"] <= 0 for row in rows)


@pytest.mark.parametrize(
    "folder", ["model", *(f"{s}/checkpoints/step-00000{n}" for s in ("sft", "rl") for n in (2, 4))]
)
def test_every_model_folder_can_be_loaded(run, folder):
    policy = load_policy(run / folder)
    assert policy.tokenizer.decode(policy.tokenizer.encode("Anna has 3 apples.")) == "Anna has 3 apples."


def test_each_stage_starts_from_the_weights_of_the_stage_before(run):
    initial, fine_tuned = weights(run / "model"), weights(run / "sft" / "checkpoints" / "step-000004")
    reinforced = weights(run / "rl" / "checkpoints" / "step-000004")
    assert not same(initial, fine_tuned)
    assert not same(fine_tuned, reinforced)
    largest_change = max(float((reinforced[name] - fine_tuned[name]).abs().max()) for name in fine_tuned)
    assert largest_change < 10 * 4 * 1e-4  # four AdamW steps of at most lr = 1e-4 each, with a margin for momentum


def test_the_report_is_one_html_page_with_figures(run):
    page = write_report(run).read_text()
    assert page.startswith("<!doctype html>")
    assert "<svg" in page
    assert "pass@1" in page


def test_resuming_a_finished_run_changes_nothing(run):
    before = {path: path.read_bytes() for path in run.glob("*/checkpoints/**/*") if path.is_file()}
    summary = (run / "summary.json").read_text()
    assert run_pipeline(resume_config(run), resume=True) == run
    assert {path: path.read_bytes() for path in run.glob("*/checkpoints/**/*") if path.is_file()} == before
    assert (run / "summary.json").read_text() == summary


def test_a_finished_run_is_not_started_again(run):
    with pytest.raises(ConfigError, match="already holds a run"):
        run_pipeline(load_run(run))


def test_a_run_on_a_model_folder_and_a_problem_file(run, tmp_path):
    rows = [{"q": f"What is {a} + {b}?", "a": str(a + b)} for a in range(5) for b in range(4)]
    file = tmp_path / "sums.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    held_against = {"against": ["math500.jsonl"], "ngram": 10, "min_frac": 0.0, "rows": 27, "dropped": 7}
    write_data_report(file, {"verb": "decontaminate", **held_against, "sha256": digest(file)})
    sums = {"source": "jsonl", "path": str(file), "question_key": "q", "answer_key": "a"}
    changes = {
        "data": {"sft": None, "train": {**sums, "split": "train"}, "heldout": {**sums, "split": "heldout"}},
        "model": {"path": str(run / "sft" / "checkpoints" / "step-000004")},
        "train": {"steps": 2, "updates_per_step": 2, "epochs_per_step": 2},
    }
    folder = run_pipeline(toy_config(tmp_path, changes))
    assert not (folder / "sft").exists()
    assert not (folder / "model" / "config.json").exists()
    summary = json.loads((folder / "summary.json").read_text())
    assert [(row["stage"], row["step"]) for row in summary["evaluations"]] == [("model", 0), ("rl", 2)]
    groups = read_jsonl(folder / "rl" / "samples" / "step-000001.groups.jsonl")
    assert groups[0]["prompt"].startswith("Question: What is ")
    known = json.loads((folder / "problems" / "decontamination.json").read_text())
    assert known == {"train": [{"path": str(file), "decontaminated": [held_against]}]}
    assert "decontaminated against math500.jsonl, 7 of 27 rows removed" in write_report(folder).read_text()


@pytest.mark.parametrize(("reward", "notes"), [("all_equal", 1), ("every_other", 0)])
def test_a_first_step_without_signal_is_said_once_on_the_console(tmp_path, reward, notes):
    out = io.StringIO()
    changes = {"data": {"sft": None}, "train": {"steps": 2}, "rewards": user_reward(reward)}
    run_pipeline(toy_config(tmp_path, changes), console=PlainConsole(partial(print, file=out), every_s=0))
    assert out.getvalue().count("rl  step 1: no signal: in all ") == out.getvalue().count("no signal") == notes


def test_a_model_of_the_hub_is_recorded_with_its_commit(run, tmp_path, monkeypatch):
    commit = "c" * 40
    repository = tmp_path / "cache" / "models--us--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "v1").write_text(commit)
    shutil.copytree(run / "model", repository / "snapshots" / commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    changes = {"data": {"sft": None, "template": "auto"}, "train": {"steps": 0}, "model": {"path": "us/tiny@v1"}}
    out = io.StringIO()
    folder = run_pipeline(toy_config(tmp_path, changes), console=PlainConsole(partial(print, file=out)))
    assert load_run(folder).model.path == f"us/tiny@{commit}"
    assert load_run(folder).data.template == "chat"
    assert "data.template: chat (the tokenizer has a chat template)" in out.getvalue()
    assert json.loads((folder / "run.json").read_text())["recipe"]["model.path"] == f"us/tiny@{commit}"
    with pytest.raises(ModelError, match="us/other' is neither a local folder nor complete in the hub's cache"):
        run_pipeline(toy_config(tmp_path / "other", changes | {"model": {"path": "us/other"}}))
    assert not (tmp_path / "other" / "runs").exists()


def test_a_note_before_the_first_stage_is_in_the_log_of_a_run_that_begins_and_of_no_other(run, tmp_path, monkeypatch):
    changes = {"data": {"sft": None, "template": "auto"}, "train": {"steps": 0}, "model": {"path": str(run / "model")}}
    config = toy_config(tmp_path, changes)
    console = open_console(Console(file=io.StringIO()), log=config.run_dir / LOG)
    with monkeypatch.context() as changed:
        changed.setattr(pipeline, "graders_of", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_pipeline(config, console=console)
    for fresh in (False, True):  # a log without a run would make the folder one that a run must not touch
        folder = run_pipeline(config, console=console, fresh=fresh)
        assert (folder / LOG).read_text().count("data.template: ") == 1


def test_a_recipe_without_training_evaluates_the_model(run, tmp_path):
    changes = {"data": {"sft": None}, "train": {"steps": 0}, "model": {"path": str(run / "model")}}
    folder = run_pipeline(toy_config(tmp_path, changes))
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["model"] == str(run / "model")
    assert [row["stage"] for row in summary["evaluations"]] == ["model"]
    assert (
        summary["evaluations"][0]["pass@1"]
        == json.loads((run / "summary.json").read_text())["evaluations"][0]["pass@1"]
    )


def test_the_same_recipe_gives_the_same_weights_and_another_seed_gives_others(run, tmp_path):
    again = run_pipeline(toy_config(tmp_path / "again", {"rewards": user_reward("every_other")}))
    other = run_pipeline(toy_config(tmp_path / "other", {"seed": 1, "sft": {"steps": 0}, "train": {"steps": 0}}))
    last = Path("rl/checkpoints/step-000004")
    assert same(weights(run / last), weights(again / last))
    assert not same(weights(run / "model"), weights(other / "model"))


@pytest.mark.parametrize("template", ["chat", "boxed"])
def test_a_built_model_can_have_any_template(tmp_path, template):
    changes = {"data": {"template": template}, "sft": {"steps": 1}, "train": {"steps": 1}}
    folder = run_pipeline(toy_config(tmp_path, changes))
    assert (folder / "summary.json").exists()


def test_an_interrupted_and_resumed_run_equals_an_uninterrupted_one(tmp_path):
    flag = tmp_path / "continue"

    def config(folder, at):
        reward = user_reward("interrupts", at=at, unless=str(flag))
        changes = {"rewards": reward, "sft": {"steps": 2}, "train": {"steps": 5, "epochs_per_step": 2}}
        return toy_config(folder, changes)

    with pytest.raises(KeyboardInterrupt):
        run_pipeline(config(tmp_path / "interrupted", 4))
    interrupted = tmp_path / "interrupted" / "runs" / "toy"
    assert not (interrupted / "rl" / "done.json").exists()
    assert [row["step"] for row in read_jsonl(interrupted / "rl" / "metrics.jsonl")] == [1, 2, 3]
    assert [path.name for path in (interrupted / "rl" / "checkpoints").iterdir()] == ["step-000002"]
    flag.touch()
    run_pipeline(resume_config(interrupted), resume=True)
    whole = run_pipeline(config(tmp_path / "whole", 4))
    last = Path("rl/checkpoints/step-000005")
    assert same(weights(interrupted / last), weights(whole / last))
    for file in ("rl/metrics.jsonl", "rl/evaluations.jsonl"):
        assert untimed(read_jsonl(interrupted / file)) == untimed(read_jsonl(whole / file))


@pytest.mark.parametrize("split", ["sft", "train", "heldout"])
def test_a_run_that_was_killed_before_it_had_stored_its_problems_is_resumed(tmp_path, monkeypatch, split):
    def killed(path, stored):
        if path.stem == split:
            raise KeyboardInterrupt
        write_problems(path, stored)

    config = toy_config(tmp_path, {"sft": {"steps": 1}, "train": {"steps": 0}})
    monkeypatch.setattr(problems, "write_problems", killed)
    with pytest.raises(KeyboardInterrupt):
        run_pipeline(config)
    monkeypatch.undo()
    assert not (config.run_dir / "problems" / f"{split}.jsonl").exists()
    run = run_pipeline(resume_config(config.run_dir), resume=True)
    assert (run / "summary.json").exists()


def test_a_run_that_was_killed_while_it_marked_its_folder_is_started_again(tmp_path):
    config = toy_config(tmp_path, {"sft": {"steps": 1}, "train": {"steps": 0}})
    config.run_dir.mkdir(parents=True)
    (config.run_dir / ".run.json.draft").write_text("{")
    assert (run_pipeline(config) / "summary.json").exists()


def test_an_interrupted_run_can_be_moved_and_resumed(tmp_path):
    flag = tmp_path / "continue"
    changes = {"rewards": user_reward("interrupts", at=3, unless=str(flag)), "train": {"steps": 3}, "sft": {"steps": 1}}
    with pytest.raises(KeyboardInterrupt):
        run_pipeline(toy_config(tmp_path, changes))
    moved = tmp_path / "elsewhere" / "renamed"
    moved.parent.mkdir()
    (tmp_path / "runs" / "toy").rename(moved)
    flag.touch()
    assert run_pipeline(resume_config(moved), resume=True) == moved
    summary = json.loads((moved / "summary.json").read_text())
    assert summary["model"] == str(moved / "rl" / "checkpoints" / "step-000003")
    assert not (tmp_path / "runs" / "toy").exists()


def test_a_run_whose_prompts_are_too_long_leaves_no_folder(tmp_path):
    changes = {"sft": {"steps": 1}, "train": {"steps": 0}}
    with pytest.raises(DataError, match="the limit is 20"):
        run_pipeline(toy_config(tmp_path, {**changes, "rollout": {"max_prompt_tokens": 20}}))
    assert not (tmp_path / "runs").exists()


def test_a_run_that_failed_before_training_is_started_again_only_with_fresh(tmp_path, monkeypatch):
    def fail(*_):
        raise ModelError("the model does not load")

    changes = {"sft": {"steps": 1}, "train": {"steps": 0}}
    with monkeypatch.context() as patched:
        patched.setattr(ModelStage, "run", fail)
        with pytest.raises(ModelError, match="does not load"):
            run_pipeline(toy_config(tmp_path, {**changes, "rollout": {"max_prompt_tokens": 200}}))
    with pytest.raises(ConfigError, match="already holds a run"):
        run_pipeline(toy_config(tmp_path, changes))
    folder = run_pipeline(toy_config(tmp_path, changes), fresh=True)
    assert load_run(folder).rollout.max_prompt_tokens == 256


@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_a_run_stops_at_the_third_update_in_a_row_that_is_not_finite(tmp_path, stage):
    changes = {"save": {"every": 1}, "rewards": user_reward("every_other")}
    changes["sft"] = {"lr": 1e3 if stage == "sft" else 1e-9, "steps": 8}
    changes["train"] = {"lr": 1e3, "steps": 8, "optimizer": {"name": "adamw", "weight_decay": 1e6}}
    with pytest.raises(NonFiniteError) as error:
        run_pipeline(toy_config(tmp_path, changes))
    folder = tmp_path / "runs" / "toy" / stage
    steps = [row["step"] for row in read_jsonl(folder / "metrics.jsonl")]
    assert re.match(rf"step {steps[-1] + 1}: the (loss|gradient norm) is (nan|-?inf); ", str(error.value))
    assert "number 3 in a row" in str(error.value)
    rows = read_jsonl(folder / "metrics.jsonl")
    assert [row["train/skipped_steps"] for row in rows[-3:]] == [0, 1, 1]
    skips = [event for event in read_jsonl(folder / "events.jsonl") if event["kind"] == "skipped"]
    assert [event["step"] for event in skips] == [
        steps[-1] - 1,
        *steps[-1:],
        steps[-1] + 1,
    ]
    last = sorted((folder / "checkpoints").iterdir())[-1]
    assert last.name == f"step-{steps[-1]:06d}"
    assert all(value.isfinite().all() for value in weights(last).values())
    assert not (folder / "done.json").exists()


@pytest.mark.parametrize(("preset", "what"), [("dr_grpo", "gradient norm"), ("reinforce", "loss")])
def test_a_reward_that_overflows_stops_the_run_before_any_update(tmp_path, preset, what):
    changes = {"data": {"sft": None}, "rewards": user_reward("huge"), "algorithm": {"preset": preset}}
    with pytest.raises(NonFiniteError, match=rf"^step 3: the {what} is (nan|-?inf); "):
        run_pipeline(toy_config(tmp_path, {**changes, "save": {"every": 10}}))
    (saved,) = (tmp_path / "runs" / "toy" / "rl" / "checkpoints").iterdir()
    assert saved.name == "step-000002"
    before = weights(tmp_path / "runs" / "toy" / "model")
    assert all(torch.equal(value, before[name]) for name, value in weights(saved).items())


def test_an_update_that_is_not_finite_is_skipped_stored_and_can_be_repeated(tmp_path):
    changes = {"data": {"sft": None}, "rewards": user_reward("huge_at", at=2), "save": {"every": 1, "keep": 9}}
    changes["algorithm"] = {"preset": "reinforce"}
    folder = run_pipeline(toy_config(tmp_path, changes)) / "rl"
    assert [row["train/skipped_steps"] for row in read_jsonl(folder / "metrics.jsonl")] == [0, 1, 0, 0]
    before, after = (folder / "checkpoints" / f"step-00000{step}" for step in (1, 2))
    for name in ("model.safetensors", "training/optimizer.safetensors"):
        assert (before / name).read_bytes() == (after / name).read_bytes()
    assert [event["step"] for event in read_jsonl(folder / "events.jsonl") if event["kind"] == "skipped"] == [2]
    with pytest.raises(NonFiniteError, match=r"^step 2: the loss is"):
        repeat_skipped_update(folder / "skipped" / "step-000002-0")


def test_a_reward_that_is_not_a_number_is_named(tmp_path):
    changes = {"data": {"sft": None}, "rewards": user_reward("not_a_number")}
    with pytest.raises(
        RewardError, match=r"user_rewards\.py:not_a_number' returned nan for problem 'word_problems-heldout-3-\d+'"
    ):
        run_pipeline(toy_config(tmp_path, changes))


def test_a_tiny_model_has_the_settings_of_the_recipe(run, tmp_path):
    config = load_run(run)
    policy = load_policy(run / "model")
    assert policy.model.config.hidden_size == config.model.tiny["hidden_size"]
    build_tiny_model(tmp_path, texts=["a"], seed=0, **config.model.tiny)
    assert load_policy(tmp_path).model.config.num_hidden_layers == policy.model.config.num_hidden_layers


def test_a_resumed_run_tells_of_no_other_step_than_a_run_that_was_left_alone(tmp_path):
    changes = {"data": {"sft": None}, "rewards": user_reward("all_equal"), "train": {"steps": 1}}
    run = run_pipeline(toy_config(tmp_path, changes))
    run_pipeline(resume_config(run, {"train.steps": "2"}), resume=True)
    assert [(row["step"], row["kind"]) for row in read_jsonl(run / "rl" / "events.jsonl")] == [(1, "no_signal")]
