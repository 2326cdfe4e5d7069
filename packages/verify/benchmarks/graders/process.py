"""A grader in a process of its own, which is killed and replaced if it hangs or crashes."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_LIMIT_S = 60.0
POLL_S = 0.1
WALL_FACTOR = 6
"""The limit of a case is in CPU seconds. It may take this many times as long on the clock: the machine can be busy."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """state: "ok", "raised", "hung" or "crashed"; all but the first pay nothing. ran: the grader ran the response."""

    paid: bool
    state: str
    cpu_s: float
    ran: bool = False


class GraderProcess:
    """FILE:FUNCTION, called with (response, gold) in another process. Use it as a context manager."""

    def __init__(self, grader: str, *, limit_s: float, python: str = sys.executable) -> None:
        file, _, function = grader.rpartition(":")
        if not Path(file).is_file() or not function:
            raise ValueError(f"{grader!r}: expected FILE:FUNCTION, the function of a Python file that exists.")
        child = Path(__file__).with_name("child.py")
        self._command = [python, str(child), f"{Path(file).resolve()}:{function}"]
        self._limit_s = limit_s
        self._folder = Path(tempfile.mkdtemp(prefix="grader-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._cpu_at_start = self._ended_cpu_s = 0.0

    def __enter__(self) -> GraderProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the grader and of every process it started, without the time to start."""
        return self._ended_cpu_s + (self._cpu_now() - self._cpu_at_start if self._process is not None else 0.0)

    def grade(self, response: str, gold: str) -> Outcome:
        """ValueError if the grader cannot be loaded."""
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"response": response, "gold": gold}).encode() + b"\n")
            self._process.stdin.flush()
            reply = self._reply(self._limit_s)
        except BrokenPipeError:
            reply = dict[str, Any](state="crashed")
        ran = any(self._folder.iterdir())
        if ran or "state" in reply:
            self._stop()
        state = reply.get("state", "raised" if "error" in reply else "ok")
        return Outcome(paid=reply.get("verdict", False), state=state, cpu_s=reply.get("cpu_s", self._limit_s), ran=ran)

    def _start(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        self._process = subprocess.Popen(
            self._command,
            cwd=self._folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        self._rest = b""
        ready = self._reply(START_LIMIT_S)
        if "ready" not in ready:
            self._stop()
            raise ValueError(f"the grader could not be loaded. Look at the error of: {' '.join(self._command)}")
        self._cpu_at_start = self._cpu_now()

    def _reply(self, limit_s: float) -> dict[str, Any]:
        """The next line of the process, or how it failed as `state`. limit_s: CPU seconds after the first POLL_S."""
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + WALL_FACTOR * limit_s
        last_cpu_s = None
        while b"\n" not in self._rest:
            if select.select([self._process.stdout], [], [], POLL_S)[0]:
                read = self._process.stdout.read(1 << 16)
                if not read:
                    return {"state": "crashed"}
                self._rest += read
                continue
            last_cpu_s = last_cpu_s or self._cpu_now() + limit_s
            if time.monotonic() > deadline or self._cpu_now() > last_cpu_s:
                return {"state": "hung"}
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def _stop(self) -> None:
        if self._process is None:
            return
        self._ended_cpu_s = self.cpu_s
        for pid in reversed(_tree(self._process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.communicate()
        self._process = None

    def _cpu_now(self) -> float:
        assert self._process is not None
        return sum(_tree(self._process.pid).values())


def _tree(root: int) -> dict[int, float]:
    """CPU seconds of the process and of its descendants, each with its ended children, parents first."""
    parent: dict[int, int] = {}
    cpu_s: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        pid = int(path.parent.name)
        parent[pid], cpu_s[pid] = int(fields[1]), sum(map(int, fields[11:15])) / _TICKS
    found = [root] if root in parent else []
    for known in found:
        found += [pid for pid, of in parent.items() if of == known]
    return {pid: cpu_s[pid] for pid in found}
