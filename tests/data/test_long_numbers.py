from __future__ import annotations

import re

import pytest

from ansatz.data.long_numbers import long_numbers
from ansatz.environments.calculator import calculate
from ansatz.errors import ConfigError


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_the_question_gives_the_answer_and_the_calculator_gives_the_observations(split: str) -> None:
    problems = long_numbers(split=split, count=400, max_steps=4, call_rate=0.5)
    for problem in problems:
        numbers = [int(number) for number in re.findall(r"\d+", problem.question)]
        value = numbers[0] * numbers[1]
        for sentence in re.findall(r"Then [^.]*", problem.question):
            term = int(re.findall(r"\d+", sentence)[0])
            value += term if re.search("buys|finds|gets", sentence) else -term
        assert str(value) == problem.answer
        assert value > 0
        assert problem.solution is not None
        assert problem.solution.endswith(f"\\boxed{{{value}}}")
        calls = re.findall(r"<calc>(.*?)</calc>", problem.solution)
        shown = [problem.solution[start:end] for start, end in problem.meta["observations"]]
        assert shown == [f"<result>{calculate(call)}</result>\n" for call in calls]
        assert bool(calls) == problem.meta["calls"]
        equations = re.findall(r"(.*)=(.*)", problem.solution)
        assert all(calculate(left) == right for left, right in equations)
        assert len(calls) + len(equations) == int(problem.level)
    assert {problem.level for problem in problems} == set("1234")
    assert 0.4 < sum(problem.meta["calls"] for problem in problems) / 400 < 0.6


def test_the_splits_are_disjoint_and_the_rate_of_calls_changes_no_question() -> None:
    train, heldout = (long_numbers(split=split, count=2000, digits=2) for split in ("train", "heldout"))
    told = [{re.sub(r"[^\d ]", "", problem.question) for problem in problems} for problems in (train, heldout)]
    assert not told[0] & told[1]
    with_calls = long_numbers(split="train", count=2000, digits=2, call_rate=1.0)
    assert [problem.question for problem in with_calls] == [problem.question for problem in train]
    assert list(train) == list(long_numbers(split="train", count=2000, digits=2))


@pytest.mark.parametrize("settings", [{"max_steps": 5}, {"digits": 1}, {"call_rate": 1.5}, {"split": "test"}])
def test_a_setting_outside_its_range_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"long_numbers: (max_steps|digits|call_rate|split) = "):
        long_numbers(**{"split": "train", **settings})
