"""A Python program that a model wrote, run where it can do no harm: its own process, its own limits, no way out.

Each run is a fresh interpreter without site packages, in an empty folder, with an empty environment and no open files
but its three streams. Before the program starts, the process shuts behind itself, with no privilege needed (Linux):

limits     CPU seconds, address space, no file growth, few descriptors, no core file   setrlimit
files      nothing can be written; nothing read but the standard library and shared ones   Landlock, kernel 5.13
calls      no network, no processes or threads, no signals, no change of limits            seccomp, a list of what may
parent     holds the deadline and the limit on output, and kills the whole process group

Not covered: a hole in the kernel itself; which files exist (their contents are shut, their names and sizes are not);
the host's name and clock. Where files or calls cannot be shut, `isolation="full"` refuses to run.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import selectors
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Literal

from ansatz.errors import ConfigError
from ansatz.rewards.seccomp import build_filter

Isolation = Literal["full", "available"]

_CHILD = Path(__file__).with_name("sandbox_child.py")
_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/usr/share/zoneinfo",
           "/dev/null", "/dev/urandom", "/etc/localtime")  # fmt: skip
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # threads are refused: ask for none
_START_LIMIT_S = 20.0  # a loaded machine may need seconds to start an interpreter


class Ended(StrEnum):
    """How a run ended."""

    EXIT_OK = "well"  # exit code 0
    EXIT_ERROR = "badly"  # an exception, another exit code, a crash, memory at its end
    TIMEOUT = "timeout"  # wall or CPU time at its end
    OUTPUT = "output"  # wrote more than it may
    NEVER_RAN = "never_ran"  # the sandbox could not be shut, so the program was not started


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """wall time (s, CPU time is bounded by it too), address space (MB), output of stdout and stderr each (bytes)."""

    timeout_s: float = 5.0
    memory_mb: int = 512
    output_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        if not self.timeout_s > 0 or self.memory_mb < 64 or self.output_bytes < 1:
            raise ConfigError(
                f"sandbox: timeout_s = {self.timeout_s}, memory_mb = {self.memory_mb}, output_bytes = "
                f"{self.output_bytes}: must be above 0, at least 64 (an interpreter's own needs), and at least 1."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a program did. seconds: wall time; not part of equality."""

    ended: Ended
    stdout: str
    stderr: str
    seconds: float = 0.0


def run(
    source: str,
    *,
    stdin: str = "",
    limits: Limits | None = None,
    packages: bool = False,
    isolation: Isolation = "full",
) -> Run:
    """Runs the source as `__main__` and waits for its end. Never raises on a program; right from any thread.

    packages: the program may import what is installed beside Ansatz (numpy, sympy), not the standard library alone.
    isolation: "full" runs nothing where files and calls cannot be shut; "available" makes do with what there is.
    Texts are cut to the limit on output; what is no UTF-8 in them is replaced.
    """
    begin = time.monotonic()
    limits = limits or Limits()
    job = json.dumps({"source": source, "limits": _rlimits(limits), "full": isolation == "full", **_pipes(packages)})
    try:
        with (
            tempfile.TemporaryDirectory(prefix="sandbox") as folder,
            _holding(job) as job_file,
            _holding(stdin) as input_file,
            _pipe() as (ready, ready_write),
            _start(folder, job_file, input_file, ready_write) as process,
        ):
            try:
                ended, stdout, stderr = _watch(process, limits, ready)
            finally:
                os.killpg(process.pid, signal.SIGKILL)  # not yet waited for, so the group is still ours
            code = process.wait()
    except OSError as error:
        return Run(ended=Ended.NEVER_RAN, stdout="", stderr=str(error), seconds=time.monotonic() - begin)
    if ended is Ended.EXIT_OK and code != 0:
        ended = Ended.TIMEOUT if code in (-signal.SIGXCPU, -signal.SIGKILL) else Ended.EXIT_ERROR
    return Run(ended=ended, stdout=stdout, stderr=stderr, seconds=time.monotonic() - begin)


