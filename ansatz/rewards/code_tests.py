"""Tests of programs: the response's program against inputs and outputs, or against assertions about its functions.

The problem's meta["tests"] is a list; each item is {"stdin": text, "stdout": text} or code with assertions
(`code_forms`). Each test is a separate run, and no test runs in the program's process: the program gets the arguments
of a call, and its result becomes a plain value of the builtin types before anything is compared with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing

from ansatz.config.fields import Positive, Rate, Seconds
from ansatz.errors import DataError
from ansatz.rewards import sandbox
from ansatz.rewards.base import RewardResult
from ansatz.rewards.code_blocks import grade_distinct, last_program
from ansatz.rewards.code_forms import Test, UnsafeTest, read_forms
from ansatz.rewards.code_runs import ProgramUnderTest, RunSettings
from ansatz.types import Problem, Reason, Rollout, Verdict

_STAGE = "code_tests"


def code_tests(
    rollouts: Sequence[Rollout],
    *,
    correct: float = 1.0,
    wrong: float = 0.0,
    partial: bool = False,
    tolerance: Rate = 0.0,
    timeout_s: Seconds = 5.0,
    memory_mb: Positive = 512,
    packages: bool = False,
    isolation: sandbox.Isolation = "full",
    parallel: Positive = 4,
) -> list[RewardResult]:
    """Return `correct` if the response's last Python block passes all tests of the problem, else `wrong`.

    partial: pays wrong + (correct - wrong) x the fraction of tests passed, and runs all of them; a correct verdict
    still needs all. Otherwise the first failure ends the grading. tolerance: of numbers in printed output, relative and
    absolute. timeout_s: of each test. parallel: programs that run at the same time. Responses with the same program
    share its result. Other settings: see `sandbox.run`. Raise ConfigError if the sandbox is not available.
    Raise DataError for a problem without readable tests.
    """
    limits = sandbox.SandboxLimits(timeout_s=timeout_s, memory_mb=memory_mb)
    settings = RunSettings(limits=limits, packages=packages, isolation=isolation, tolerance=tolerance)
    sandbox.require(isolation)

    def grade(rollout: Rollout) -> RewardResult:
        tests = read_tests(rollout.prompt.problem, packages=packages)
        source = last_program(rollout.said)
        if source is None:
            return _result(wrong, Reason.NO_ANSWER)
        passed, reason = 0, Reason.EQUAL
        with closing(ProgramUnderTest(source, settings)) as program:
            for test in tests:
                if (outcome := program.run(test)) is Reason.EQUAL:
                    passed += 1
                    continue
                if reason is Reason.EQUAL:  # the verdict reports the first failure
                    reason = outcome
                if not partial:
                    break
        passed_frac = passed / len(tests) if partial else float(reason is Reason.EQUAL)
        return _result(wrong + (correct - wrong) * passed_frac, reason)

    def key(rollout: Rollout) -> tuple[str, str | None]:
        return repr(dict(rollout.prompt.problem.meta)), last_program(rollout.said)

    return grade_distinct(rollouts, grade, key=key, parallel=parallel)


def check_golds(problems: Iterable[Problem]) -> None:
    """Raise DataError, with the problem's id, for the first problem without readable tests."""
    for problem in problems:
        read_tests(problem, packages=True)


def _result(value: float, reason: Reason) -> RewardResult:
    return RewardResult(value=value, verdict=Verdict(correct=reason is Reason.EQUAL, reason=reason, stage=_STAGE))


def read_tests(problem: Problem, *, packages: bool = False) -> list[Test]:
    """Return the problem's tests. Raise DataError, with its id, if there are none or one cannot be used."""
    try:
        return read_forms(problem.meta, packages=packages)
    except UnsafeTest as error:
        raise DataError(f"problem {problem.id!r}: {error}. Repair it in the data.") from error
