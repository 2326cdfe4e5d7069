"""Test cases for code: the response's program against inputs and outputs, or against assertions about its functions.

The problem's meta["tests"] is a list; each item is {"stdin": text, "stdout": text} or the text of one `assert`.

Each case is a run of its own, and the comparison happens out here, where the program cannot reach: of
`assert f(2) == 4` only `f(2)` goes into the sandbox, so a program that ends the process early, redefines equality or
looks for the expected value finds nothing to win. An assertion of another form (`assert f(2) > 3`) is judged inside by
the program's own process; one that looks for it could forge that.
"""

from __future__ import annotations

import ast
import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

from ansatz.config.fields import Positive, Rate
from ansatz.errors import DataError
from ansatz.rewards import sandbox
from ansatz.rewards.base import RewardResult
from ansatz.rewards.code_blocks import last_program
from ansatz.rewards.program import REASONS
from ansatz.rewards.sandbox import Ended
from ansatz.types import Problem, Reason, Rollout, Verdict

_STAGE = "code_tests"


@dataclass(frozen=True, slots=True)
class Case:
    """One run. epilogue: what is put behind the program; passes: whether what it then printed is right."""

    stdin: str
    epilogue: str
    passes: Callable[[str], bool]


def code_tests(
    rollouts: Sequence[Rollout],
    *,
    correct: float = 1.0,
    wrong: float = 0.0,
    partial: bool = False,
    tolerance: Rate = 0.0,
    timeout_s: float = 5.0,
    memory_mb: Positive = 512,
    packages: bool = False,
    isolation: sandbox.Isolation = "full",
    parallel: Positive = 4,
) -> list[RewardResult]:
    """`correct` where the response's last Python block passes all the problem's tests, else `wrong`.

    partial: pays wrong + (correct - wrong) x the share of tests passed, and runs all of them; the verdict still asks
    for all. Otherwise the first failure ends it. tolerance: of numbers in printed output, relative and absolute.
    timeout_s: of each test. parallel: programs that run side by side. The rest: see `sandbox.run`.
    ConfigError where the sandbox cannot be had; DataError for a problem without readable tests.
    """
    limits = sandbox.Limits(timeout_s=timeout_s, memory_mb=memory_mb)
    sandbox.require(isolation)

    def judge(rollout: Rollout) -> RewardResult:
        cases = read_cases(rollout.prompt.problem, tolerance)
        source = last_program(rollout.text)
        if source is None:
            return _judgement(wrong, Reason.NO_ANSWER)
        passed, reason = 0, Reason.EQUAL
        for case in cases:
            run = sandbox.run(
                source + case.epilogue, stdin=case.stdin, limits=limits, packages=packages, isolation=isolation
            )
            if run.ended is Ended.EXIT_OK and case.passes(run.stdout):
                passed += 1
                continue
            if reason is Reason.EQUAL:  # the first failure is the one to tell of
                reason = REASONS.get(run.ended, Reason.DIFFERENT)
            if not partial:
                break
        share = passed / len(cases) if partial else float(reason is Reason.EQUAL)
        return _judgement(wrong + (correct - wrong) * share, reason)

    with ThreadPoolExecutor(parallel, thread_name_prefix=_STAGE) as threads:
        return list(threads.map(judge, rollouts))


def check_golds(problems: Iterable[Problem]) -> None:
    """DataError, with the problem's id, for the first one without readable tests."""
    for problem in problems:
        read_cases(problem)


def _judgement(value: float, reason: Reason) -> RewardResult:
    return RewardResult(value=value, verdict=Verdict(correct=reason is Reason.EQUAL, reason=reason, stage=_STAGE))


def read_cases(problem: Problem, tolerance: float = 0.0) -> list[Case]:
    """The problem's tests. DataError, with its id, where there are none or one cannot be read."""
    tests = problem.meta.get("tests")
    if not isinstance(tests, list | tuple) or not tests:
        raise DataError(
            f"problem {problem.id!r}: code_tests needs meta tests = a list of tests, got {tests!r:.80}. "
            "Give it in the data."
        )
    return [_case(problem, test, tolerance) for test in cast("list[Any]", tests)]


def _case(problem: Problem, test: Any, tolerance: float) -> Case:
    if isinstance(test, str):
        assertion = _read_assertion(test)
        if assertion is not None:
            return assertion
    elif isinstance(test, Mapping):
        fields = cast("Mapping[str, Any]", test)
        stdin, stdout = fields.get("stdin"), fields.get("stdout")
        if isinstance(stdin, str) and isinstance(stdout, str):
            return Case(stdin, "", lambda printed: _same_output(printed, stdout, tolerance))
    raise DataError(
        f'problem {problem.id!r}: the test {test!r:.80} is neither {{"stdin": text, "stdout": text}} nor one assert '
        "statement. Repair it in the data."
    )


def _read_assertion(text: str) -> Case | None:
    """`assert expression`, split where it compares with a literal; None where it is something else."""
    try:
        (statement,) = ast.parse(text.strip()).body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(statement, ast.Assert):
        return None
    asked, expected = statement.test, True
    if isinstance(asked, ast.Compare) and len(asked.ops) == 1 and isinstance(asked.ops[0], ast.Eq):
        left, right = asked.left, asked.comparators[0]
        for side, other in ((right, left), (left, right)):
            try:
                asked, expected = other, ast.literal_eval(side)
                break
            except (ValueError, TypeError):
                continue
    mark = secrets.token_hex(8)  # without this, a program could print a value and end before it is asked
    wrapped = f"bool({ast.unparse(asked)})" if asked is statement.test else ast.unparse(asked)
    epilogue = f"\nprint({mark!r}, repr({wrapped}), sep='')\n"
    return Case("", epilogue, lambda printed: mark in printed and _same_value(printed.rpartition(mark)[2], expected))


def _same_value(printed: str, expected: object) -> bool:
    """Whether the text is a literal equal to the value expected, as `==` has it."""
    if len(printed) > 10 * len(repr(expected)) + 1_000:  # reading a literal costs memory out here
        return False
    try:
        return bool(ast.literal_eval(printed.strip()) == expected)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False


def _same_output(printed: str, expected: str, tolerance: float) -> bool:
    """Line by line and word by word; blanks at line ends and empty lines at the end do not count."""
    rows, wanted = _words(printed), _words(expected)
    return len(rows) == len(wanted) and all(
        len(row) == len(want) and all(_same_word(a, b, tolerance) for a, b in zip(row, want, strict=True))
        for row, want in zip(rows, wanted, strict=True)
    )


def _words(text: str) -> list[list[str]]:
    return [line.split() for line in text.rstrip().split("\n")]


def _same_word(word: str, wanted: str, tolerance: float) -> bool:
    if word == wanted:
        return True
    try:
        return tolerance > 0 and math.isclose(float(word), float(wanted), rel_tol=tolerance, abs_tol=tolerance)
    except ValueError:
        return False
