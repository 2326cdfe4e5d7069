"""Rows in the shapes of published data sets, made by hand with their real field names."""

from __future__ import annotations

import csv as standard_csv
import json
from pathlib import Path
from typing import Any

import pytest

from ansatz.data.base import load_problems
from ansatz.data.jsonl import jsonl
from ansatz.data.unfit import collect_lost, collect_unfit
from ansatz.errors import ConfigError, DataError
from ansatz.types import Problem

SHARED = Path(__file__).parents[3] / "shared" / "data"
ASKED = "What is $1+1$?"
BOXED = "Adding gives $1+1=2$, so the sum is $\\boxed{2}$."
TURNS = [{"role": "user", "content": ASKED}, {"role": "assistant", "content": BOXED}]
PYTHON = "```python\nprint(1 + 1)\n```\n```output\n2\n```\nThe answer is $\\boxed{2}$."


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def read(folder: Path, *rows: Any, **settings: Any) -> list[Problem]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return list(jsonl(split="train", path=str(path), **settings))


SHAPES: dict[str, tuple[Any, str | None]] = {  # row, solution
    "gsm8k": ({"question": ASKED, "answer": "1+1=<<1+1=2>>2\n#### 2"}, "1+1=<<1+1=2>>2\n#### 2"),
    "math": ({"problem": ASKED, "level": "Level 1", "type": "Prealgebra", "solution": BOXED}, BOXED),
    "math500": (
        {
            "problem": ASKED,
            "solution": BOXED,
            "answer": "2",
            "subject": "Prealgebra",
            "level": 1,
            "unique_id": "test/prealgebra/1.json",
        },
        BOXED,
    ),
    "numina_cot": ({"source": "aops_forum", "problem": ASKED, "solution": BOXED, "messages": TURNS}, BOXED),
    "numina_tir": ({"problem": ASKED, "solution": PYTHON, "messages": TURNS}, PYTHON),
    "numina_1.5": (
        {
            "problem": ASKED,
            "solution": BOXED,
            "answer": "2",
            "problem_type": "Algebra",
            "question_type": "math-word-problem",
            "problem_is_valid": "Yes",
            "source": "olympiads",
            "synthetic": False,
        },
        BOXED,
    ),
    "open_reasoner_zero": (
        [{"from": "human", "value": ASKED}, {"from": "assistant", "ground_truth": {"value": "2", "pass_at_n": 0.5}}],
        None,
    ),
    "areal_boba": (
        {
            "prompt": f"<|User|>\n{ASKED}\nPlease reason step by step, and put your final answer within \\boxed{{}}."
            "<|Assistant|><think>\n",
            "task": "math",
            "query_id": "fe11b471-1aa9-4867-958f-a0a811c85f92",
            "solutions": ["\\boxed{2}"],
        },
        "\\boxed{2}",
    ),
    "dapo_17k": (
        {
            "data_source": "math_dapo",
            "prompt": user(
                "Solve the following math problem step by step. The last line of your response should be of the form "
                "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
                f'{ASKED}\n\nRemember to put your answer on its own line after "Answer:".'
            ),
            "ability": "MATH",
            "reward_model": {"ground_truth": "2", "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": "9a9b6eb4-a1cb-49d1-8c1e-62eaf2f74079"},
        },
        None,
    ),
    "dapo_processed": (
        {
            "prompt": ASKED,
            "solution": "2",
            "data_source": "math_dapo",
            "ability": "MATH",
            "reward_model": {"ground_truth": "2", "style": "rule-lighteval/MATH_v2"},
        },
        "2",
    ),
    "deepmath": (
        {
            "question": ASKED,
            "final_answer": "2",
            "difficulty": 4.5,
            "topic": "Mathematics -> Algebra -> Prealgebra",
            "r1_solution_1": "Okay. 2.",
            "r1_solution_2": "Hm. 2.",
            "r1_solution_3": "So 2.",
        },
        "Okay. 2.",
    ),
    "openr1": (
        {
            "problem": ASKED,
            "solution": "The sum is 2.",
            "answer": "2",
            "problem_type": "Algebra",
            "question_type": "math-word-problem",
            "source": "olympiads",
            "uuid": "586fd646-76d6-5070-8c81-9993ab9d8559",
            "is_reasoning_complete": [True, True],
            "generations": ["<think>Hm.</think> \\boxed{2}", "<think>So.</think> \\boxed{2}"],
            "correctness_math_verify": [True, False],
            "correctness_count": 1,
            "finish_reasons": None,
            "messages": TURNS,
        },
        "The sum is 2.",
    ),
    "metamath": (
        {
            "type": "MATH_AnsAug",
            "query": ASKED,
            "original_question": ASKED,
            "response": "We add 1 and 1 to get 2.\nThe answer is: 2",
        },
        "We add 1 and 1 to get 2.\nThe answer is: 2",
    ),
    "trl_text": ({"prompt": ASKED, "ground_truth": "2"}, None),
    "trl_messages": ({"prompt": user(ASKED), "ground_truth": ["2"]}, None),
    "trl_completion": ({"prompt": user(ASKED), "completion": TURNS[1:]}, BOXED),
    "verl_gsm8k": (
        {
            "data_source": "openai/gsm8k",
            "prompt": user(ASKED + ' Let\'s think step by step and output the final answer after "####".'),
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": "2"},
            "extra_info": {"split": "train", "index": 0, "answer": "1+1=2\n#### 2", "question": ASKED},
        },
        None,
    ),
    "chat": ({"messages": TURNS}, BOXED),
    "sharegpt": (
        {"id": "x_0", "conversations": [{"from": "human", "value": ASKED}, {"from": "gpt", "value": BOXED}]},
        BOXED,
    ),
    "capitals": ({"Problem": ASKED, "Answer": 2, "ID": "a-1"}, None),
    "blanks_around_names": ({" Question ": ASKED, "Ground_Truth ": "2"}, None),
    "conversation": ({"conversation": TURNS}, BOXED),
    "chat_in_capitals": ({"Messages": [{"Role": "User", "Content": ASKED}, {"Role": "GPT", "Content": BOXED}]}, BOXED),
    "sharegpt_text": ({"conversations": [{"from": "human", "text": ASKED}, {"from": "bot", "text": BOXED}]}, BOXED),
    "chat_as_json": ({"messages": json.dumps(TURNS)}, BOXED),
    "verl_as_json": ({"prompt": json.dumps(user(ASKED)), "reward_model": '{"ground_truth": "2"}'}, None),
    "chat_as_python": ({"prompt": str(user(ASKED)), "completion": str(TURNS[1:])}, BOXED),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_published_shape_is_read_without_keys(tmp_path: Path, shape: str) -> None:
    row, solution = SHAPES[shape]
    (problem,) = read(tmp_path, row)
    assert (problem.question, problem.answer, problem.solution) == (ASKED, "2", solution)


@pytest.mark.parametrize(
    ("shape", "row_id", "level"),
    [
        ("math500", "test/prealgebra/1.json", "1"),
        ("openr1", "586fd646-76d6-5070-8c81-9993ab9d8559", ""),
        ("sharegpt", "x_0", ""),
        ("capitals", "a-1", ""),
        ("deepmath", None, "4.5"),
        ("math", None, "Level 1"),
    ],
)
def test_ids_and_levels_are_recognised(tmp_path: Path, shape: str, row_id: str | None, level: str) -> None:
    (problem,) = read(tmp_path, SHAPES[shape][0])
    assert (problem.id, problem.level) == (row_id or f"{tmp_path.name}/rows:1", level)


PUZZLES: dict[str, Any] = {
    "tinyzero": {"target": 98, "nums": [44, 19, 35]},
    "verl": {
        "data_source": "countdown",
        "prompt": user("Using the numbers [44, 19, 35], create an equation that equals 98."),
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": {"target": 98, "numbers": [44, 19, 35]}},
    },
}


@pytest.mark.parametrize("shape", PUZZLES)
def test_countdown_puzzles_give_the_reward_their_numbers_and_target(tmp_path: Path, shape: str) -> None:
    (problem,) = read(tmp_path, PUZZLES[shape])
    assert (problem.meta["nums"], problem.meta["target"], problem.answer) == ([44, 19, 35], 98, "98")
    assert "44, 19, 35" in problem.question
    assert "98" in problem.question


def test_solutions_are_read_by_their_boxes_even_if_most_of_the_first_rows_have_none(tmp_path: Path) -> None:
    """NuminaMath contains proofs without a box; the first rows can be proofs."""
    proof = "Follows by symmetry of the figure."
    rows = [{"problem": ASKED, "solution": text} for text in (proof, proof, BOXED)]
    with collect_unfit() as unfit:
        problems = read(tmp_path, *rows)
    assert [problem.answer for problem in problems] == ["2"]
    assert [(row.place.rpartition("/")[2], row.gold) for row in unfit] == [
        ("rows.jsonl line 1", repr(proof)),
        ("rows.jsonl line 2", repr(proof)),
    ]
    assert "has no \\boxed{ANSWER} in it" in unfit[0].reason


def test_outside_of_a_collection_the_first_unfit_row_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"rows\.jsonl line 2: the row has no field 'answer'"):
        read(tmp_path, {"question": ASKED, "answer": "2"}, {"question": ASKED})


