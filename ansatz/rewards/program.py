"""Program of thought: the response is a Python program, and its result is the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ansatz_verify import equivalent
from ansatz_verify.pool import WorkerPool

from ansatz.config.fields import Positive, Seconds
from ansatz.rewards import sandbox
from ansatz.rewards.base import RewardResult
from ansatz.rewards.code_blocks import grade_distinct, last_program
from ansatz.rewards.sandbox import Ended
from ansatz.types import Reason, Rollout, Verdict
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
    parallel: programs that run at the same time. timeout_s, memory_mb, packages, isolation: see `sandbox.run`.
    ConfigError if the sandbox is not available.
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
        return equivalent(rollout.prompt.problem.answer, last_line, pool=pool)

    def key(rollout: Rollout) -> tuple[str, str | None]:
        return rollout.prompt.problem.answer, last_program(rollout.said)

    verdicts = grade_distinct(rollouts, grade, key=key, parallel=parallel)
    return [RewardResult(value=correct if verdict else wrong, verdict=verdict) for verdict in verdicts]