@functools.cache
def require(isolation: Isolation) -> None:
    """ConfigError, with what is lacking, where this machine cannot give that isolation. Starts one program to see."""
    if sys.platform != "linux":
        raise ConfigError(
            f"the sandbox is for Linux; this is {sys.platform}. Run programs' rewards on a Linux machine."
        )
    seen = run("print(1)", isolation=isolation, limits=Limits(timeout_s=_START_LIMIT_S))
    if seen.stdout == "1\n":
        return
    lacking = seen.stderr.strip().rpartition("\n")[2] or f"a first program ended {seen.ended}"
    raise ConfigError(
        f"the sandbox cannot shut itself on this machine ({sys.platform}, {platform.machine()}, kernel "
        f"{platform.release()}): {lacking}. It needs Linux 5.13 or newer with Landlock and seccomp on x86-64 or arm64. "
        'Use such a machine, or set isolation: "available" where a program may read and reach what you can.'
    )


def _start(folder: str, job: IO[bytes], stdin: IO[bytes], ready: int) -> subprocess.Popen[bytes]:
    # -P -s -S -B and an environment of our own are what -I does, and keep PYTHONHASHSEED: runs repeat exactly.
    flags = ["-P", "-s", "-S", "-B", "-X", "utf8"]
    return subprocess.Popen(
        [sys.executable, *flags, str(_CHILD), str(job.fileno()), str(ready)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(job.fileno(), ready),
        cwd=folder,
        env={"PYTHONHASHSEED": "0", **dict.fromkeys(_THREADS, "1")},
        bufsize=0,
        start_new_session=True,  # a group of its own to kill, and no terminal
    )


def _watch(process: subprocess.Popen[bytes], limits: Limits, ready: int) -> tuple[Ended, str, str]:
    """Reads until the program ends, misses its deadline (counted from when the doors are shut) or writes too much."""
    assert process.stdout is not None
    assert process.stderr is not None
    texts = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    still_open = set(texts)
    ended, started, deadline = Ended.EXIT_OK, False, time.monotonic() + _START_LIMIT_S
    with selectors.DefaultSelector() as selector:
        for descriptor in (ready, *texts):
            selector.register(descriptor, selectors.EVENT_READ)
        while still_open and ended is Ended.EXIT_OK:
            events = selector.select(max(0.0, deadline - time.monotonic()))
            if not events:
                ended = Ended.TIMEOUT
            for key, _ in events:
                part = os.read(key.fd, 65536)
                if key.fd == ready:
                    started, deadline = True, time.monotonic() + limits.timeout_s
                    selector.unregister(ready)
                elif part:
                    texts[key.fd] += part
                    if len(texts[key.fd]) > limits.output_bytes:
                        ended = Ended.OUTPUT
                else:
                    still_open.remove(key.fd)
                    selector.unregister(key.fd)
            if time.monotonic() >= deadline:  # an endless trickle of output is no way around it
                ended = Ended.TIMEOUT
    if ended is Ended.EXIT_OK and not _has_ended(process, deadline):
        ended = Ended.TIMEOUT
    stdout, stderr = (bytes(text[: limits.output_bytes]).decode(errors="replace") for text in texts.values())
    return ended if started else Ended.NEVER_RAN, stdout, stderr


def _has_ended(process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Waits for the end of a program that has closed its streams, and leaves it to be waited for: see `run`."""
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.001)
    return True


@contextlib.contextmanager
def _pipe() -> Generator[tuple[int, int]]:
    """Both ends of a pipe, closed at the end."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


@contextlib.contextmanager
def _holding(text: str) -> Generator[IO[bytes]]:
    """A nameless file with the text in it, to be read from its start."""
    with tempfile.TemporaryFile() as file:
        file.write(text.encode(errors="replace"))
        file.flush()
        file.seek(0)
        yield file


def _rlimits(limits: Limits) -> dict[str, int]:
    return {
        "RLIMIT_CPU": int(limits.timeout_s) + 1,
        "RLIMIT_AS": limits.memory_mb << 20,
        "RLIMIT_FSIZE": 0,
        "RLIMIT_NOFILE": 64,
        "RLIMIT_CORE": 0,
    }


@functools.cache
def _pipes(packages: bool) -> dict[str, Any]:
    """What the child is told to shut, and where it may look for modules."""
    library = sysconfig.get_path("stdlib")
    path = [library, str(Path(library) / "lib-dynload")]
    if packages:
        path += dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    readable = [place for place in (*path, str(Path(sys.base_prefix) / "lib"), *_SYSTEM) if os.path.exists(place)]
    calls = build_filter()
    return {"path": path, "readable": readable, "filter": calls.hex() if calls else ""}
