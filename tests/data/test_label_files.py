"""Labelled responses in the record shapes of published data, from files and from data sets of the hub."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ansatz.data.given_rows import FileRows, HubRows, bind_given
from ansatz.data.label_files import (
    LABELS,
    read_labelled_responses,
    read_labelled_steps,
    read_unpaired,
    with_mismatched,
)
from ansatz.data.pair_files import read_pairs
from ansatz.data.pairs import Answered, PairSettings, make_pairs, rejected_of
from ansatz.data.unfit import collect_unfit
from ansatz.errors import ConfigError, DataError
from ansatz.rewards.reasoning_steps import joined_steps
from ansatz.types import Problem

STEPS = ["2 + 2 = 4", "4 * 3 = 13"]
NUMBERED = [f"Step {number}: {step}" for number, step in enumerate(STEPS, start=1)]
RATED = [
    {"completions": [{"text": "no", "rating": -1}, {"text": STEPS[0], "rating": 0}], "chosen_completion": 1},
    {"completions": [{"text": STEPS[1], "rating": -1}], "chosen_completion": None, "human_completion": None},
    {"completions": [{"text": "not reached", "rating": 1}], "chosen_completion": 0},
]
SHAPES: dict[str, dict[str, Any]] = {
    "trl": {"prompt": "2 + 2, times 3?", "completions": STEPS, "labels": [True, False]},
    "trl with numbers": {
        "prompt": [{"role": "user", "content": "2 + 2, times 3?"}],
        "steps": STEPS,
        "labels": [1, 0.0],
    },
    "prm800k": {"question": {"problem": "2 + 2, times 3?"}, "label": {"steps": RATED, "finish_reason": "found_error"}},
    "processbench": {"id": "gsm8k-1", "problem": "2 + 2, times 3?", "steps": [*STEPS, "12"], "label": 1},
}
NUMBERED_SHAPES: dict[str, dict[str, Any]] = {
    "math-shepherd": {
        "input": f"2 + 2, times 3? {NUMBERED[0]} \u043a\u0438\n{NUMBERED[1]} \u043a\u0438",
        "label": f"2 + 2, times 3? {NUMBERED[0]} +\n{NUMBERED[1]} -",
        "task": "GSM8K",
    },
    "rlhflow": {
        "conversations": [
            {"role": "user", "content": f"2 + 2, times 3? {NUMBERED[0]}"},
            {"role": "assistant", "content": "+"},
            {"role": "user", "content": NUMBERED[1]},
            {"role": "assistant", "content": "-"},
        ]
    },
}


def written(folder: Path, *rows: Any) -> FileRows:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return FileRows(path=str(path))


def read(given, *, at: Any = "line"):
    problems = read_labelled_steps(given, join=partial(joined_steps, at=at))
    return [(problem.question, problem.solution, problem.meta[LABELS]) for problem in problems]


@pytest.mark.parametrize("name", SHAPES)
def test_steps_of_published_data_give_the_same_response_and_labels(tmp_path, name) -> None:
    assert read(written(tmp_path, SHAPES[name])) == [("2 + 2, times 3?", "\n".join(STEPS), [1.0, 0.0])]


@pytest.mark.parametrize("name", NUMBERED_SHAPES)
def test_the_question_ends_where_the_first_numbered_step_begins(tmp_path, name) -> None:
    assert read(written(tmp_path, NUMBERED_SHAPES[name])) == [("2 + 2, times 3?", "\n".join(NUMBERED), [1.0, 0.0])]


def test_steps_are_joined_so_that_they_are_found_again(tmp_path) -> None:
    given = written(tmp_path, SHAPES["trl"])
    assert read(given, at="blank_line")[0][1] == "2 + 2 = 4\n\n4 * 3 = 13"
    assert read(given, at={"marker": "<step>"})[0][1] == "2 + 2 = 4 <step>\n4 * 3 = 13 <step>"
    with pytest.raises(DataError, match=r"its 2 steps with labels are not those of step_end: sentence, which finds 1"):
        read(given, at="sentence")


def test_a_response_without_an_error_keeps_all_steps(tmp_path) -> None:
    right = {"problem": "?", "steps": ["a", "b"], "label": -1}
    written_by_people = {**RATED[0], "chosen_completion": None, "human_completion": {"text": "by hand", "rating": None}}
    rated = {"question": {"problem": "?"}, "label": {"steps": [written_by_people, RATED[0]]}}
    rows = read(written(tmp_path, right, rated))
    assert [row[1:] for row in rows] == [("a\nb", [1.0, 1.0]), (f"by hand\n{STEPS[0]}", [1.0, 1.0])]


def test_a_response_can_have_one_label(tmp_path) -> None:
    rows = [
        {"prompt": "1 + 1?", "completion": "2", "label": True},
        {
            "prompt": [{"role": "user", "content": "1 + 1?"}],
            "completion": [{"role": "assistant", "content": "3"}],
            "label": 0.25,
        },
    ]
    problems = read_labelled_responses(written(tmp_path, *rows))
    found = [(problem.question, problem.solution, problem.meta[LABELS]) for problem in problems]
    assert found == [("1 + 1?", "2", [1.0]), ("1 + 1?", "3", [0.25])]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"prompt": "?", "completion": "a"}, "has no list of steps with labels (its fields: 'prompt', 'completion')"),
        ({"prompt": "?", "completions": ["a"], "labels": [1, 0]}, "'labels' is [1, 0], expected a list of 1 labels"),
        ({"prompt": "?", "completions": ["a"], "labels": [2]}, "a label is 2, expected true or false, + or -"),
        ({"prompt": "?", "completions": ["a"], "labels": ["good"]}, "a label is 'good', expected true or false"),
        ({"prompt": "?", "steps": ["a"], "label": 1}, "'label' is 1, expected the index of the first wrong of 1 steps"),
        ({"prompt": "?", "steps": ["a"]}, "'label' is None, expected the index"),
        (
            {"prompt": "?", "completions": ["a\nb"], "labels": [1]},
            "its 1 steps with labels are not those of step_end: line",
        ),
        ({"completions": ["a"], "labels": [1]}, "the row has no prompt (its fields: 'completions', 'labels')"),
        ({"input": "? Step 1: a", "label": "? Step 1: a"}, "expected the text of 'input' with + or -"),
        ({"conversations": [{"role": "user", "content": "?"}]}, "are not steps with labels"),
        ({"question": {"problem": "?"}, "label": {"steps": []}}, "the row has no step with a label"),
    ],
    ids=str,
)
def test_a_row_without_steps_is_refused_with_its_line_or_collected(tmp_path, row, sentence) -> None:
    given = written(tmp_path, SHAPES["trl"], row)
    with pytest.raises(DataError) as error:
        read(given)
    assert "rows.jsonl line 2" in str(error.value)
    assert sentence in str(error.value)
    with collect_unfit() as unfit:
        assert len(read(given)) == 1
    assert len(unfit) == 1


def test_a_response_without_a_label_is_refused(tmp_path) -> None:
    with pytest.raises(DataError, match=r"no response with a label .*Expected prompt, completion and label"):
        read_labelled_responses(written(tmp_path, {"prompt": "?", "chosen": "a", "rejected": "b"}))


def unpaired(prompt: str, completion: str, label: Any) -> dict[str, Any]:
    return {"prompt": prompt, "completion": completion, "label": label}


def mismatched(folder: Path, *rows: Any) -> list[tuple[str, str, float, str]]:
    """(prompt, response, label, mismatched response) of each."""
    return [
        (each.question, each.solution, each.meta[LABELS][0], rejected_of(each).solution)
        for each in with_mismatched(read_unpaired(written(folder, *rows)))
    ]


def test_a_mismatched_response_is_that_of_the_next_row_if_all_prompts_differ(tmp_path) -> None:
    rows = [unpaired("x1", "y1", True), unpaired("x2", "y2", "false"), unpaired("x3", "y3", 1)]
    assert mismatched(tmp_path, *rows) == [("x1", "y1", 1, "y2"), ("x2", "y2", 0, "y3"), ("x3", "y3", 1, "y1")]


@pytest.mark.parametrize("prompts", ["aab", "abab", "aaaab", "abcabcaaa", "aabbbc", "abbbbbbbbb"])
def test_a_mismatched_response_is_never_one_to_the_same_prompt(tmp_path, prompts) -> None:
    rows = [unpaired(prompt, f"{prompt}{place}", place % 2 == 0) for place, prompt in enumerate(prompts)]
    found = mismatched(tmp_path, *rows)
    assert sorted(response for _, response, _, _ in found) == sorted(row["completion"] for row in rows)
    assert all(prompt == response[0] != other[0] for prompt, response, _, other in found)
    largest = max(map(prompts.count, set(prompts)))
    assert len({other for *_, other in found}) >= min(largest, len(prompts) - largest)  # not one for all


def test_equal_questions_after_other_turns_are_other_prompts(tmp_path) -> None:
    rows = [
        unpaired(
            [
                {"role": "user", "content": said},
                {"role": "assistant", "content": "Hi"},
                {"role": "user", "content": "?"},
            ],
            *answer,
        )
        for said, answer in (("a", ("1", True)), ("b", ("2", False)))
    ]
    assert [row[1::2] for row in mismatched(tmp_path, *rows)] == [("1", "2"), ("2", "1")]


def test_a_pair_counts_as_a_desirable_and_an_undesirable_response(tmp_path) -> None:
    rows = [{"prompt": "x1", "chosen": "4", "rejected": "5"}, unpaired("x2", "6", False)]
    assert mismatched(tmp_path, *rows) == [("x1", "4", 1, "6"), ("x1", "5", 0, "6"), ("x2", "6", 0, "4")]


def test_a_mismatched_response_has_its_own_tokens_and_what_was_observed_in_it() -> None:
    a, b = (Problem(id=name, question=name, source="test", split="train") for name in "ab")
    sampled = Answered(sample=0, text="a1", tokens=2, correct=True, answer="1", observations=[[0, 1]], token_ids=[5, 6])
    wrong = Answered(sample=1, text="a2", tokens=1, correct=False, answer="2", token_ids=[7])
    (pair,) = make_pairs([a], {"a": [sampled, wrong]}, PairSettings(), seed=0).pairs
    plain = replace(b, solution="b1", meta={LABELS: [1.0]})
    found = [
        [
            (each.solution, list(each.response_ids), list(each.observations))
            for each in (response, rejected_of(response))
        ]
        for response in with_mismatched([pair, plain])
    ]
    first, second, third = ("a1", [5, 6], [[0, 1]]), ("a2", [7], []), ("b1", [], [])
    assert found == [[first, third], [second, third], [third, first]]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([unpaired("a", "1", True), unpaired("b", "2", True)], "the labels of 2 responses are 2 x true and 0 x false"),
        ([unpaired("a", "1", 0)], "the labels of 1 responses are 0 x true and 1 x false"),
        ([unpaired("a", "1", True), unpaired("a", "2", False)], "all 2 responses are to the same prompt"),
        ([unpaired("a", "1", None)], "rows.jsonl line 1: a label is None, expected true or false"),
        ([unpaired("a", "1", "good")], "rows.jsonl line 1: a label is 'good', expected true or false"),
        ([unpaired("a", "1", 0.25)], "rows.jsonl line 1: the label is 0.25, expected true or false"),
        (
            [{"prompt": "a", "completion": "1"}],
            "the row has no response with a label (its fields: 'prompt', 'completion')",
        ),
        ([{"prompt": "a", "chosen": "1"}], "the row has no field 'rejected'"),
    ],
    ids=str,
)
def test_rows_that_kto_cannot_learn_from_are_refused_in_a_sentence(tmp_path, rows, sentence) -> None:
    with pytest.raises(DataError) as error:
        mismatched(tmp_path, *rows)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_the_gap_of_scores_is_refused_for_labelled_responses(tmp_path) -> None:
    given = FileRows(path=written(tmp_path, unpaired("a", "1", True)).path, min_gap=0.5)
    with pytest.raises(DataError, match=r"min_gap = 0.5 has no effect on a labelled response; remove it"):
        read_unpaired(given)


def test_a_data_set_gives_the_rows_of_a_file(tmp_path) -> None:
    datasets = pytest.importorskip("datasets", reason="the extra datasets is not installed")
    pair = {"prompt": "1 + 1?", "chosen": "2", "rejected": "3"}
    for name, row in (("steps", SHAPES["trl"]), ("pairs", pair)):
        both = datasets.DatasetDict(
            {"train": datasets.Dataset.from_list([row]), "test": datasets.Dataset.from_list([row])}
        )
        both.save_to_disk(str(tmp_path / name))
    (labelled,) = read(HubRows(dataset=str(tmp_path / "steps"), split="test"))
    assert labelled == read(written(tmp_path, SHAPES["trl"]))[0]
    (found,) = read_pairs(HubRows(dataset=str(tmp_path / "pairs")))
    assert (found.id, found.question, found.solution) == ("pairs-1", "1 + 1?", "2")
    assert rejected_of(found).solution == "3"
    with pytest.raises(DataError, match=r"has no split 'dev'; its splits are 'train', 'test'\. Set split\."):
        read_pairs(HubRows(dataset=str(tmp_path / "pairs"), split="dev"))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"source": "flie", "path": "a"}, "reward_model.data.source = 'flie' is unknown. Did you mean 'file'?"),
        ({"path": "a"}, "reward_model.data.source = None is unknown."),
        ({"source": "hub"}, "reward_model.data.dataset is missing. Give the data set"),
        ({"source": "file"}, "reward_model.data.path is missing. Give the file"),
        ({"source": "file", "path": "a", "limit": 0}, "reward_model.data.limit = 0: expected 1 or more"),
        ({"source": "file", "path": "a", "split": "b"}, "reward_model.data with source file has no setting 'split'"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused_in_a_sentence(settings, sentence) -> None:
    with pytest.raises(ConfigError) as error:
        bind_given(settings, key="reward_model.data")
    assert sentence in str(error.value)
