"""Each stage folder and each checkpoint knows its run and its stage, so that a copied one is not taken for another."""

from __future__ import annotations

import json
import shutil

import pytest
from safetensors.torch import load_file
from toy_runs import different_results, toy_config

from ansatz.errors import CheckpointError
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.run_folder import resume_config
from ansatz.train.checkpoint import write_digests

SHORT = {"sft": {"steps": 1}, "train": {"steps": 2}, "save": {"every": 1}, "evaluate": {"every": 0, "problems": 2}}
REPEATED = {**SHORT, "stages": ["sft", "rl", "rl"]}
WEIGHTS = "checkpoints/step-000002/model.safetensors"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    mine = run_pipeline(toy_config(folder, REPEATED))
    other = run_pipeline(toy_config(folder, {**REPEATED, "name": "other", "seed": 1}))
    return mine, other


@pytest.fixture
def run(runs, tmp_path):
    return shutil.copytree(runs[0], tmp_path / "moved" / "renamed", copy_function=shutil.copy2)


def resumed(run):
    return run_pipeline(resume_config(run), resume=True)


def replace(target, source):
    shutil.rmtree(target)
    shutil.copytree(source, target)


def unfinished(run, stage):
    """As after a kill in the stage: it and the later ones are not done."""
    (run / stage / "done.json").unlink()


def test_a_run_that_was_moved_and_renamed_is_still_the_same(run, runs):
    before = (run / "rl_2" / WEIGHTS).read_bytes()
    unfinished(run, "rl_2")
    shutil.rmtree(run / "rl_2" / "checkpoints" / "step-000002")
    assert resumed(run) == run
    assert (run / "rl_2" / WEIGHTS).read_bytes() == before
    assert [
        name for name in different_results(run, runs[0]) if not name.endswith(("summary.json", "report.html"))
    ] == []


def test_a_finished_folder_of_another_round_is_refused(run):
    replace(run / "rl_2", run / "rl")
    with pytest.raises(CheckpointError, match=r"rl_2 holds what the stage rl has made, and is in the place of"):
        resumed(run)


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("stage", ["sft", "rl", "rl_2"])
def test_a_folder_of_another_run_is_refused(run, runs, stage, finished):
    replace(run / stage, runs[1] / stage)
    if not finished:
        unfinished(run, stage)
    with pytest.raises(CheckpointError, match=f"{stage} holds what another run .* has made, and is in the place of"):
        resumed(run)


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("place", ["round", "run"])
def test_copied_checkpoints_alone_are_refused(run, runs, finished, place):
    source = run / "rl" if place == "round" else runs[1] / "rl_2"
    replace(run / "rl_2" / "checkpoints", source / "checkpoints")
    if not finished:
        unfinished(run, "rl_2")
    with pytest.raises(
        CheckpointError, match=r"step-000002 holds what .* has made, and is in the place of the stage rl_2"
    ):
        resumed(run)


def test_an_equal_recipe_with_other_problems_is_another_run(run, tmp_path):
    rows = [{"question": f"What is {n} + {n}?", "answer": str(2 * n), "solution": f"It is {2 * n}."} for n in range(40)]
    path = str(tmp_path / "rows.jsonl")
    data = {name: {"source": "jsonl", "split": name, "path": path} for name in ("train", "heldout")}
    made = []
    for name in ("first", "second"):
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        recipe = {**SHORT, "name": name, "stages": ["rl"], "train": {"steps": 1}}
        config = toy_config(tmp_path, recipe)
        config = config.model_copy(update={"data": config.data.model_copy(update={"sft": None, **data})})
        made.append(run_pipeline(config))
        rows = rows[::-1]
    replace(made[0] / "rl", made[1] / "rl")
    with pytest.raises(CheckpointError, match=r"rl holds what another run .* has made"):
        resumed(made[0])


def test_a_run_of_a_version_without_origins_is_resumed_to_the_same_weights(run):
    """run.json, stage folders and checkpoints as they were written before."""
    before = load_file(run / "rl_2" / WEIGHTS)
    record = json.loads((run / "run.json").read_text())
    del record["code"], record["identities"]
    (run / "run.json").write_text(json.dumps(record))
    for path in run.glob("*/origin.json"):
        path.unlink()
    for path in run.glob("*/checkpoints/*/training/state.json"):
        state = json.loads(path.read_text())
        del state["loop"]["origin"]
        path.write_text(json.dumps(state))
        (path.parents[1] / "SHA256SUMS").unlink()
        write_digests(path.parents[1])
    unfinished(run, "rl_2")
    shutil.rmtree(run / "rl_2" / "checkpoints" / "step-000002")
    resumed(run)
    after = load_file(run / "rl_2" / WEIGHTS)
    assert all((before[name] == after[name]).all() for name in before)
    assert json.loads((run / "rl" / "origin.json").read_text()) == {"stage": "rl", "run": ""}
    assert resumed(run) == run


def test_changes_that_were_allowed_keep_the_stages_that_were_done(run, runs):
    unfinished(run, "rl_2")
    shutil.rmtree(run / "rl_2" / "checkpoints" / "step-000002")
    changed = resume_config(run, {"train.lr": "0.01"})
    run_pipeline(changed, resume=True, allow_changes=True)
    assert resumed(run) == run
    sibling = shutil.copytree(runs[0], run.parent / "sibling")
    replace(sibling / "rl_2", run / "rl_2")
    unfinished(sibling, "rl_2")
    with pytest.raises(CheckpointError, match="step-000002 holds what another run"):
        resumed(sibling)


@pytest.mark.parametrize("content", ["", "{", "[1e999]"])
def test_a_damaged_mark_is_one_sentence(run, content):
    (run / "rl" / "origin.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"origin\.json (cannot be read|holds list)"):
        resumed(run)