def test_a_demonstration_without_a_final_answer_has_none(tmp_path: Path) -> None:
    story = "Once upon a time there was a triangle. " * 5
    turns = [{"from": "human", "value": "Tell a story."}, {"from": "gpt", "value": story}]
    (problem,) = read(tmp_path, {"conversations": turns})
    assert (problem.answer, problem.solution) == ("", story.strip())


def test_a_system_prompt_and_earlier_turns_are_kept(tmp_path: Path) -> None:
    turns = [{"role": "system", "content": "Be brief."}, *TURNS, *user("And $2+2$?")]
    (problem,) = read(tmp_path, {"prompt": turns, "ground_truth": "4"})
    assert problem.question == "And $2+2$?"
    assert [turn["role"] for turn in problem.meta["earlier_turns"]] == ["system", "user", "assistant"]
    assert problem.meta["earlier_turns"][0]["content"] == "Be brief."
    assert "earlier_turns" not in read(tmp_path, SHAPES["trl_messages"][0])[0].meta


def test_an_unknown_name_is_suggested_for_the_setting(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"recognised as the question; .* Perhaps 'instruction' is the question\."):
        read(tmp_path, {"instruction": ASKED, "answer": "2"})
    with pytest.raises(DataError, match=r"recognised as the answer; .* Perhaps 'label' is the answer\."):
        read(tmp_path, {"question": ASKED, "label": "2"})


