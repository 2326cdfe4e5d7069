from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from ansatz.data.word_problems import split_of, word_problems
from ansatz.errors import ConfigError
from ansatz.types import Problem
from tests.data.story_reader import solve

LEVELS = "23456"


@cache
def sample(split: str = "train", count: int = 8000, seed: int = 0, slip_rate: float = 0.0) -> tuple[Problem, ...]:
    return tuple(word_problems(split=split, count=count, seed=seed, slip_rate=slip_rate))


def equations(solution: str) -> list[tuple[int, str, int, int]]:
    matches = re.findall(r"^(\d+)([-+*/])(\d+)=(\d+)$", solution, flags=re.MULTILINE)
    return [(int(left), op, int(right), int(value)) for left, op, right, value in matches]


def holds(left: int, op: str, right: int, value: int) -> bool:
    return {"+": left + right == value, "-": left - right == value, "*": left * right == value}.get(
        op, left == right * value
    )


# A change of wording or of draws moves every data set and every figure measured on one: let it be seen here.
GOLDEN_QUESTION = (
    "At the shop, Jill has 28 buttons. Lena takes 7 buttons from Jill. Jill doubles the number of buttons. "
    "Jill swaps each button for 2 roses. So how many roses does Jill have?"
)
GOLDEN_SOLUTION = "28-7=21\n21*2=42\n42*2=84\n\\boxed{84}"


def digest_of(settings: dict[str, object]) -> str:
    code = (
        "import hashlib, sys, json; from ansatz.data.word_problems import word_problems; "
        "p = list(word_problems(**json.loads(sys.argv[1]))); print(hashlib.sha256(repr(p).encode()).hexdigest())"
    )
    return subprocess.run(
        [sys.executable, "-c", code, json.dumps(settings)], capture_output=True, text=True, check=True
    ).stdout


# --- right ---


def test_reading_the_english_gives_the_answer() -> None:
    for problem in sample()[:3000] + sample("heldout", 500):
        assert solve(problem.question) == int(problem.answer), problem.question


def test_every_step_is_true_uses_the_result_before_and_stays_in_range() -> None:
    for problem in sample():
        steps = problem.meta["steps"]
        assert len(steps) == int(problem.level)
        assert str(steps[-1][3]) == problem.answer
        for before, (left, op, right, value) in zip([None, *steps], steps, strict=False):
            assert holds(left, op, right, value), problem
            assert 2 <= value <= 200
            own_quantity = op == "*" and max(left, right) <= 9  # "3 bags of 4" starts from the text
            assert before is None or before[3] in (left, right) or own_quantity, problem


def test_a_demonstration_without_slip_is_the_chain_and_the_boxed_answer() -> None:
    for problem in sample():
        assert problem.solution is not None
        assert [list(e) for e in equations(problem.solution)] == problem.meta["steps"]
        assert problem.solution.splitlines()[-1] == f"\\boxed{{{problem.answer}}}"
        assert problem.meta["slip"] is False


def test_every_number_of_the_chain_is_in_the_question() -> None:
    for problem in sample()[:2000]:
        named = Counter(re.findall(r"\d+", problem.question))
        words = Counter({"2": len(re.findall(r"twice|doubles|half", problem.question))})
        words["3"] = problem.question.count("triples")
        results = {str(step[3]) for step in problem.meta["steps"]}
        operands = {str(n) for step in problem.meta["steps"] for n in (step[0], step[2])}
        assert operands - results <= set(named + words)


# --- not guessable ---


def test_no_answer_is_frequent_at_any_level() -> None:
    for problems in [sample(), *([p for p in sample() if p.level == level] for level in LEVELS)]:
        ((_, count),) = Counter(p.answer for p in problems).most_common(1)
        assert count / len(problems) < 0.05


def test_levels_are_even() -> None:
    counts = Counter(p.level for p in sample())
    assert set(counts) == set(LEVELS)
    assert all(abs(n / len(sample()) - 1 / len(LEVELS)) < 0.02 for n in counts.values())


def test_no_number_in_the_question_gives_the_answer_away() -> None:
    numbers = [re.findall(r"\d+", p.question) for p in sample()]
    answers = [p.answer for p in sample()]
    for guess in (lambda n: n[-1], lambda n: n[0], lambda n: str(max(map(int, n))), lambda n: str(sum(map(int, n)))):
        hits = sum(guess(n) == answer for n, answer in zip(numbers, answers, strict=True))
        assert hits / len(answers) < 0.10
    assert sum(n[-1] == answer for n, answer in zip(numbers, answers, strict=True)) / len(answers) < 0.05


def test_wording_is_varied() -> None:
    openings = Counter(re.sub(r"\d+|[A-Z]\w+", "_", p.question.split(". ")[0]) for p in sample())
    assert max(openings.values()) / len(sample()) < 0.02
    people = {name for p in sample() for name in re.findall(r"(?<!^)(?<!\. )\b[A-Z][a-z]+", p.question)}
    assert len(people) >= 40


# --- repeatable and disjoint ---


def test_problems_are_the_same_in_every_process_and_version() -> None:
    here = digest_of({"split": "train", "count": 200, "slip_rate": 0.5})
    assert digest_of({"split": "train", "count": 200, "slip_rate": 0.5}) == here
    first = word_problems(split="train", seed=0)[0]
    assert first.question == GOLDEN_QUESTION
    assert first.solution == GOLDEN_SOLUTION


def test_a_problem_depends_only_on_its_index() -> None:
    problems, more = word_problems(split="train", count=50), word_problems(split="train", count=500)
    assert problems[7] == list(more)[7] == more[5:10][2] == problems[-43]
    assert len(problems) == 50
    with pytest.raises(IndexError):
        problems[50]


