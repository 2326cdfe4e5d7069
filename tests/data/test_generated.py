"""The generators, each checked by arithmetic that it does not share: the reward's own parser, or brute force."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import pytest

from ansatz.data.base import load_problems, source_names
from ansatz.data.generated import split_of
from ansatz.data.keyed_random import KeyedRandom
from ansatz.data.trees import Tree, joined
from ansatz.errors import ConfigError
from ansatz.rewards.countdown import read, solves
from ansatz.types import Problem

LEVELS = {"arithmetic": 6, "countdown": 4}
names = pytest.mark.parametrize("name", LEVELS)


@cache
def sample(name: str, split: str = "train", count: int = 1200, seed: int = 0) -> Sequence[Problem]:
    return tuple(load_problems(name, split=split, settings={"count": count, "seed": seed}))


def steps(problem: Problem) -> list[str]:
    *lines, box = (problem.solution or "").split("\n")
    assert box == f"\\boxed{{{problem.answer}}}"
    return lines


def value(text: str) -> Fraction:
    result = read(text).value
    assert result is not None
    return result


# --- right ---


def test_the_answer_is_the_expressions_value_and_every_step_holds() -> None:
    for problem in sample("arithmetic"):
        expression = re.search(r"[(\d].*[)\d](?= as | in | and |\?|\.)|[(\d].*[)\d]", problem.question)
        assert expression is not None
        assert str(value(expression[0])) == problem.answer, problem
        lines = [line.split(" = ") for line in steps(problem)]
        assert len(lines) == int(problem.level)
        assert all(value(left) == value(right) for left, right in lines), problem
        assert lines[-1][1] == problem.answer


def test_arithmetic_has_integer_results_only() -> None:
    results = [line.split(" = ")[1] for problem in sample("arithmetic") for line in steps(problem)]
    assert all(re.fullmatch(r"-?\d{1,4}", result) for result in results)


def test_countdown_answers_solve_their_puzzles() -> None:
    for problem in sample("countdown"):
        numbers, target = problem.meta["nums"], problem.meta["target"]
        assert solves(problem.answer, numbers, target), problem
        assert len(numbers) == int(problem.level) + 2
        assert all(value(a) == value(b) > 0 for a, b in (line.split(" = ") for line in steps(problem)))
        assert re.findall(r"\d+", problem.question) == [*map(str, numbers), str(target)]
        assert target not in numbers
        assert 10 <= target <= 999


# --- repeatable, disjoint, even ---


@names
def test_splits_share_no_question_even_across_seeds(name: str) -> None:
    train = {p.question for seed in (0, 1) for p in sample(name, seed=seed)}
    heldout = {p.question for seed in (0, 1) for p in sample(name, "heldout", seed=seed)}
    assert not train & heldout
    assert len(train) > 1900  # nearly all differ


def test_a_puzzle_in_another_order_is_in_the_same_split() -> None:
    train, heldout = (
        {(*sorted(p.meta["nums"]), p.meta["target"]) for p in sample("countdown", split) if p.level == "1"}
        for split in ("train", "heldout")
    )
    assert not train & heldout


def test_trees_that_are_written_alike_have_one_key() -> None:
    a, b, c = (Tree(Fraction(n)) for n in (5, 3, 2))

    def make(left: Tree, op: str, right: Tree) -> Tree:
        tree = joined(left, op, right)
        assert tree is not None
        return tree

    alike = [make(make(a, "+", b), "-", c), make(a, "+", make(b, "-", c))]
    assert str(alike[0]) == str(alike[1]) == "5 + 3 - 2"
    assert alike[0].key == alike[1].key == make(make(b, "+", a), "-", c).key
    assert str(make(a, "-", make(b, "-", c))) == "5 - (3 - 2)"
    assert make(a, "-", make(b, "-", c)).key == make(make(a, "-", b), "+", c).key != alike[0].key
    assert str(make(a, "/", make(b, "*", c))) == "5 / (3 * 2)"
    assert make(a, "*", make(b, "+", c)).key != make(make(a, "*", b), "+", c).key
    assert joined(a, "/", make(b, "-", b)) is None


@names
def test_levels_are_even_and_can_be_chosen(name: str) -> None:
    counts = Counter(p.level for p in sample(name))
    assert set(counts) == {str(level) for level in range(1, LEVELS[name] + 1)}
    assert min(counts.values()) > 0.7 * 1200 / LEVELS[name]
    chosen = load_problems(name, split="train", settings={"count": 40, "min_level": 2, "max_level": 3})
    assert {p.level for p in chosen} == {"2", "3"}


@names
def test_no_answer_is_frequent(name: str) -> None:
    ((_, most),) = Counter(p.answer for p in sample(name)).most_common(1)
    assert most / 1200 < 0.06


@names
def test_a_problem_depends_only_on_its_index(name: str) -> None:
    few, more = (load_problems(name, split="train", settings={"count": count}) for count in (20, 10**9))
    assert few[7] == more[7] == list(few)[7] == few[5:9][2] == few[-13]
    with pytest.raises(IndexError):
        few[20]
    assert sample(name)[:50] != sample(name, seed=1)[:50]


def test_problems_are_the_same_in_every_process() -> None:
    code = (
        "from ansatz.data.base import load_problems; "
        f"print([load_problems(n, split='train', settings={{'count': 30}})[:] for n in {list(LEVELS)}])"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert there.strip() == str([load_problems(n, split="train", settings={"count": 30})[:] for n in LEVELS])


@names
@pytest.mark.parametrize(
    "settings", [{"split": "test"}, {"count": 0}, {"min_level": 0}, {"max_level": 9}, {"min_level": 3, "max_level": 2}]
)
def test_a_setting_out_of_range_is_named(name: str, settings: dict[str, object]) -> None:
    split = str(settings.get("split", "train"))
    with pytest.raises(ConfigError, match=rf"{name}: .*{next(iter(settings))} = .*expected"):
        load_problems(name, split=split, settings={k: v for k, v in settings.items() if k != "split"})


def test_generators_are_sources_and_their_helpers_are_not() -> None:
    assert set(LEVELS) <= set(source_names())
    assert not {"made", "trees"} & set(source_names())
    assert KeyedRandom("x").uniform() == KeyedRandom("x").uniform()
    assert split_of("x") in ("train", "heldout")
