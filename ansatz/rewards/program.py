"""Program of thought: the response is a Python program, and its result is the answer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

from ansatz_verify import equivalent
from ansatz_verify import values as v
from ansatz_verify.parse import parse_gold
from ansatz_verify.pool import WorkerPool
from ansatz_verify.sets import Unordered, approximate
from ansatz_verify.units import parted

from ansatz.config.fields import Positive, Rate, Seconds
from ansatz.rewards import sandbox
from ansatz.rewards.base import RewardResult
from ansatz.rewards.code_blocks import grade_distinct, last_program
from ansatz.rewards.sandbox import Ended
from ansatz.types import Reason, Rollout, Verdict, golds_of
from ansatz.visible import visible

REASONS = {
    Ended.EXIT_ERROR: Reason.UNPARSED,
    Ended.OUTPUT: Reason.UNPARSED,
    Ended.TIMEOUT: Reason.TIMEOUT,
    Ended.NEVER_RAN: Reason.CRASHED,
}
"""The verdict on a program that did not exit normally. NEVER_RAN is the sandbox's fault, the others the program's."""


def program(
    rollouts: Sequence[Rollout],
    *,
    read: Literal["stdout", "answer"] = "stdout",
    correct: float = 1.0,
    wrong: float = 0.0,
    tolerance: Rate = 1e-12,
    timeout_s: Seconds = 5.0,
    memory_mb: Positive = 512,
    packages: bool = False,
    isolation: sandbox.Isolation = "full",
    parallel: Positive = 4,
    pool: WorkerPool | None = None,
) -> list[RewardResult]:
    """`correct` if the response's last Python block computes the problem's answer in the sandbox, else `wrong`.

    read: "stdout" takes the last line that the program prints, "answer" the variable of that name. The value is
    compared with the gold as mathematics, as in `math_answer`; a line with control characters is not a value. Responses
    with the same program share its verdict.
    tolerance: of a printed float that is not a whole number, relative; absolute if the gold is 0. parallel: programs
    that run at the same time. timeout_s, memory_mb, packages, isolation: see `sandbox.run`. ConfigError if the sandbox
    is not available.
    """
    limits = sandbox.SandboxLimits(timeout_s=timeout_s, memory_mb=memory_mb)
    sandbox.require(isolation)

    def grade(rollout: Rollout) -> Verdict:
        source = last_program(rollout.said)
        if source is None:
            return Verdict(correct=False, reason=Reason.NO_ANSWER, stage="program")
        if read == "answer":
            source += "\nprint(answer)\n"
        run = sandbox.run(source, limits=limits, packages=packages, isolation=isolation)
        if run.ended is not Ended.EXIT_OK:
            return Verdict(correct=False, reason=REASONS[run.ended], stage="program", seconds=run.seconds)
        lines = run.stdout.split("\n")
        last_line = next((line.strip(" \t\r") for line in reversed(lines) if line.strip()), "")
        if visible(last_line) != last_line:  # a terminal would obey it: what it shows is another text
            return Verdict(correct=False, reason=Reason.UNPARSED, extracted=last_line, stage="program")
        verdict = equivalent(rollout.prompt.problem.answer, last_line, pool=pool, worked_out=True)
        if not verdict and _is_close(rollout.prompt.problem.answer, last_line, tolerance):
            return dataclasses.replace(verdict, correct=True, reason=Reason.EQUAL, stage="program")
        return verdict

    def key(rollout: Rollout) -> tuple[str, str | None]:
        return rollout.prompt.problem.answer, last_program(rollout.said)

    verdicts = grade_distinct(rollouts, grade, key=key, parallel=parallel)
    return [RewardResult(value=correct if verdict else wrong, verdict=verdict) for verdict in verdicts]


def _is_close(answer: str, line: str, tolerance: float) -> bool:
    """Return whether a line is a float as Python prints it, and equals a gold up to rounding errors: 0.1 + 0.2 is 0.3.

    A whole number has no such errors. Without this, 1099511627775.0 would be paid for 1099511627776.
    """
    try:
        printed = float(line)
    except ValueError:
        return False
    if repr(printed) != line or printed.is_integer():
        return False
    return any(
        math.isclose(printed, gold, rel_tol=tolerance, abs_tol=0.0 if gold else tolerance)
        for gold in map(_number, golds_of(answer))
    )


def _number(gold: str) -> float:
    """Return the number that a gold states, without its unit; nan if it states something else."""
    value = parse_gold(gold).value
    amount = parted(value)[0] if value is not None else None
    try:
        return approximate(amount) if isinstance(amount, v.EXPRESSIONS) else math.nan
    except Unordered:
        return math.nan
