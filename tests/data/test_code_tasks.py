from __future__ import annotations

import pytest

from ansatz.data.base import load_problems
from ansatz.rewards.code_blocks import last_program
from ansatz.rewards.code_tests import read_tests


@pytest.mark.parametrize("level", [1, 2, 3])
def test_the_solution_passes_all_tests_and_another_problems_solution_does_not(level: int) -> None:
    settings = {"count": 40, "min_level": level, "max_level": level}
    problems = load_problems("code_tasks", split="train", settings=settings)
    sources = [last_program(problem.solution or "") or "" for problem in problems]
    for problem, source in zip(problems, sources, strict=True):
        assert len(read_tests(problem)) == 3
        assert passes(source, problem.meta["tests"])
        assert problem.answer in source
    others = [*sources[1:], sources[0]]
    assert not any(
        passes(source, problem.meta["tests"])
        for problem, source in zip(problems, others, strict=True)
        if problem.answer not in source
    )


def passes(source: str, tests: list[str]) -> bool:
    try:
        exec("\n".join([source, *tests]), {})  # our own programs
    except (AssertionError, TypeError):
        return False
    return True


def test_no_function_is_in_both_splits() -> None:
    train, heldout = (
        {
            (problem.level, problem.answer)
            for problem in load_problems("code_tasks", split=split, settings={"count": 900})
        }
        for split in ("train", "heldout")
    )
    assert len(train) > 300
    assert not train & heldout
