"""The Python interpreter: what it keeps from turn to turn, and what programs cannot do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest

from ansatz.environments.base import bind_environment
from ansatz.environments.calls import EnvironmentCalls, environment_calls
from ansatz.environments.episode import Episode
from ansatz.errors import ConfigError, StorageError
from ansatz.rewards import sandbox
from ansatz.types import Problem
from tests.rewards.test_sandbox import WAYS_OUT

PROBLEM = Problem(id="p", question="", source="test", split="train")
LOST = "The next call starts a new interpreter without variables."


@pytest.fixture(scope="module")
def calls() -> Iterator[EnvironmentCalls]:
    try:
        sandbox.require("full")
    except ConfigError as error:
        pytest.skip(str(error))
    with environment_calls(
        bind_environment({"name": "python", "timeout_s": 0.5, "max_observation_chars": 80})
    ) as calls:
        assert calls
        yield calls


def answers(calls: EnvironmentCalls, *programs: str) -> list[str]:
    """What the interpreter of one response answers to these programs."""
    episode = Episode(calls.spec, PROBLEM)
    replies = [calls.answer(episode, f"Let me see.<code>{program}</code>") for program in programs]
    calls.end(episode)
    texts = [reply.removeprefix("<interpreter>").removesuffix("</interpreter>\n") for reply in replies if reply]
    assert len(texts) == len(programs)
    return texts


def test_programs_share_their_variables(calls: EnvironmentCalls) -> None:
    programs = (
        "x = 5\nprint('a'); x + 1",
        "x * 2",
        "import math; y = math.factorial(20)",
        "y",
        "def f(n): return n + x",
        "f(2)",
    )
    assert answers(calls, *programs) == ["a\n6", "10", "(no output)", "2432902008176640000", "(no output)", "7"]
    assert answers(calls, "x") == ["NameError: name 'x' is not defined (line 1)"]  # another response


def test_errors_are_observations_and_keep_the_variables(calls: EnvironmentCalls) -> None:
    assert answers(
        calls, "x = 1", "\n1/0", "((", "\0", "x = [0] * 10**9", "raise KeyboardInterrupt", "input()", "x"
    ) == [
        "(no output)",
        "ZeroDivisionError: division by zero (line 2)",
        "SyntaxError: '(' was never closed",
        "SyntaxError: source code string cannot contain null bytes",
        "MemoryError (line 1)",
        "KeyboardInterrupt (line 1)",
        "EOFError: EOF when reading a line (line 1)",
        "1",
    ]


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        ("while True: pass", "no result within 0.5 s"),
        ("import time; time.sleep(9)", "no result within 0.5 s"),
        ("exit()", "the interpreter has exited"),
        ("import os; os._exit(0)", "the interpreter has exited"),
        ("import sys; sys.stdout.close()", "the interpreter has exited"),
        ("import ctypes; ctypes.string_at(0)", "the interpreter has exited"),
    ],
)
def test_a_program_that_ends_the_interpreter_is_answered_and_the_next_call_starts_a_new_one(
    calls: EnvironmentCalls, program: str, fault: str
) -> None:
    before, reply, after, new = answers(calls, "x = 1; x", program, "x", "2")
    assert (before, after, new) == ("1", "NameError: name 'x' is not defined (line 1)", "2")
    assert reply.endswith(f"error: {fault}. {LOST}"[-40:])


def test_a_flood_of_output_is_cut(calls: EnvironmentCalls) -> None:
    flood, endless = answers(calls, "print('z' * 10**5)", "while True: print('z' * 10**5)")
    assert flood == "z" * 40 + "\n[... 99920 characters left out ...]\n" + "z" * 40
    assert len(endless) < 200
    assert endless.endswith(LOST[-40:])


# A session has two descriptors of its own: the programs that arrive, and the end of each. Both are useless elsewhere.
@pytest.mark.parametrize("program", [program for program in WAYS_OUT if "fstat(3)" not in program])
def test_a_program_cannot_leave_the_sandbox(calls: EnvironmentCalls, program: str) -> None:
    (reply,) = answers(calls, program)
    assert "Error" in reply, reply


@pytest.mark.parametrize(
    "program",
    [
        "import os\nfor n in range(3, 64):\n  try: os.write(n, b'1')\n  except OSError: pass",  # also the reply's
        "import sys\nsys.stdout = sys.stderr = None",
        "import builtins\nbuiltins.print = builtins.repr = None",
        "import sys\nsys.modules.clear()",
        "import gc\nfor o in gc.get_objects():\n  if isinstance(o, dict): o.pop('_run_cell', None)",
        "import sys; sys.settrace(lambda *a: 1/0)",
    ],
)
def test_a_program_that_damages_its_interpreter_harms_only_its_own_response(
    calls: EnvironmentCalls, program: str
) -> None:
    first, *_ = answers(calls, program, "1 + 1", "2 + 2")
    assert first
    assert answers(calls, "1 + 1") == ["2"]


def test_a_turn_without_a_call_is_the_last(calls: EnvironmentCalls) -> None:
    assert calls.answer(Episode(calls.spec, PROBLEM), "so \\boxed{4}") is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_not_what_the_policy_sees_of_its_program(
    calls: EnvironmentCalls, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(text: str) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(sandbox, "holding", full)
    with pytest.raises(StorageError, match=r"^the sandbox: .* could not be written .* are free on this disk\)"):
        answers(calls, "print(1)")
    with pytest.raises(StorageError, match="or set TMPDIR to a folder on another disk"):
        sandbox.run("print(1)")
