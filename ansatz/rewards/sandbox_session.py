"""A process in the sandbox that stays for several requests, and the Python interpreter that is one of them."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from contextlib import ExitStack

from ansatz_verify.own_time import OwnTime

from ansatz.rewards import sandbox
from ansatz.rewards.sandbox import Ended, Isolation, ProgramRun, Role, SandboxLimits
from ansatz.temporary import folder_of_program


class SandboxProcess:
    """One process with the restrictions of `sandbox.run`, its input and its output.

    role, source, classes, prelude: see `sandbox_child`. limits: of each request, except that the memory limit applies
    to the process. cpu_s: CPU seconds of the process.
    """

    def __init__(
        self,
        role: Role,
        source: str,
        *,
        limits: SandboxLimits,
        cpu_s: float,
        packages: bool = False,
        isolation: Isolation = "full",
        classes: tuple[str, ...] = (),
        prelude: str = "",
    ) -> None:
        self._limits = limits
        job = sandbox.job_of(role, source, limits, cpu_s=cpu_s, packages=packages, isolation=isolation)
        self._job = json.dumps(job | {"classes": classes, "prelude": prelude})
        self._resources = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._input = self._output = self._done = -1
        self._is_ready = False

    @property
    def started(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Start the process. It is killed when the calling thread ends. Raise OSError if it cannot be started."""
        stack = self._resources
        folder = stack.enter_context(folder_of_program("sandbox"))
        job = stack.enter_context(sandbox.holding(self._job))
        self._done, write = os.pipe()
        stack.callback(os.close, self._done)
        try:
            self._process = sandbox.start(folder, job, subprocess.PIPE, write, stderr=subprocess.STDOUT)
        finally:
            os.close(write)
        self._is_ready = False
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        for descriptor in (self._input, self._output):
            os.set_blocking(descriptor, False)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # not waited for yet, so the group id is still ours
            process.wait()
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    if stream is not None:
                        stream.close()
        self._resources.close()

    def _limit(self, limit_s: float) -> OwnTime:
        """Return a limit on the own time of the process, from now on."""
        assert self._process is not None, "the process has not been started"
        return OwnTime(self._process.pid, limit_s)

    def _wait_until_ready(self) -> bool:
        """Return whether all restrictions are in place."""
        self._is_ready = self._is_ready or self._wait_for_byte(sandbox.START_LIMIT_S)
        return self._is_ready

    def _send(self, line: bytes, limit: OwnTime) -> bool:
        """Write to the input of the process. False if it has not read all of it in its time: without this, a process
        that seems done and reads nothing would hold up the caller."""
        rest = memoryview(line)
        with selectors.DefaultSelector() as selector:
            selector.register(self._input, selectors.EVENT_WRITE)
            while rest:
                if selector.select(limit.patience_s()):
                    rest = rest[os.write(self._input, rest) :]
                elif limit.is_over():
                    return False
        return True

    def _wait_for_byte(self, limit_s: float) -> bool:
        limit = self._limit(limit_s)
        with selectors.DefaultSelector() as selector:
            selector.register(self._done, selectors.EVENT_READ)
            while not selector.select(limit.patience_s() if limit_s else 0.0):
                if limit.is_over():
                    return False
            return os.read(self._done, 1) != b""

    def _read_available(self) -> bytes:
        """Return the output that has not been read yet, at most a little more than is allowed."""
        parts: list[bytes] = []
        while sum(map(len, parts)) <= self._limits.output_bytes:
            try:
                part = os.read(self._output, 65536)
            except BlockingIOError:
                break
            if not part:
                break
            parts.append(part)
        return b"".join(parts)


class SandboxSession(SandboxProcess):
    """Runs programs one after the other in one process with the restrictions of `sandbox.run`.

    The process ends when a program uses up its time, writes too much, exits or crashes, or when the CPU time of the
    session is used up. It has to be started again then, without the earlier variables.

    limits: of each program, except that the memory limit applies to the process. cpu_s: CPU seconds of all programs.
    """

    def __init__(
        self, *, limits: SandboxLimits, cpu_s: float, packages: bool = False, isolation: Isolation = "full"
    ) -> None:
        super().__init__("session", "", limits=limits, cpu_s=cpu_s, packages=packages, isolation=isolation)

    def run(self, source: str) -> ProgramRun:
        """Return the program's output (with its errors, in order, in `stdout`) and how it ended. EXIT_OK: the session
        continues. Works from any thread, one call at a time; no program makes it raise."""
        begin = time.monotonic()
        try:
            ended, text = self._run(json.dumps(source).encode() + b"\n")
        except OSError as error:
            ended, text = Ended.NEVER_RAN, str(error)
        if ended is not Ended.EXIT_OK:
            self.close()
        return ProgramRun(ended=ended, stdout=text, stderr="", seconds=time.monotonic() - begin)

    def _run(self, line: bytes) -> tuple[Ended, str]:
        if not self._wait_until_ready():
            rest = self._read_available().decode(errors="replace").strip().rpartition("\n")[2]
            return Ended.NEVER_RAN, f"the sandbox did not start: {rest}"
        limit = self._limit(self._limits.timeout_s)
        if self._wait_for_byte(0.0):  # an earlier program has written it, to seem done while it continues
            return Ended.EXIT_ERROR, "the interpreter has exited"
        try:
            if not self._send(line, limit):
                return Ended.TIMEOUT, ""
        except BrokenPipeError:
            return Ended.EXIT_ERROR, "the interpreter has exited"
        return self._collect(limit)

    def _collect(self, limit: OwnTime) -> tuple[Ended, str]:
        """Read until the program is done or has written too much, its process has ended, or its time is used up."""
        text = bytearray()
        ended: Ended | None = None
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._output, self._done):
                selector.register(descriptor, selectors.EVENT_READ)
            while ended is None:
                ready = {key.fd for key, _ in selector.select(limit.patience_s())}
                if self._done in ready:
                    ended = Ended.EXIT_OK if os.read(self._done, 1) else Ended.EXIT_ERROR
                elif limit.is_over():
                    ended = Ended.TIMEOUT
                text += self._read_available()
                if len(text) > self._limits.output_bytes:
                    ended = Ended.OUTPUT
        return ended, bytes(text[: self._limits.output_bytes]).decode(errors="replace")
