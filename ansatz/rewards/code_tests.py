"""Tests of programs: the response's program against inputs and outputs, or against assertions about its functions.

The problem's meta["tests"] is a list; each item is {"stdin": text, "stdout": text} or code with assertions
(`code_forms`). Each test is a separate run, and no test runs in the program's process: the program gets the arguments
of a call, and its result becomes a plain value of the builtin types (`plain_calls`) before it is compared.
"""

from __future__ import annotations

import json
import math
import os
import re
import selectors
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

from ansatz.config.fields import Positive, Rate, Seconds
from ansatz.errors import DataError
from ansatz.rewards import sandbox
from ansatz.rewards.base import RewardResult
from ansatz.rewards.code_blocks import grade_distinct, last_program
from ansatz.rewards.code_checker import PASSED, RAISED
from ansatz.rewards.code_forms import CheckedTest, CompareTest, PrintedTest, Test, UnsafeTest, read_forms
from ansatz.rewards.plain_calls import Peer, Refused
from ansatz.rewards.program import REASONS
from ansatz.rewards.sandbox import Ended, Role
from ansatz.rewards.sandbox_session import SandboxProcess
from ansatz.types import Problem, Reason, Rollout, Verdict

_MAX_MESSAGE = 16 << 20
_NUMBER = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][+-]?\d++)?", re.ASCII)
_WORD = re.compile(r"[^ \t]+")
_CHECKER_CPU_S = 3600.0  # each of its tests has its own time
_MAX_LITERAL = 1_000  # characters of an expected value that is compared in this process


