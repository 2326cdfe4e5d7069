"""The GSM8K recipe on real problems, from the prompt to the update."""

import json

import pytest
from ansatz_verify import verify
from toy_runs import REPOSITORY, command

from ansatz.config import load_recipe
from ansatz.data.jsonl import jsonl
from ansatz.data.store import read_problems
from ansatz.track.jsonl import read_jsonl

RECIPE = REPOSITORY / "recipes" / "tiny_gsm8k_grpo_cpu.yaml"
SAMPLE = REPOSITORY / "examples" / "data" / "gsm8k_sample.jsonl"
PUBLISHED = REPOSITORY.parent / "shared" / "data" / "gsm8k"


def from_files(train, heldout):
    """The options that take the problems from files instead of the hub, as the recipe's comment says."""
    splits = {"sft": train, "train": train, "heldout": heldout}
    return [
        part
        for split, path in splits.items()
        for part in (f"--data.{split}", f'{{source: jsonl, split: {split}, path: "{path}", answer_from: "####"}}')
    ]


QUICK = ["--sft.steps", "4", "--evaluate.problems", "4", "--rollout.prompts_per_step", "4", "--name", "quick"]
QUICK += ["--evaluate.samples_per_prompt", "1", "--evaluate.k", "1"]


def check_run(run):
    summary = json.loads((run / "summary.json").read_text())
    assert [row["stage"] for row in summary["evaluations"]] == ["model", "sft", "rl"]
    rows = read_jsonl(run / "rl" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(row["align/mean_exp_gap"] < 1.05 for row in rows)
    assert len(read_jsonl(run / "rl" / "samples" / "step-000003.jsonl")) == 16
    for group in read_jsonl(run / "rl" / "samples" / "step-000003.groups.jsonl"):
        assert group["prompt"].startswith("Question: ")
        assert group["prompt"].endswith("on the last line after '#### '.\nAnswer:\n")
        assert float(group["answer"]) == float(group["answer"].replace(",", ""))


@pytest.mark.parametrize("path", [SAMPLE, PUBLISHED / "original_test.jsonl"], ids=lambda path: path.stem)
def test_the_recipe_grades_published_solutions_as_correct(path):
    if not path.exists():
        pytest.skip(f"the published GSM8K files are not there: {path}")
    settings = load_recipe(RECIPE).rewards["math_answer"]
    problems = list(jsonl(split="heldout", path=str(path), answer_from="####", limit=300))
    assert len(problems) == (20 if path == SAMPLE else 300)
    wrong = [problem.id for problem in problems if not verify(problem.answer, problem.solution or "", **settings)]
    assert wrong == []
    following = [*problems[1:], problems[0]]
    mixed = [bool(verify(a.answer, b.solution or "", **settings)) for a, b in zip(problems, following, strict=True)]
    assert mixed == [float(a.answer) == float(b.answer) for a, b in zip(problems, following, strict=True)]


@pytest.mark.e2e
@pytest.mark.slow
def test_three_steps_run_on_the_published_files(tmp_path):
    if not PUBLISHED.exists():
        pytest.skip(f"the published GSM8K files are not there: {PUBLISHED}")
    files = from_files(PUBLISHED / "original_train.jsonl", PUBLISHED / "original_test.jsonl")
    code, _, err = command("train", RECIPE, "--out", tmp_path, *QUICK, *files)
    assert code == 0, err
    check_run(tmp_path / "quick")
    assert len(read_problems(tmp_path / "quick" / "problems" / "train.jsonl")) == 7473


@pytest.mark.e2e
def test_three_steps_run_on_the_sample_only(tmp_path):
    short = ["--rollout.max_response_tokens", "384"]  # no solution of the sample is longer
    code, _, err = command("train", RECIPE, "--out", tmp_path, *QUICK, *short, *from_files(SAMPLE, SAMPLE))
    assert code == 0, err
    check_run(tmp_path / "quick")
