"""Tests of programs: the response's program against inputs and outputs, or against assertions about its functions.

The problem's meta["tests"] is a list; each item is {"stdin": text, "stdout": text} or the text of one `assert`.

Each test is a separate run, and the comparison happens outside the sandbox, where the program cannot reach it. Of
`assert f(2) == 4` only `f(2)` enters the sandbox, so a program gains nothing by ending the process early, redefining
equality or looking for the expected value. An assertion of another form (`assert f(2) > 3`) is evaluated inside the
program's process, and a program that looks for it could forge the result.
"""

from __future__ import annotations

import ast
import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ansatz.config.fields import Positive, Rate
from ansatz.errors import DataError
from ansatz.rewards import sandbox
from ansatz.rewards.base import RewardResult
from ansatz.rewards.code_blocks import last_program
from ansatz.rewards.distinct_programs import grade_distinct
from ansatz.rewards.program import REASONS
from ansatz.rewards.sandbox import Ended
from ansatz.types import Problem, Reason, Rollout, Verdict

_STAGE = "code_tests"


@dataclass(frozen=True, slots=True)
class ProgramTest:
    """One run. epilogue: code appended to the program. passes: whether the output that it then prints is correct."""

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
    """`correct` if the response's last Python block passes all tests of the problem, else `wrong`.

    partial: pays wrong + (correct - wrong) x the fraction of tests passed, and runs all of them; a correct verdict
    still needs all. Otherwise the first failure ends the grading. tolerance: of numbers in printed output, relative and
    absolute. timeout_s: of each test. parallel: programs that run at the same time. Responses with the same program
    share its result. Other settings: see `sandbox.run`. ConfigError if the sandbox is not available.
    DataError for a problem without readable tests.
    """
    limits = sandbox.SandboxLimits(timeout_s=timeout_s, memory_mb=memory_mb)
    sandbox.require(isolation)

    def grade(rollout: Rollout) -> RewardResult:
        tests = read_tests(rollout.prompt.problem, tolerance)
        source = last_program(rollout.said)
        if source is None:
            return _result(wrong, Reason.NO_ANSWER)
        passed, reason = 0, Reason.EQUAL
        for test in tests:
            run = sandbox.run(
                source + test.epilogue, stdin=test.stdin, limits=limits, packages=packages, isolation=isolation
            )
            if run.ended is Ended.EXIT_OK and test.passes(run.stdout):
                passed += 1
                continue
            if reason is Reason.EQUAL:  # the verdict reports the first failure
                reason = REASONS.get(run.ended, Reason.DIFFERENT)
            if not partial:
                break
        passed_frac = passed / len(tests) if partial else float(reason is Reason.EQUAL)
        return _result(wrong + (correct - wrong) * passed_frac, reason)

    def key(rollout: Rollout) -> tuple[str, str | None]:
        return repr(rollout.prompt.problem.meta.get("tests")), last_program(rollout.said)

    return grade_distinct(rollouts, grade, key=key, parallel=parallel)


def check_golds(problems: Iterable[Problem]) -> None:
    """DataError, with the problem's id, for the first problem without readable tests."""
    for problem in problems:
        read_tests(problem)


def _result(value: float, reason: Reason) -> RewardResult:
    return RewardResult(value=value, verdict=Verdict(correct=reason is Reason.EQUAL, reason=reason, stage=_STAGE))


def read_tests(problem: Problem, tolerance: float = 0.0) -> list[ProgramTest]:
    """The problem's tests. DataError, with its id, if there are none or one cannot be read."""
    tests = problem.meta.get("tests")
    if not isinstance(tests, list | tuple) or not tests:
        raise DataError(
            f"problem {problem.id!r}: code_tests needs meta tests = a list of tests, got {tests!r:.80}. "
            "Give it in the data."
        )
    return [_read_test(problem, test, tolerance) for test in cast("list[Any]", tests)]


def _read_test(problem: Problem, test: Any, tolerance: float) -> ProgramTest:
    if isinstance(test, str):
        assertion = _read_assertion(test)
        if assertion is not None:
            return assertion
    elif isinstance(test, Mapping):
        fields = cast("Mapping[str, Any]", test)
        stdin, stdout = fields.get("stdin"), fields.get("stdout")
        if isinstance(stdin, str) and isinstance(stdout, str):
            return ProgramTest(stdin, "", lambda printed: _same_output(printed, stdout, tolerance))
    raise DataError(
        f'problem {problem.id!r}: the test {test!r:.80} is neither {{"stdin": text, "stdout": text}} nor one assert '
        "statement. Repair it in the data."
    )


def _read_assertion(text: str) -> ProgramTest | None:
    """`assert expression`, split at a comparison with a literal; None if it is something else."""
    try:
        (statement,) = ast.parse(text.strip()).body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(statement, ast.Assert):
        return None
    expression, expected = statement.test, True
    if isinstance(expression, ast.Compare) and len(expression.ops) == 1 and isinstance(expression.ops[0], ast.Eq):
        left, right = expression.left, expression.comparators[0]
        for side, other in ((right, left), (left, right)):
            try:
                expression, expected = other, ast.literal_eval(side)
                break
            except (ValueError, TypeError):
                continue
    mark = secrets.token_hex(8)  # without this, a program could print a value and exit before the expression runs
    printed_value = ast.unparse(expression)
    if expression is statement.test:
        printed_value = f"bool({printed_value})"
    epilogue = f"\nprint({mark!r}, repr({printed_value}), sep='')\n"
    return ProgramTest(
        "", epilogue, lambda printed: mark in printed and _same_value(printed.rpartition(mark)[2], expected)
    )


def _same_value(printed: str, expected: object) -> bool:
    """Whether the text is a literal that `==` the expected value."""
    if len(printed) > 10 * len(repr(expected)) + 1_000:  # reading a literal takes memory outside the sandbox
        return False
    try:
        return bool(ast.literal_eval(printed.strip()) == expected)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False


def _same_output(printed: str, expected: str, tolerance: float) -> bool:
    """Compares line by line and word by word. Spaces at line ends and empty lines at the end do not count."""
    lines, expected_lines = _words(printed), _words(expected)
    return len(lines) == len(expected_lines) and all(
        len(line) == len(expected_line)
        and all(_same_word(word, other, tolerance) for word, other in zip(line, expected_line, strict=True))
        for line, expected_line in zip(lines, expected_lines, strict=True)
    )


def _words(text: str) -> list[list[str]]:
    return [line.split() for line in text.rstrip().split("\n")]


def _same_word(word: str, expected: str, tolerance: float) -> bool:
    if word == expected:
        return True
    try:
        return tolerance > 0 and math.isclose(float(word), float(expected), rel_tol=tolerance, abs_tol=tolerance)
    except ValueError:
        return False
