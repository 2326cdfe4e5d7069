"""Logs of other projects as bundles, and files that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from ansatz.audit import readers
from ansatz.audit.bundle import write_bundle
from ansatz.audit.claims import audit
from ansatz.audit.readers import read_any
from ansatz.errors import DataError
from tests.audit.made_bundle import made


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_completions_of_trl_have_rewards_and_advantages(tmp_path: Path):
    """The columns as GRPOTrainer writes them, with a prompt of messages: the rule is named, although no promise is."""
    columns = {
        "step": [3] * 4,
        "prompt": [[{"role": "user", "content": "1+1="}]] * 4,
        "completion": [[{"role": "assistant", "content": str(number)}] for number in range(4)],
        "accuracy_reward": [0.0, 0.0, 1.0, 0.0],
        "note": ["a", "b", "c", "d"],
        "advantage": [-0.5, -0.5, 1.5, -0.5],  # by hand: mean 1/4, std 1/2
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "completions_00003.parquet")
    (bundle,) = read_any(tmp_path)
    assert (bundle.project, bundle.step, bundle.notes["rewards"]) == ("trl", 3, ["accuracy_reward"])
    assert bundle.rollouts[2] == {"prompt": "1+1=", "response": "2"}
    claim = {each.name: each for each in audit(bundle, recompute=False)}["advantage"]
    assert claim.status == "cannot tell"
    assert "group_zscore (ddof 1" in claim.says


def test_the_rollouts_of_verl_are_graded_again(tmp_path: Path):
    rows = [
        {"input": "1+1=", "output": "The answer is 2", "gts": "2", "score": 1.0, "step": 7},
        {"input": "1+1=", "output": "The answer is 3", "gts": "2", "score": 1.0, "step": 7},
    ]
    (bundle,) = read_any(lines(tmp_path / "7.jsonl", rows))
    assert (bundle.project, bundle.step, bundle.arrays["group_N"].tolist()) == ("verl", 7, [0, 0])
    claim = {each.name: each for each in audit(bundle, recompute=False)}["rewards"]
    assert (claim.status, claim.example) == (
        "contradicts",
        "rollout 1 with gold '2' and reward 1 ends in 'The answer is 3'.",
    )


@pytest.mark.parametrize(
    ("gold", "source", "status"),
    [
        (["3", "4"], "", "certified"),  # any of them is right
        ('["3", "4"]', "", "certified"),
        (["4", "5"], "", "contradicts"),
        ('{"inputs": ["1"], "outputs": ["3"]}', "", "cannot tell"),
        ('[{"input": "1", "output": "3"}]', "", "cannot tell"),
        ({"target": ["3"]}, "", "cannot tell"),
        ("assert f(1) == 3", "", "cannot tell"),
        ("5", "codeforces", "cannot tell"),
        ("[1, 2]", "math", "contradicts"),  # a list of numbers is an answer
    ],
)
def test_rewards_are_graded_again_where_a_gold_is_an_answer(tmp_path: Path, gold: Any, source: str, status: str):
    row = {"input": "1+2=", "output": "The answer is 3", "gts": gold, "score": 1.0, "data_source": source}
    (bundle,) = read_any(lines(tmp_path / "7.jsonl", [row]))
    claim = {each.name: each for each in audit(bundle, recompute=False)}["rewards"]
    assert claim.status == status, claim.line


def test_the_step_of_nemo_rl_has_log_probs_of_both_sides(tmp_path: Path):
    """Rows are padded; prompts have log-prob 0. The sampler keeps three quarters of the mass: a gap of log 3/4."""
    gap = -float(np.log(0.75))
    rows = [
        {
            "content": [["question", "answer"]],
            "rewards": [1.0],
            "input_lengths": [4],
            "generation_logprobs": [[0.0, 0.0, -1.0 + gap, -0.5 + gap, 0.0]],
            "prev_logprobs": [[0.0, 0.0, -1.0, -0.5, 0.0]],
            "idx": 0,
        }
    ]
    (bundle,) = read_any(lines(tmp_path / "train_data_step12.jsonl", rows))
    assert (bundle.project, bundle.step, bundle.arrays["prompt_length_N"].tolist()) == ("nemo-rl", 12, [2])
    assert bundle.arrays["sampled_mask_T"].tolist() == [False, False, True, True]
    claim = {each.name: each for each in audit(bundle, recompute=False)}["sampler gap"]
    assert "truncation by top-p or top-k: the sampler divides by the mass that it keeps, 0.750" in claim.says


def test_a_folder_is_all_that_is_in_it(tmp_path: Path):
    (tmp_path / "step-000001").mkdir()
    write_bundle(tmp_path / "step-000001", made())
    lines(tmp_path / "2.jsonl", [{"input": "a", "output": "b", "score": 0.0}])
    (tmp_path / "notes.txt").touch()
    assert [bundle.project for bundle in read_any(tmp_path)] == ["verl", "trl"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("1.jsonl", "", "has no rows"),
        ("1.jsonl", "{", "line 1 is not JSON"),
        ("1.jsonl", "[1]\n", "line 1 is list, expected an object"),
        ("1.jsonl", '{"a": 1}\n', "has the fields a, which no project is known to write"),
        ("1.jsonl", '{"input": 1, "output": 2}\n', "has the fields input, output"),
        ("1.parquet", "PAR1", "cannot be read as parquet"),
        ("1.txt", "", "is neither a step bundle nor"),
    ],
)
def test_a_file_that_is_no_log_is_refused_in_a_sentence(tmp_path: Path, name: str, text: str, words: str):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=words):
        read_any(tmp_path / name)


@pytest.mark.parametrize("value", [None, "x", [], {}, -1, 1e300, [1, "a"]])
def test_a_log_with_an_odd_value_still_gets_every_claim(tmp_path: Path, value: Any):
    base = {"input": "a", "output": "b", "score": 1.0, "gts": "2"}
    nemo = {"content": "a", "rewards": 1.0, "input_lengths": 1, "generation_logprobs": [-1.0], "prev_logprobs": [-1.0]}
    for number, row in enumerate((base, nemo)):
        for key in row:
            (bundle,) = read_any(lines(tmp_path / f"{number}.jsonl", [{**row, key: value}]))
            assert len(audit(bundle, recompute=False)) == 11, (number, key)


def test_a_path_that_does_not_exist_is_named(tmp_path: Path):
    with pytest.raises(DataError, match="nothing does not exist"):
        read_any(tmp_path / "nothing")


def test_a_folder_with_too_many_files_is_refused_instead_of_read_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "MAX_FILES", 2)
    for number in range(3):
        (tmp_path / f"{number}.jsonl").touch()
    with pytest.raises(DataError, match=r"has 3 files, expected at most 2\. Give a folder with fewer"):
        read_any(tmp_path)
