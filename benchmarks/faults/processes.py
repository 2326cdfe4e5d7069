"""Real processes of the command: started, watched, killed with all that they started, and looked for afterwards."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol

ROOT = Path(__file__).parents[2]
LIMIT_S = 300.0
"""No process and no wait of these scripts may take longer, unless they say so."""
COMMAND = ("-c", "from ansatz.cli.main import main; main()")
MARKED = ("-m", "benchmarks.faults.marked")


class Started(Protocol):
    """A command that has been started."""

    pid: int

    def wait(self) -> int:
        """The exit code; negative for the signal that killed it. Its standard error is then complete."""
        ...

    def error(self) -> str: ...


class OwnProcess:
    """A command in a session of its own. program: what gets the arguments. limit_s: `wait` raises after this time."""

    def __init__(
        self,
        *arguments: str | Path,
        program: tuple[str, ...] = (sys.executable, *COMMAND),
        folder: Path = ROOT,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._limit_s = limit_s
        self._said = _Said()
        self.process = subprocess.Popen(
            [*program, *map(str, arguments)],
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._said.pipe,
            start_new_session=True,
        )
        self._said.close()
        self.pid = self.process.pid

    def wait(self) -> int:
        return self.process.wait(self._limit_s)

    def error(self) -> str:
        return self._said.text()


class Forks:
    """Starts marked commands as forks of one process that has imported everything, one after the other."""

    def __init__(self) -> None:
        self._said = _Said()
        self._server = subprocess.Popen(
            [sys.executable, *MARKED, "serve"],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said.pipe,
            text=True,
        )
        self._said.close()

    def start(self, *arguments: str | Path) -> Started:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps([str(each) for each in arguments]) + "\n")
        said_before = len(self._said.text())
        self._server.stdin.flush()
        return _Fork(int(self._line()), self._line, lambda: self._said.text()[said_before:])

    def _line(self) -> str:
        assert self._server.stdout is not None
        return self._server.stdout.readline()

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.kill()
        self._server.communicate()


class _Fork:
    def __init__(self, pid: int, line: Callable[[], str], error: Callable[[], str]) -> None:
        self.pid, self._line, self.error = pid, line, error

    def wait(self) -> int:
        return int(self._line())


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"}


def start_marked(*arguments: str | Path) -> Started:
    """Start a marked command in an interpreter of its own."""
    return OwnProcess(*arguments, program=(sys.executable, *MARKED))


def finish(process: Started) -> None:
    """Wait for a command that must succeed."""
    if code := process.wait():
        raise RuntimeError(f"exit code {code}: {process.error()[-3000:]}")


def descendants(pid: int) -> list[int]:
    """The processes below this one, in whatever session."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = status.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(status.parent.name))
    below = list(children.get(pid, ()))
    for process in below:
        below += children.get(process, ())
    return below


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill_tree(process: Started) -> int:
    """SIGKILL to the command and everything below it, and wait. Returns its exit code."""
    below = descendants(process.pid)
    code = kill(process)
    for pid in below:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return code


def kill(process: Started) -> int:
    """SIGKILL to the command alone, and wait. Returns its exit code."""
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    return process.wait()


def left_alive(pids: Iterable[int], *, within_s: float) -> tuple[int, ...]:
    """Those of the processes that are still alive after this time."""
    deadline = time.monotonic() + within_s
    alive = list(pids)
    while (alive := [pid for pid in alive if is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return tuple(alive)


class _Said:
    """The standard error of processes, read while they run. A pipe, because a file may be on a disk that is full."""

    def __init__(self) -> None:
        self._read, self.pipe = os.pipe()
        self._bytes = bytearray()
        threading.Thread(target=self._collect, daemon=True).start()

    def close(self) -> None:
        """Leave the pipe to the processes that have inherited it."""
        os.close(self.pipe)

    def text(self) -> str:
        while fcntl.ioctl(self._read, termios.FIONREAD, bytes(4)) != bytes(4):
            time.sleep(0.001)
        time.sleep(0.005)  # what has been read is being appended
        return self._bytes.decode(errors="replace")

    def _collect(self) -> None:
        while some := os.read(self._read, 65536):
            self._bytes += some
