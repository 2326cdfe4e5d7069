"""The recipes whose responses are programs, from training to `ansatz eval`."""

from __future__ import annotations

import json

import pytest
from toy_runs import REPOSITORY, command

from ansatz.track.jsonl import read_jsonl

SAMPLE = REPOSITORY / "examples" / "data" / "gsm8k_sample.jsonl"
FILE = f'source: jsonl, path: "{SAMPLE}", answer_from: "####"'
PATHS = [
    *("--data.sft.of", f"{{{FILE}}}"),
    *("--data.train", f"{{split: train, {FILE}}}", "--data.heldout", f"{{split: heldout, {FILE}}}"),
    *("--rollout.max_response_tokens", "64"),
]
QUICK = [
    *("--sft.batch_size", "8", "--train.steps", "2", "--rollout.prompts_per_step", "2", "--name", "run"),
    *("--evaluate.problems", "2", "--evaluate.every", "0"),
]
RUNS = {
    "program": ("tiny_gsm8k_program_cpu", [*PATHS, "--sft.steps", "2"], SAMPLE),
    "code_tests": ("tiny_code_grpo_cpu", ["--sft.steps", "80", "--data.sft.max_level", "1"], "code_tasks"),
}


@pytest.mark.e2e
@pytest.mark.parametrize("reward", ["program", pytest.param("code_tests", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_recipe_trains_on_programs_and_its_model_is_evaluated_on_them(tmp_path, reward):
    recipe, settings, suite = RUNS[reward]
    code, _, err = command("train", REPOSITORY / "recipes" / f"{recipe}.yaml", "--out", tmp_path, *QUICK, *settings)
    assert code == 0, err
    rows = read_jsonl(tmp_path / "run" / "rl" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2]
    assert all(f"reward/{reward}" in row for row in rows)
    if reward == "code_tests":  # responses are programs, which ran
        assert all(row["rollout/verdict/no_answer"] == 0 for row in rows)
    out = tmp_path / "eval"
    model = tmp_path / "run" / "rl" / "checkpoints" / "step-000002"
    sampling = ("--problems", "3", "--samples-per-prompt", "2", "--max-response-tokens", "64")
    code, shown, err = command(
        "eval", model, "--suite", suite, "--rewards", reward, "--out", out, *sampling, "--threads", "1"
    )
    assert code == 0, err
    results = json.loads((out / "results.json").read_text())
    assert reward in json.dumps(results) + shown