class PeerEnded(Exception):
    """The process has gone, or has used its time."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(ended)
        self.ended = ended


class MessagePeer(SandboxProcess):
    """A process that answers messages, each a line. max_message: bytes of one. Only the time of waiting for its answers
    counts."""

    def __init__(self, role: Role, source: str, *, max_message: int = _MAX_MESSAGE, **settings: Any) -> None:
        super().__init__(role, source, **settings)
        self._text, self._max_message = bytearray(), max_message
        self._left_s = self._limits.timeout_s

    def send(self, text: str) -> None:
        try:
            if not self._wait_until_ready():
                raise PeerEnded(Ended.NEVER_RAN)
            if self._send(text.encode() + b"\n", self._limit(max(self._left_s, 0.0))):
                return
        except BrokenPipeError as error:
            raise PeerEnded(self._end()) from error
        raise PeerEnded(Ended.TIMEOUT)

    def receive(self) -> str:
        """Return the next line."""
        if not self._wait_until_ready():
            raise PeerEnded(Ended.NEVER_RAN)
        limit = self._limit(max(self._left_s, 0.0))
        searched = 0
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            while (end := self._text.find(b"\n", searched)) < 0:
                searched = len(self._text)
                if searched > self._max_message:
                    raise PeerEnded(Ended.OUTPUT)
                if selector.select(limit.patience_s()):
                    if not (part := os.read(self._output, 1 << 16)):
                        raise PeerEnded(self._end())
                    self._text += part
                if limit.is_over():
                    raise PeerEnded(Ended.TIMEOUT)
        line = bytes(self._text[:end])
        del self._text[: end + 1]
        self._left_s -= limit.used_s()
        return line.decode(errors="replace")

    def renew(self) -> None:
        """Give the process its whole time again."""
        self._left_s = self._limits.timeout_s

    def _end(self) -> Ended:
        """Return how the process has ended, which has closed its streams."""
        assert self._process is not None
        self._process.kill()
        return Ended.TIMEOUT if self._process.wait() in sandbox.OUT_OF_TIME else Ended.EXIT_ERROR


class ProgramUnderTest:
    """One program and its tests. The checker's process, if a test needs it, serves several tests.

    tolerance: see `code_tests`. how: the limits, packages and isolation of all runs, see `sandbox.run`.
    """

    def __init__(self, source: str, tolerance: float, how: Mapping[str, Any]) -> None:
        self._source, self._tolerance, self._how = source, tolerance, how
        self._checker: MessagePeer | None = None

    def run(self, test: Test) -> Reason:
        """Return EQUAL if the program passes."""
        if isinstance(test, PrintedTest):
            return self._print(test)
        if isinstance(test, CompareTest) and len(test.literal) > _MAX_LITERAL:
            test = test.checked()
        if isinstance(test, CompareTest):
            size = _MAX_LITERAL + 10 * (len(test.literal) + len(test.expression))
            program = self._peer("program", self._source, max_message=size)
        else:
            program = self._peer("program", self._source, classes=test.classes, prelude=test.prelude)
        try:
            program.start()
            program.receive()  # it has been executed
            return self._compare(program, test) if isinstance(test, CompareTest) else self._check(program, test)
        except PeerEnded as ended:
            self.close()  # it is in the middle of the test
            return REASONS.get(ended.ended, Reason.UNPARSED)
        except OSError:
            return Reason.CRASHED
        finally:
            program.close()

    def _print(self, test: PrintedTest) -> Reason:
        run = sandbox.run(self._source, stdin=test.stdin, **self._how)
        if run.ended is not Ended.EXIT_OK:
            return REASONS.get(run.ended, Reason.DIFFERENT)
        return Reason.EQUAL if same_output(run.stdout, test.stdout, self._tolerance) else Reason.DIFFERENT

    def _compare(self, program: MessagePeer, test: CompareTest) -> Reason:
        peer = Peer(program.send, program.receive, namespace={})
        try:
            found = peer.ask("names", list(test.names))
            names = {name: found[name] for name in test.names if name in found}
            method = bool(test.method) and test.names[0] not in names
            value = eval(test.method if method else test.expression, {"__builtins__": {}}, names)
            if test.json:
                value = _list_tuples(value)
                return Reason.EQUAL if test.expected in (value, [value]) else Reason.DIFFERENT
            return Reason.EQUAL if value == test.expected else Reason.DIFFERENT
        except Refused:
            return Reason.DIFFERENT
        except PeerEnded:
            raise
        except Exception as error:  # what the program raised, or what its value raises when it is used
            return Reason.UNPARSED if error is peer.raised else Reason.DIFFERENT

    def _check(self, program: MessagePeer, test: CheckedTest) -> Reason:
        """Carry the messages between the checker and the program until the checker has a verdict."""
        if self._checker is None:
            self._checker = self._peer("checker", "")
            self._checker.start()
        checker = self._checker
        checker.renew()
        job = {"test": test.test, "setup": test.setup, "names": test.names, "classes": test.classes}
        checker.send(json.dumps(job | {"calls": test.calls, "unittest": test.unittest}))
        while (verdict := json.loads(line := checker.receive()).get("verdict")) is None:
            program.send(line)
            checker.send(program.receive())
        if verdict == PASSED:
            return Reason.EQUAL
        return Reason.UNPARSED if verdict == RAISED else Reason.DIFFERENT

    def _peer(self, role: Role, source: str, **more: Any) -> MessagePeer:
        cpu_s = self._how["limits"].timeout_s if role == "program" else _CHECKER_CPU_S
        return MessagePeer(role, source, cpu_s=cpu_s, **self._how, **more)

    def close(self) -> None:
        if self._checker is not None:
            self._checker.close()
            self._checker = None


def _list_tuples(value: Any) -> Any:
    """Return the value as JSON would hold it: tuples are lists."""
    if isinstance(value, list | tuple):
        return [_list_tuples(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {key: _list_tuples(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return value


def same_output(printed: str, expected: str, tolerance: float) -> bool:
    """Return whether two outputs are equal, line by line and word by word. Spaces at line ends and empty lines at the
    end do not count. Only spaces and tabs separate words: str.split would also take a control character for one."""
    lines, expected_lines = _words(printed), _words(expected)
    return len(lines) == len(expected_lines) and all(
        len(line) == len(expected_line)
        and all(_words_match(word, other, tolerance) for word, other in zip(line, expected_line, strict=True))
        for line, expected_line in zip(lines, expected_lines, strict=True)
    )


def _words(text: str) -> list[list[str]]:
    lines = text.replace("\r\n", "\n").rstrip(" \t\n").split("\n")
    return [_WORD.findall(line) for line in lines]


def _words_match(word: str, expected: str, tolerance: float) -> bool:
    if word == expected:
        return True
    if not (tolerance > 0 and _NUMBER.fullmatch(word) and _NUMBER.fullmatch(expected)):
        return False
    return math.isclose(float(word), float(expected), rel_tol=tolerance, abs_tol=tolerance)


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
    how = {"limits": limits, "packages": packages, "isolation": isolation}
    sandbox.require(isolation)

    def grade(rollout: Rollout) -> RewardResult:
        tests = read_tests(rollout.prompt.problem, packages=packages)
        source = last_program(rollout.said)
        if source is None:
            return _result(wrong, Reason.NO_ANSWER)
        passed, reason = 0, Reason.EQUAL
        with closing(ProgramUnderTest(source, tolerance, how)) as program:
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


def check_golds(problems: Iterable[Problem], *, packages: bool = True) -> None:
    """Raise DataError, with the problem's id, for the first problem without readable tests. packages: see
    `code_tests`."""
    for problem in problems:
        read_tests(problem, packages=packages)


def _result(value: float, reason: Reason) -> RewardResult:
    return RewardResult(value=value, verdict=Verdict(correct=reason is Reason.EQUAL, reason=reason, stage=_STAGE))


def read_tests(problem: Problem, *, packages: bool = False) -> list[Test]:
    """Return the problem's tests. Raise DataError, with its id, if there are none or one cannot be used."""
    try:
        return read_forms(problem.meta, packages=packages)
    except UnsafeTest as error:
        raise DataError(f"problem {problem.id!r}: {error}. Repair it in the data.") from error