def test_headers_of_a_table_can_be_written_in_any_case(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = standard_csv.writer(file)
        writer.writerows([["Question", " ANSWER", "Topic"], [ASKED, "2", "sums"]])
    (problem,) = load_problems("csv", split="train", settings={"path": str(path)})
    assert (problem.question, problem.answer, problem.meta) == (ASKED, "2", {"Topic": "sums", "line": 2})


def test_several_files_and_patterns_are_read_in_order(tmp_path: Path) -> None:
    for name in ("b", "a", "other"):
        (tmp_path / f"part-{name}.jsonl").write_text(
            "".join(json.dumps({"question": f"{name}{i}?", "answer": i}) + "\n" for i in range(2))
        )
    pattern = str(tmp_path / "part-?.jsonl")
    problems = load_problems("jsonl", split="train", settings={"path": pattern})
    assert [problem.question for problem in problems] == ["a0?", "a1?", "b0?", "b1?"]
    assert len({problem.id for problem in problems}) == 4
    both = [str(tmp_path / "part-other.jsonl"), pattern]
    problems = load_problems("jsonl", split="train", settings={"path": both, "limit": 3})
    assert [problem.question for problem in problems] == ["other0?", "other1?", "a0?"]
    with pytest.raises(DataError, match="no file matches the pattern"):
        load_problems("jsonl", split="train", settings={"path": str(tmp_path / "none-*.jsonl")})


@pytest.mark.skipif(not SHARED.is_dir(), reason="the public data files (../shared/data) are not here")
def test_all_shared_files_are_read_without_keys() -> None:
    for path in sorted(SHARED.glob("*/*.jsonl")):
        stated = [json.loads(line) for line in path.read_text(encoding="utf-8").strip().split("\n")]
        problems = list(jsonl(split="test", path=str(path)))
        assert len(problems) == len(stated), path
        for row, problem in zip(stated, problems, strict=True):
            if not path.name.startswith("original"):
                assert problem.id == row["id"]
                assert problem.question == row["problem"].strip()
                assert problem.answer == str(row["answer"]).strip()


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so $x = \\boxed 2$.", "2"),
        ("$\\boxed -3.5.$", "-3.5"),
        ("it is \\boxed 9", "9"),
        ("\\boxed{1} and \\boxed 2", "2"),
        ("\\boxed 1 and \\boxed{2}", "2"),
    ],
)
def test_a_number_can_be_boxed_without_braces(tmp_path: Path, text: str, answer: str) -> None:
    """Two solutions of MATH's training file write their answer in this way."""
    (problem,) = read(tmp_path, {"problem": ASKED, "solution": text})
    assert problem.answer == answer


