"""Preference pairs: from files of published shapes, and from graded responses."""

from __future__ import annotations

import json

import pytest

from ansatz.data.given_rows import FileRows
from ansatz.data.pair_files import read_pairs
from ansatz.data.pairs import Answered, PairSettings, make_pairs, rejected_of
from ansatz.data.unfit import collect_unfit
from ansatz.errors import DataError
from ansatz.types import Problem

USER = {"role": "user", "content": "What is 2 + 2?"}


def said(text):
    return {"role": "assistant", "content": text}


def pairs_of(tmp_path, *rows, **settings):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [
        (pair.question, pair.solution, rejected_of(pair).solution, [turn["role"] for turn in pair.earlier_turns])
        for pair in read_pairs(FileRows(path=str(path), **settings))
        if pair is not None
    ]


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "What is 2 + 2?", "chosen": " 4.", "rejected": " 5."},
        {"prompt": [USER], "chosen": [said("4.")], "rejected": [said("5.")]},
        {"chosen": [USER, said("4.")], "rejected": [USER, said("5.")]},
        {"prompt": "What is 2 + 2?", "chosen": [USER, said("4.")], "rejected": [USER, said("5.")], "score_chosen": 8.0},
        {
            "instruction": "What is 2 + 2?",
            "completions": [
                {"response": "It may be 4.", "overall_score": 6.5, "model": "b"},
                {"response": "5.", "overall_score": 2.0, "model": "c"},
                {"response": "4.", "overall_score": 9.0, "model": "a"},
            ],
        },
        {"prompt": "What is 2 + 2?", "responses": ["5.", "4.", "four"], "scores": [0.1, 0.9, 0.5]},
    ],
    ids=["trl text", "trl messages", "trl implicit prompt", "ultrafeedback binarized", "ultrafeedback", "scored"],
)
def test_the_record_shapes_of_published_data_give_the_same_pair(tmp_path, row) -> None:
    assert pairs_of(tmp_path, row) == [("What is 2 + 2?", "4.", "5.", [])]


def test_the_turns_before_the_question_are_its_context(tmp_path) -> None:
    before = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}, said("Hi")]
    row = {"chosen": [*before, USER, said("4.")], "rejected": [*before, USER, said("5.")]}
    assert pairs_of(tmp_path, row) == [("What is 2 + 2?", "4.", "5.", ["system", "user", "assistant"])]


def test_rows_with_a_small_difference_of_scores_are_left_out(tmp_path) -> None:
    rows = [{"prompt": "?", "responses": ["a", "b"], "scores": [1.0, 1.0 + gap]} for gap in (0.5, 2.0)]
    assert len(pairs_of(tmp_path, *rows)) == 2
    assert len(pairs_of(tmp_path, *rows, min_gap=1.0)) == 1
    assert len(pairs_of(tmp_path, *rows, limit=1)) == 1
    stated = [
        {"prompt": "?", "chosen": "a", "rejected": "b", "score_chosen": "3.5", "score_rejected": gap} for gap in (1, 5)
    ]
    assert len(pairs_of(tmp_path, *stated)) == 1  # the other one has the higher score


CALLS = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"function": {"name": "add", "arguments": {"a": 2, "b": 2}}}],
}
ANSWERED = {"role": "tool", "content": "4"}
PICTURE = [{"image": "a.png"}, {"text": "How many?"}]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"prompt": "?", "chosen": "a"}, "has no field 'rejected' (its fields: 'prompt', 'chosen')"),
        (
            {"prompt": "?", "completion": "a", "label": True},
            "Labelled responses need preference.losses: {kto: {}}, or reward_model.kind: correctness.",
        ),
        ({"chosen": "a", "rejected": "b"}, "the row has no prompt (its fields: 'chosen', 'rejected')"),
        ({"prompt": "?", "chosen": "a", "rejected": " a"}, "are the same text"),
        ({"prompt": "?", "chosen": "a", "rejected": ""}, "the rejected response is '', expected text or a chat"),
        ({"chosen": [USER, said("a")], "rejected": [said("b")]}, "differ before their last turn"),
        ({"prompt": "?", "responses": ["a", "b"], "scores": [1, 1]}, "all 2 responses in 'responses' have the score 1"),
        ({"prompt": "?", "responses": ["a", "b"], "scores": [1, "?"]}, "in responses is '?', expected a number"),
        ({"prompt": "?", "responses": ["a"], "scores": [1]}, "has 1 responses, expected two or more"),
        (
            {"prompt": "?", "chosen": "a", "rejected": "b", "score_chosen": "x"},
            "score_chosen is 'x', expected a number",
        ),
        ({"chosen": [USER, CALLS, ANSWERED, said("4")], "rejected": [USER, CALLS, ANSWERED, said("5")]}, "calls tools"),
        (
            {"prompt": "?", "chosen": [CALLS, ANSWERED, said("4")], "rejected": "5"},
            "calls tools, expected a single turn",
        ),
        ({"prompt": "?", "chosen": [said("a"), said("b")], "rejected": "5"}, "'chosen' has 2 turns"),
        ({"prompt": [USER, said("It is")], "chosen": "4", "rejected": "5"}, "end with the beginning of a response"),
        ({"prompt": [{"role": "user", "content": PICTURE}], "chosen": "4", "rejected": "5"}, "contain image, expected"),
    ],
    ids=str,
)
def test_a_row_that_is_no_pair_is_refused_with_its_line_or_collected(tmp_path, row, sentence) -> None:
    good = {"prompt": "?", "chosen": "a", "rejected": "b"}
    with pytest.raises(DataError) as error:
        pairs_of(tmp_path, good, row)
    assert "pairs.jsonl line 2" in str(error.value)
    assert sentence in str(error.value)
    with collect_unfit() as unfit:
        assert len(pairs_of(tmp_path, good, row)) == 1
    assert len(unfit) == 1