def test_another_seed_gives_other_problems() -> None:
    assert not {p.question for p in sample(seed=0)} & {p.question for p in sample(seed=1)}


def test_splits_share_no_question_and_no_chain_even_across_seeds() -> None:
    train = sample() + sample(seed=1)
    heldout = sample("heldout", 1500) + sample("heldout", 1500, seed=1)
    assert not {p.question for p in train} & {p.question for p in heldout}
    assert not {p.solution for p in train} & {p.solution for p in heldout}
    assert {split_of(p.solution or "") for p in heldout} == {"heldout"} == {split_of(p.question) for p in heldout}
    assert {split_of(p.solution or "") for p in train} == {"train"} == {split_of(p.question) for p in train}


# --- slips ---


def test_the_stated_fraction_of_demonstrations_slips_and_ends_wrong() -> None:
    slipped = [p for p in sample(slip_rate=0.4) if p.meta["slip"]]
    assert abs(len(slipped) / len(sample()) - 0.4) < 0.02
    for problem in slipped:
        assert f"\\boxed{{{problem.answer}}}" not in (problem.solution or "")
        assert str(problem.meta["steps"][-1][3]) == problem.answer


def without_carry(left: int, op: str, right: int) -> int:
    """Digit by digit, nothing carried or borrowed."""
    tens, ones = left // 10 + right // 10, left + right
    if op == "-":
        tens, ones = left // 10 - right // 10, left - right
    return tens % 10 * 10 + ones % 10


def test_a_slip_is_one_wrong_step_or_every_carry_forgotten_and_carried_on_consistently() -> None:
    habits = accidents = 0
    for problem in word_problems(split="train", count=4000, max_value=99, slip_rate=0.5):
        if not problem.meta["slip"]:
            continue
        shown, true = equations(problem.solution or ""), problem.meta["steps"]
        wrong = [i for i, (s, t) in enumerate(zip(shown, true, strict=True)) if not holds(*s) or s[1] != t[1]]
        assert [list(s) for s in shown[: wrong[0]]] == true[: wrong[0]]
        assert (problem.solution or "").endswith(f"\\boxed{{{shown[-1][3]}}}")
        slips = [shown[i] for i in wrong]
        forgotten = all(
            op in "+-" and value % 100 == without_carry(left, op, right) % 100 for left, op, right, value in slips
        )
        if len(wrong) > 1:
            assert forgotten, problem
            habits += 1
        accidents += not forgotten
    assert habits > 100
    assert accidents > 300


def test_slips_change_no_question_and_a_higher_rate_keeps_those_of_a_lower() -> None:
    for clean, some, more in zip(sample(), sample(slip_rate=0.2), sample(slip_rate=0.4), strict=True):
        assert clean.question == some.question == more.question
        assert not some.meta["slip"] or some == more


def test_the_stated_fraction_of_demonstrations_is_worked_out_and_the_others_are_the_answer_alone() -> None:
    few, more = (tuple(word_problems(split="train", count=8000, worked_rate=rate)) for rate in (0.2, 0.5))
    worked = [problem.solution == whole.solution for problem, whole in zip(few, sample(), strict=True)]
    assert abs(sum(worked) / len(worked) - 0.2) < 0.02
    for whole, problem, other, is_worked in zip(sample(), few, more, worked, strict=True):
        assert whole.question == problem.question == other.question
        assert is_worked or problem.solution == f"\\boxed{{{problem.answer}}}"
        assert not is_worked or other == whole


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"split": "test"}, "split"),
        ({"count": 0}, "count"),
        ({"min_steps": 1}, "min_steps"),
        ({"min_steps": 5, "max_steps": 4}, "max_steps"),
        ({"max_steps": 99}, "max_steps"),
        ({"slip_rate": 1.5}, "slip_rate"),
        ({"worked_rate": -0.1}, "worked_rate"),
        ({"max_value": 10}, "max_value"),
        ({"max_term": 4}, "max_term"),
        ({"max_value": 80, "max_term": 81}, "max_term"),
    ],
)
def test_a_setting_out_of_range_is_named(settings: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=f"{named} = .*expected"):
        word_problems(**{"split": "train", **settings})  # type: ignore[arg-type]


def test_the_longest_and_widest_stories_can_be_told() -> None:
    problems = word_problems(split="train", count=300, min_steps=10, max_steps=10, max_value=1000, slip_rate=1.0)
    assert {p.level for p in problems} == {"10"}
    assert all(solve(p.question) == int(p.answer) for p in problems)


def test_plain_wording_compares_nobody_and_keeps_the_chains_exact():
    problems = word_problems(split="train", count=300, seed=4, wording="plain", max_value=100)
    for problem in problems:
        assert " than " not in problem.question
        assert max(value for *_, value in problem.meta["steps"]) <= 100
        assert solve(problem.question) == int(problem.answer)


@pytest.mark.parametrize("wording", ["full", "plain"])
def test_no_term_is_over_the_largest_and_answers_stay_hard_to_guess(wording: str) -> None:
    problems = word_problems(split="train", count=3000, seed=5, wording=wording, max_value=100, max_term=12)
    terms = [
        right
        for problem in problems
        for (_, op, right, _), before in zip(problem.meta["steps"], [[], *problem.meta["steps"]], strict=False)
        if op in "+-" and right not in before[3:]
    ]
    assert wording == "full" or max(terms) == 12
    most = Counter(problem.answer for problem in problems).most_common(1)[0][1]
    assert most / len(problems) < 0.06
