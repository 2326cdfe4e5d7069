"""Commands that take runs where they take models and evaluations: ask, eval, sample, compare and report."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from toy_runs import toy_config

from ansatz.loop.pipeline import run_pipeline
from ansatz.track.jsonl import read_jsonl, write_jsonl
from ansatz.track.report import write_report
from ansatz.types import UNGRADED

CHANGES = {"sft": {"steps": 4}, "train": {"steps": 2}, "evaluate": {"every": 1}}
HOW = ("--threads", 1, "--max-response-tokens", 6, "--samples-per-prompt", 2)
LAST = "rl/checkpoints/step-000002"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Path]:
    """Two runs with the same held-out problems."""
    folder = tmp_path_factory.mktemp("runs")
    changes = [{**CHANGES, "name": "left"}, {**CHANGES, "name": "right", "sft": {"steps": 4, "lr": 0.01}}]
    return [run_pipeline(toy_config(folder, each), report=write_report) for each in changes]


@pytest.fixture
def questions(tmp_path) -> Path:
    file = tmp_path / "questions.jsonl"
    rows = [{"question": f"Ben has {count} pens. How many has Ben?", "answer": str(count)} for count in (2, 3)]
    file.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return file


def test_a_run_is_asked_like_its_final_checkpoint(ansatz, runs):
    code, out, err = ansatz("ask", runs[0], "2 pens?", *HOW)
    assert (code, err) == (0, "")
    first, *rest = out.splitlines(keepends=True)
    assert first == f"model: {runs[0] / LAST} (the final one of the run left)\n"
    assert "".join(rest) == ansatz("ask", runs[0] / LAST, "2 pens?", *HOW)[1]
    assert "as in the run left" in out


def test_a_run_is_found_over_the_folder_above(ansatz, runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Path(os.path.relpath(runs[0]))
    assert run.parts[0] == ".."
    assert ansatz("ask", run, "2 pens?", *HOW)[0] == 0
    assert ansatz("train", "--resume", run)[0] == 0


def test_several_models_answer_the_same_question_one_after_the_other(ansatz, runs):
    code, out, err = ansatz("ask", *runs, "2 pens?", *HOW)
    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if line.startswith("===")] == [f"=== {run}" for run in runs]
    for run in runs:
        assert ansatz("ask", run, "2 pens?", *HOW)[1] in out


def test_an_evaluation_of_a_run_is_that_of_its_checkpoint_and_its_folder_is_printed(
    ansatz, runs, questions, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, out, err = ansatz("eval", runs[0], "--suite", questions, *HOW)
    assert (code, err) == (0, "")
    folder = Path("evals/left-rl-step-000002/questions")
    assert f"Written: {folder}\n" in out
    written = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert json.loads(written["settings.json"])["model"] == str(runs[0] / LAST)
    assert ansatz("eval", runs[0] / LAST, "--suite", questions, *HOW)[0] == 0  # resumes the same evaluation
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == written


@pytest.mark.parametrize(("verb", "source"), [("eval", "--suite"), ("sample", "--data")])
def test_several_models_get_a_folder_each(ansatz, runs, questions, tmp_path, verb, source):
    code, out, err = ansatz(verb, *runs, source, questions, *HOW, "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    for run in runs:
        folder = tmp_path / "out" / f"{run.name}-rl-step-000002"
        assert len(read_jsonl(folder / "rollouts.jsonl")) == 4
        assert str(folder) in out


def test_two_models_of_one_name_are_refused_before_any_work(ansatz, runs, questions, tmp_path):
    shutil.copytree(runs[0], tmp_path / "copy" / "left")
    for verb, source in (("eval", "--suite"), ("sample", "--data")):
        code, _, err = ansatz(
            verb, runs[0], tmp_path / "copy" / "left", source, questions, *HOW, "--out", tmp_path / "o"
        )
        assert code == 2
        assert "two models are called left-rl-step-000002" in err
    assert not (tmp_path / "o").exists()


def test_a_run_that_is_not_finished_is_refused_with_a_checkpoint_to_give_instead(ansatz, runs, tmp_path):
    run = tmp_path / "half"
    shutil.copytree(runs[0], run)
    (run / "rl" / "done.json").unlink()
    code, _, err = ansatz("ask", run, "2 pens?", *HOW)
    assert code == 2
    assert f"{run} is not finished: its stage rl is not done." in err
    assert f"Or give a checkpoint, such as {run / LAST}." in err
    assert ansatz("ask", run / LAST, "2 pens?", *HOW)[0] == 0
    shutil.rmtree(run / "rl")
    assert f"such as {run / 'sft/checkpoints/step-000004'}." in ansatz("ask", run, "2 pens?", *HOW)[2]


def test_two_runs_are_compared_by_their_last_evaluations(ansatz, runs, tmp_path):
    code, out, err = ansatz("compare", *runs, "--out", tmp_path / "numbers.json")
    assert (code, err) == (0, "")
    flat = " ".join(out.split())
    assert f"A {runs[0]} (rl, step 2)" in out
    assert f"B {runs[1]} (rl, step 2)" in out
    assert "pass@1 (reward), %" in flat
    assert "sft.lr: A " in out
    assert "B 0.01" in out
    assert "steps: sft 4, rl 2 in both" in out
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    logged = [read_jsonl(run / "rl" / "evaluations.jsonl")[-1] for run in runs]
    assert [numbers["a"], numbers["b"]] == [row["pass@1"] for row in logged]
    assert numbers["num_problems"] == logged[0]["num_problems"]
    assert numbers["warnings"] == []


def test_each_of_several_runs_is_compared_with_the_first(ansatz, runs, tmp_path):
    first = runs[0] / "sft" / "evaluations" / "heldout-000004.jsonl"
    code, _, err = ansatz("compare", first, *runs, "--out", tmp_path / "numbers.json")
    assert (code, err) == (0, "")
    found = json.loads((tmp_path / "numbers.json").read_text())["comparisons"]
    assert [(each["folder_a"], each["folder_b"]) for each in found] == [
        (str(first), f"{run} (rl, step 2)") for run in runs
    ]


def test_runs_of_one_recipe_with_other_steps_are_said_to_be_so(ansatz, runs, tmp_path):
    shutil.copytree(runs[0], tmp_path / "left")
    rows = (tmp_path / "left" / "rl" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "left" / "rl" / "metrics.jsonl").write_text(rows[0])
    for file in (tmp_path / "left" / "rl").glob("evaluations*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    out = ansatz("compare", runs[0], tmp_path / "left")[1]
    assert "The recipes are the same." in out
    assert "steps: A sft 4, rl 2; B sft 4, rl 1" in out


def test_a_run_is_explained_and_checked_as_its_recipe(ansatz, runs):
    explained = ansatz("explain", runs[0], "--full")
    assert explained[0] == 0
    assert explained == ansatz("explain", runs[0] / "config.yaml", "--full")


def test_settings_of_runs_that_differ_are_named(ansatz, runs, tmp_path):
    shutil.copytree(runs[1], tmp_path / "hotter")
    config = tmp_path / "hotter" / "config.yaml"
    text = config.read_text()
    section = text.index("evaluate:")
    config.write_text(text[:section] + text[section:].replace("temperature: 1.0", "temperature: 0.5", 1))
    out = ansatz("compare", runs[0], tmp_path / "hotter")[1]
    assert "Besides the model, this differs: temperature: A 1.0, B 0.5" in " ".join(out.split())


def test_a_run_without_stored_responses_is_compared_by_what_it_has_logged(ansatz, runs, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(runs[0], old)
    for folder in old.glob("*/evaluations"):
        shutil.rmtree(folder)
    code, out, err = ansatz("compare", runs[1], old, "--out", tmp_path / "numbers.json")
    assert (code, err) == (0, "")
    assert out.count("has no stored responses") == 1
    assert "Run `ansatz eval` with both on the same problems" in " ".join(out.split())
    rows = json.loads((tmp_path / "numbers.json").read_text())["rows"]
    assert rows == [read_jsonl(run / "rl" / "evaluations.jsonl")[-1] for run in (runs[1], old)]
    code, out, err = ansatz("report", old)
    assert (code, err) == (0, "")
    assert "No responses of the evaluations are stored" in (old / "report.html").read_text()


@pytest.mark.parametrize("what", ["one run", "a folder", "a file", "a stage"])
def test_what_cannot_be_compared_is_refused_in_a_sentence(ansatz, runs, tmp_path, what):
    (tmp_path / "notes.txt").write_text("x")
    given = {
        "one run": [runs[0]],
        "a folder": [runs[0], tmp_path],
        "a file": [runs[0], tmp_path / "notes.txt"],
        "a stage": [runs[0], runs[0] / "problems"],
    }
    sentence = {
        "one run": "a comparison needs two",
        "a folder": "is neither a run (config.yaml is missing) nor a folder that `ansatz eval` wrote",
        "a file": "is not a stored evaluation of a run",
        "a stage": "is not a run folder",
    }
    code, out, err = ansatz("compare", *given[what])
    assert (code, out) == (2, "")
    assert sentence[what] in err


def test_a_response_to_a_problem_that_the_run_does_not_have_is_refused(ansatz, runs, tmp_path):
    shutil.copytree(runs[0], tmp_path / "run")
    file = tmp_path / "run" / "rl" / "evaluations" / "heldout-000002.jsonl"
    file.write_text(file.read_text().replace('"problem": "word', '"problem": "other', 1))
    code, _, err = ansatz("compare", runs[1], tmp_path / "run")
    assert code == 2
    assert "heldout-000002.jsonl has a response to 'other_problems" in err


def test_an_evaluation_whose_file_is_empty_counts_as_missing(ansatz, runs, tmp_path):
    shutil.copytree(runs[0], tmp_path / "run")
    (tmp_path / "run" / "rl" / "evaluations" / "heldout-000002.jsonl").write_text("")
    code, out, err = ansatz("compare", runs[1], tmp_path / "run")
    assert (code, err) == (0, "")
    assert out.count("has no stored responses") == 1


def test_problems_that_no_reward_grades_do_not_count(ansatz, runs, tmp_path):
    shutil.copytree(runs[0], tmp_path / "run")
    file = tmp_path / "run" / "rl" / "evaluations" / "heldout-000002.jsonl"
    rows = read_jsonl(file)
    for row in rows:
        if row["problem"] == rows[0]["problem"]:
            row["grader_stage"] = UNGRADED
    write_jsonl(file, rows)
    code, out, err = ansatz("compare", runs[1], tmp_path / "run")
    assert (code, err) == (0, "")
    assert "only the 5 problems with verdicts in both count; A has 6, B has 6" in " ".join(out.split())
    write_jsonl(file, [{**row, "grader_stage": UNGRADED} for row in rows])
    code, out, err = ansatz("compare", runs[1], tmp_path / "run")
    assert (code, err) == (0, "")
    assert "no reward of the run says which responses are correct" in " ".join(out.split())
    assert "Problems that changed most" not in out


def test_the_report_of_several_runs_draws_their_curves_over_each_other(ansatz, runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = {run: (run / "report.html").read_bytes() for run in runs}
    code, out, err = ansatz("report", *runs)
    assert (code, err, out) == (0, "", "reports/left-right.html\n")
    page = Path("reports/left-right.html").read_text()
    charts = re.findall(r'aria-label="([^"]*)"', page)
    for title in ("pass@1 on held-out problems", "Reward", "Loss", "Gradient norm", "Time of a step", "time/grade_s"):
        chart = next(label for label in charts if label.startswith(title))
        assert "left ends at" in chart, title
        assert "right ends at" in chart, title
    assert re.search(r'<th scope="row">sft.lr</th><td>[^<]*</td><td>0.01</td>', page)
    assert '<th scope="row">name</th>' not in page
    assert "pass@1 of right against left, paired by problem" in page
    assert '<tr><th scope="row">all</th><td>6</td>' in page
    assert {run: (run / "report.html").read_bytes() for run in runs} == before


def test_a_report_is_written_to_the_file_that_is_given_and_never_over_a_file_of_the_run(ansatz, runs, tmp_path):
    code, out, err = ansatz("report", runs[0], "--out", tmp_path / "mine.html")
    assert (code, err, out) == (0, "", f"{tmp_path / 'mine.html'}\n")
    assert (tmp_path / "mine.html").read_bytes() == (runs[0] / "report.html").read_bytes()
    for given in ([runs[0]], runs):
        code, _, err = ansatz("report", *given, "--out", runs[0] / "run.json")
        assert code == 2
        assert "both read and written" in err


def test_the_report_of_runs_that_cannot_be_paired_says_why_and_names_them_apart(ansatz, runs, tmp_path):
    other = tmp_path / "<b>" / "left"
    shutil.copytree(runs[0], other)
    file = other / "problems" / "heldout.jsonl"
    file.write_text(file.read_text().replace('"question": "', '"question": "Well, ', 1))
    code, _, err = ansatz("report", runs[0], other, "--out", tmp_path / "both.html")
    assert (code, err) == (0, "")
    page = (tmp_path / "both.html").read_text()
    assert "is not the same in both evaluations" in page
    assert "&lt;b&gt;/left, step" not in page
    assert "runs/left, &lt;b&gt;/left" in page
    assert "<b>/left" not in page
    assert "The recipes are the same." in page