def test_a_list_of_numbers_is_an_answer_and_a_text_in_quotes_is_a_text(tmp_path: Path) -> None:
    row = {"question": '{"a": 1} is a set?', "answer": "[1, 2]"}
    assert [(each.question, each.answer) for each in read(tmp_path, row)] == [(row["question"], "[1, 2]")]
    assert read(tmp_path, {"question": ASKED, "answer": '{"red", "blue"}'})[0].answer == '{"red", "blue"}'


@pytest.mark.parametrize("cut", [json.dumps(TURNS)[:-1], "[{'role': 'user', 'content': 'a'}\n {'role': 'x'}]"])
def test_a_chat_that_is_broken_json_is_not_a_question(tmp_path: Path, cut: str) -> None:
    with pytest.raises(DataError, match="line 1: the field 'prompt' begins as a list of messages, but is not valid"):
        read(tmp_path, {"prompt": cut, "answer": "2"})


@pytest.mark.parametrize("shape", [*SHAPES, *PUZZLES])
def test_a_published_shape_can_be_a_csv_file(tmp_path: Path, shape: str) -> None:
    """Lists and objects become JSON in the cells."""
    row = SHAPES[shape][0] if shape in SHAPES else PUZZLES[shape]
    if not isinstance(row, dict):
        pytest.skip("a list is not a row of a table")
    (expected,) = read(tmp_path, row)
    with (tmp_path / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = standard_csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow({key: json.dumps(v) if isinstance(v, list | dict) else v for key, v in row.items()})
    (problem,) = load_problems("csv", split="train", settings={"path": str(tmp_path / "rows.csv")})
    assert (problem.question, problem.answer, problem.solution) == (
        expected.question,
        expected.answer,
        expected.solution,
    )
    assert [problem.meta.get(key) for key in ("nums", "target")] == [
        expected.meta.get(key) for key in ("nums", "target")
    ]


GPQA = {
    "Pre-Revision Question": "Old?",
    "Question": ASKED,
    "Correct Answer": "2\n",
    "Incorrect Answer 1": "3",
    "Incorrect Answer 2": " 4",
    "Incorrect Answer 3": "5",
    "Explanation": "Adding.",
    "High-level domain": "Physics",
    "Record ID": "rec1",
}


def test_columns_of_gpqa_become_lettered_options(tmp_path: Path) -> None:
    (problem,) = read(tmp_path, GPQA)
    question, options, request = problem.question.split("\n\n")
    assert (problem.id, question, request) == ("rec1", ASKED, "Answer with the letter of the right option.")
    assert sorted(line[3:] for line in options.splitlines()) == ["2", "3", "4", "5"]
    assert f"{problem.answer}) 2" in options
    shouted = {key.upper(): value for key, value in GPQA.items()}
    assert read(tmp_path, shouted)[0].question == problem.question
    zero = {**GPQA, "Correct Answer": 2, "Incorrect Answer 1": 0, "Incorrect Answer 2": None, "Incorrect Answer 3": " "}
    (problem,) = read(tmp_path, zero)
    assert sorted(line[3:] for line in problem.question.split("\n\n")[1].splitlines()) == ["0", "2"]


def test_a_correct_answer_without_wrong_ones_is_an_open_question(tmp_path: Path) -> None:
    (problem,) = read(tmp_path, {"Question": ASKED, "Correct Answer": "2"})
    assert (problem.question, problem.answer) == (ASKED, "2")


def test_a_field_answer_is_preferred_to_the_columns_of_gpqa(tmp_path: Path) -> None:
    (problem,) = read(tmp_path, {**GPQA, "answer": "7"})
    assert (problem.question, problem.answer) == (ASKED, "7")


def test_a_story_and_its_question_in_two_fields_are_one_question(tmp_path: Path) -> None:
    row = {"body": "Ann has 7 red apples.", "question": "How many has she?", "answer": "7 (apples)", "formula": "3+4=7"}
    published = {name.capitalize(): text for name, text in row.items()} | {"Answer": 7.0}
    for each in (row, published):
        with collect_lost() as lost:
            (problem,) = read(tmp_path, each)
        assert problem.question == "Ann has 7 red apples. How many has she?"
        assert float(problem.answer) == 7
        assert "body" not in {*map(str.casefold, problem.meta), *map(str.casefold, lost)}
    (problem,) = read(tmp_path, row, question_key="body")
    assert problem.question == row["body"]


@pytest.mark.parametrize(
    ("written", "gold"),
    [
        ("9 (apples)", "9"),
        ("-3 (degrees Celsius)", "-3"),
        ("1,250 (sq. feet)", "1,250"),
        ("2.5 (kg)", "2.5"),
        ("3/4 (of the cake)", "3/4"),
        ("Westford location", "Westford location"),
        ("4:1", "4:1"),
        ("2 (3)", "2 (3)"),
        ("f(x)", "f(x)"),
        ("12 (cents per apple)", "12"),
        ("7 (girls' shoes)", "7"),
        ("2 (x+y)", "2 (x+y)"),
        ("3 (a*b)", "3 (a*b)"),
        ("5 (n!)", "5 (n!)"),
        ("(2, 3)", "(2, 3)"),
        ("10 (feet); 5 (feet)", "10 (feet); 5 (feet)"),
    ],
)
def test_a_unit_in_parentheses_does_not_belong_to_the_gold(tmp_path: Path, written: str, gold: str) -> None:
    rows = [{"question": ASKED, "answer": "2 (pens)"}, {"question": ASKED, "answer": "3 (pens)"}]
    for settings in ({}, {"answer_from": "unit"}):
        problems = read(tmp_path, *rows, {"question": ASKED, "answer": written}, **settings)
        assert [problem.answer for problem in problems] == ["2", "3", gold]
        assert problems[0].solution is None
    (problem,) = read(tmp_path, {"question": ASKED, "answer": written}, answer_from="field")
    assert problem.answer == written


def test_a_column_of_other_golds_keeps_its_parentheses(tmp_path: Path) -> None:
    rows = [{"question": ASKED, "answer": text} for text in ("2", "3", "4 (pens)")]
    assert [problem.answer for problem in read(tmp_path, *rows)] == ["2", "3", "4 (pens)"]
    assert read(tmp_path, {"question": ASKED, "answer": "2 (x)"})[0].answer == "2 (x)"


def test_an_answer_form_ends_every_worked_solution(tmp_path: Path) -> None:
    rows = [{"question": ASKED, "answer": "2 (pens)", "formula": "1+1=2"}, {"question": ASKED, "answer": "3 (pens)"}]
    form = "The answer is \\boxed{{answer}}."
    problem, _ = read(tmp_path, rows[0], {**rows[1], "formula": "1+2=3"}, solution_key="formula", answer_form=form)
    assert problem.solution == "1+1=2\nThe answer is \\boxed{2}."
    (problem,) = read(tmp_path, {"question": ASKED, "answer": "1+1=2\n#### 2"}, answer_form="\\boxed{{answer}}")
    assert problem.solution == "1+1=2\n#### 2\n\\boxed{2}"
    (problem,) = read(tmp_path, rows[1], answer_form=form)
    assert problem.solution is None
    for wrong in ("The answer.", "{answer} {answer}"):
        with pytest.raises(ConfigError, match=r"expected \{answer\} in it exactly once"):
            read(tmp_path, rows[1], answer_form=wrong)