def test_a_setting_for_scores_needs_them_and_tools_reach_the_template(tmp_path) -> None:
    plain = {"prompt": "?", "chosen": "a", "rejected": "b"}
    with pytest.raises(DataError, match=r"min_gap = 2 needs the scores of both responses"):
        pairs_of(tmp_path, plain, min_gap=2)
    tools = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
    (tmp_path / "tools.jsonl").write_text(json.dumps({**plain, "tools": tools}) + "\n")
    (pair,) = read_pairs(FileRows(path=str(tmp_path / "tools.jsonl")))
    assert pair is not None
    assert pair.meta["tools"] == tools


PROBLEM = Problem(id="p", question="?", answers=("4",), source="test", split="train")


def responses(text):
    """ "4 =4 5 5 6:20" -> responses with these answers in words of their own; `=` is correct, `:` gives the length."""
    made = []
    for sample, word in enumerate(text.split()):
        answer, _, tokens = word.lstrip("=").partition(":")
        made.append(
            Answered(
                sample=sample,
                text=f"response number {sample} says {answer}",
                tokens=int(tokens or 10),
                correct=word.startswith("="),
                answer=answer if answer != "none" else None,
            )
        )
    return made


def pairs_from(text, **settings):
    made = make_pairs([PROBLEM], {"p": responses(text)}, PairSettings(**settings), seed=0)
    return [(pair.solution.split()[2], rejected_of(pair).solution.split()[-1]) for pair in made.pairs], made


def test_a_problem_gives_as_many_pairs_as_it_has_right_and_wrong_responses_up_to_the_limit() -> None:
    for text, per_prompt, expected in (
        ("=4 5", 3, 1),
        ("=4 =4 =4 5", 3, 1),
        ("=4 =4 =4 5 6 7", 2, 2),
        ("=4 =4", 3, 0),
        ("5 6", 3, 0),
        ("", 3, 0),
    ):
        pairs, made = pairs_from(text, per_prompt=per_prompt)
        assert len(pairs) == expected == made.counts["pairs"], text
        assert len({chosen for chosen, _ in pairs}) == len(pairs)  # no response twice
        assert made.counts["paired_problems"] == (expected > 0)


def test_the_hardest_wrong_response_is_one_with_the_most_frequent_wrong_answer() -> None:
    text = "=4 5 6 7 6 none none none"
    assert pairs_from(text, per_prompt=1, pick="hardest", balance_lengths=False)[0][0][1] == "6"
    seen = {
        rejected_of(pair).solution.split()[-1]
        for seed in range(30)
        for pair in make_pairs(
            [PROBLEM],
            {"p": responses(text)},
            PairSettings(per_prompt=1, pick="random", balance_lengths=False),
            seed=seed,
        ).pairs
    }
    assert seen == {"5", "6", "7", "none"}


def test_balanced_pairs_have_responses_of_similar_length_on_average() -> None:
    problems = [Problem(id=str(n), question="?", answers=("4",), source="test", split="train") for n in range(40)]
    each = {problem.id: responses("=4:20 =4:24 5:14 6:30 7:44 8:60") for problem in problems}
    gaps = {}
    for balanced in (True, False):
        settings = PairSettings(pick="random", balance_lengths=balanced)
        counts = make_pairs(problems, each, settings, seed=0).counts
        gaps[balanced] = abs(counts["chosen_tokens"] - counts["rejected_tokens"])
    assert gaps[True] < 1 < 10 < gaps[False]


def test_repeated_responses_count_once() -> None:
    same = [
        Answered(sample=n, text=text, tokens=5, correct=text == "It is 4", answer=text)
        for n, text in enumerate(["It is 4", "It is  4", "It is 5", "It is 5", "It is 5"])
    ]
    assert make_pairs([PROBLEM], {"p": same}, PairSettings(per_prompt=4), seed=0).counts["pairs"] == 1
