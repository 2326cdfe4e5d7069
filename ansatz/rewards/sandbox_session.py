"""A Python interpreter in the sandbox that keeps its variables from program to program, as a notebook does."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack

from ansatz.rewards import sandbox
from ansatz.rewards.sandbox import Ended, Isolation, ProgramRun, SandboxLimits


class SandboxSession:
    """Runs programs one after the other in one process with the restrictions of `sandbox.run`.

    The process ends when a program misses its deadline, writes too much, exits or crashes, or when the CPU time of the
    session is used up. It has to be started again then, without the earlier variables.

    limits: of each program, except that the memory is that of the process. cpu_s: CPU seconds of all programs together.
    """

    def __init__(
        self, *, limits: SandboxLimits, cpu_s: float, packages: bool = False, isolation: Isolation = "full"
    ) -> None:
        self._limits = limits
        self._job = sandbox.job_of(None, limits, cpu_s=cpu_s, packages=packages, isolation=isolation)
        self._resources = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._done, self._is_ready = -1, False

    @property
    def started(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Start the process. It is killed when the calling thread ends. OSError if it cannot be started."""
        stack = self._resources
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sandbox"))
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
        for stream in (self._process.stdout, self._process.stdin):
            os.set_blocking(stream.fileno(), False)

    def run(self, source: str) -> ProgramRun:
        """What the program printed (with its errors, in order, in `stdout`) and how it ended. EXIT_OK: the session
        continues. Works from any thread, one call at a time; no program makes it raise."""
        begin = time.monotonic()
        try:
            ended, text = self._run(json.dumps(source).encode() + b"\n")
        except OSError as error:
            ended, text = Ended.NEVER_RAN, str(error)
        if ended is not Ended.EXIT_OK:
            self.close()
        return ProgramRun(ended=ended, stdout=text, stderr="", seconds=time.monotonic() - begin)

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

    def _run(self, line: bytes) -> tuple[Ended, str]:
        process = self._process
        assert process is not None, "the session has not been started"
        assert process.stdin is not None
        if not self._is_ready and not self._wait_for_byte(time.monotonic() + sandbox.START_LIMIT_S):
            return Ended.NEVER_RAN, f"the sandbox did not start: {self._rest()}"
        self._is_ready, deadline = True, time.monotonic() + self._limits.timeout_s
        if self._wait_for_byte(0.0):  # an earlier program has written it, to seem done while it continues
            return Ended.EXIT_ERROR, "the interpreter has exited"
        try:
            if not self._send(line, deadline):
                return Ended.TIMEOUT, ""
        except BrokenPipeError:
            return Ended.EXIT_ERROR, "the interpreter has exited"
        return self._collect(deadline)

    def _send(self, line: bytes, deadline: float) -> bool:
        """Write to the input of the process. False if it has not read all of it by the deadline: without this, a
        process that seems done and reads nothing would hold up the caller."""
        assert self._process is not None
        assert self._process.stdin is not None
        stdin, rest = self._process.stdin.fileno(), memoryview(line)
        with selectors.DefaultSelector() as selector:
            selector.register(stdin, selectors.EVENT_WRITE)
            while rest:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return False
                rest = rest[os.write(stdin, rest) :]
        return True

    def _wait_for_byte(self, deadline: float) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self._done, selectors.EVENT_READ)
            return bool(selector.select(max(0.0, deadline - time.monotonic()))) and os.read(self._done, 1) != b""

    def _collect(self, deadline: float) -> tuple[Ended, str]:
        """Read until the program is done or has written too much, its process has ended, or the deadline has passed."""
        assert self._process is not None
        assert self._process.stdout is not None
        output, text = self._process.stdout.fileno(), bytearray()
        ended: Ended | None = None
        with selectors.DefaultSelector() as selector:
            for descriptor in (output, self._done):
                selector.register(descriptor, selectors.EVENT_READ)
            while ended is None:
                ready = {key.fd for key, _ in selector.select(max(0.0, deadline - time.monotonic()))}
                if self._done in ready:
                    ended = Ended.EXIT_OK if os.read(self._done, 1) else Ended.EXIT_ERROR
                elif not ready or time.monotonic() >= deadline:
                    ended = Ended.TIMEOUT
                text += self._available(output)
                if len(text) > self._limits.output_bytes:
                    ended = Ended.OUTPUT
        return ended, bytes(text[: self._limits.output_bytes]).decode(errors="replace")

    def _available(self, output: int) -> bytes:
        """What has been written and not read yet, a little more than is allowed at most."""
        parts: list[bytes] = []
        while sum(map(len, parts)) <= self._limits.output_bytes:
            try:
                part = os.read(output, 65536)
            except BlockingIOError:
                break
            if not part:
                break
            parts.append(part)
        return b"".join(parts)

    def _rest(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._available(self._process.stdout.fileno()).decode(errors="replace").strip().rpartition("\n")[2]
