"""Runs a program that a model wrote where it can do no harm: in a Python process with limits and without access.

Each run is a fresh interpreter without site packages, in an empty folder, with an empty environment and no open files
except its three streams. Before the program starts, the process restricts itself (Linux; no privileges needed):

limits     CPU seconds, address space, no file growth, few descriptors, no core file         setrlimit
privileges root's are given up; a crash starts no handler of crashes                         capset, prctl
files      no writing; reading only the standard library and shared libraries                Landlock, kernel 5.13
calls      no network, no processes or threads, no signals, no change of limits              seccomp, a list of calls
parent     watches the time and the output, and kills the whole process group

Not covered: a vulnerability of the kernel itself; which files exist (contents are protected, names and sizes are not);
the host's name and clock. If files or calls cannot be restricted, `isolation="full"` refuses to run.
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

from ansatz_verify.own_time import OwnTime

from ansatz.errors import ConfigError, StorageError
from ansatz.files import OF_SPACE, not_written, remedy
from ansatz.rewards.seccomp import build_filter
from ansatz.temporary import folder_of_program
from ansatz.trust import refuse_found

Isolation = Literal["full", "available"]
Role = Literal["run", "session", "program", "checker"]

_CHILD = Path(__file__).with_name("sandbox_child.py")
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")
_SYSTEM = ("/etc/ld.so.cache", "/usr/share/zoneinfo", "/dev/null", "/dev/stdin", "/dev/urandom", "/etc/localtime")
# Threads are not allowed: libraries must not ask for any.
ONE_THREAD: dict[str, str] = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
OUT_OF_TIME = (-signal.SIGXCPU, -signal.SIGKILL)  # exit codes of a program that has used its CPU time
START_LIMIT_S = 20.0  # of the own time of an interpreter that starts


class Ended(StrEnum):
    """How a run ended."""

    EXIT_OK = "exit_ok"  # exit code 0
    EXIT_ERROR = "exit_error"  # an exception, another exit code, a crash, or out of memory
    TIMEOUT = "timeout"  # out of time, running or sleeping
    OUTPUT = "output"  # wrote more than allowed
    NEVER_RAN = "never_ran"  # the sandbox could not be set up, so the program was not started


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """Own time (s; running or sleeping, see `OwnTime`), address space (MB), output of stdout and of stderr (bytes
    each)."""

    timeout_s: float = 5.0
    memory_mb: int = 512
    output_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        if not self.timeout_s > 0 or self.memory_mb < 64 or self.output_bytes < 1:
            raise ConfigError(
                f"sandbox: timeout_s = {self.timeout_s}, memory_mb = {self.memory_mb}, output_bytes = "
                f"{self.output_bytes}: expected more than 0, at least 64 (what an interpreter needs), and at least 1."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRun:
    """The outcome of a program. seconds: wall time."""

    ended: Ended
    stdout: str
    stderr: str
    seconds: float = 0.0


def run(
    source: str,
    *,
    stdin: str = "",
    limits: SandboxLimits | None = None,
    packages: bool = False,
    isolation: Isolation = "full",
) -> ProgramRun:
    """Run the source as `__main__` and wait for its end. Works from any thread; no program makes it raise.
    Raise StorageError if the disk of temporary files is full.

    packages: whether the program can import the installed packages (numpy, sympy) or only the standard library.
    isolation: "full" runs nothing unless files and calls can be restricted; "available" uses the restrictions that
    this machine offers. The texts are cut to the limit on output, and invalid UTF-8 in them is replaced.
    """
    begin = time.monotonic()
    limits = limits or SandboxLimits()
    job = job_of("run", source, limits, cpu_s=limits.timeout_s, packages=packages, isolation=isolation)
    try:
        with (
            folder_of_program("sandbox") as folder,
            holding(json.dumps(job)) as job_file,
            holding(stdin) as input_file,
            pipe() as (ready, ready_write),
            start(folder, job_file, input_file, ready_write) as process,
        ):
            try:
                ended, stdout, stderr = _collect_output(process, limits, ready)
            finally:
                os.killpg(process.pid, signal.SIGKILL)  # not waited for yet, so the group id is still ours
            code = process.wait()
    except OSError as error:
        check_disk(error)
        return ProgramRun(ended=Ended.NEVER_RAN, stdout="", stderr=str(error), seconds=time.monotonic() - begin)
    if ended is Ended.EXIT_OK and code != 0:
        ended = Ended.TIMEOUT if code in OUT_OF_TIME else Ended.EXIT_ERROR
    return ProgramRun(ended=ended, stdout=stdout, stderr=stderr, seconds=time.monotonic() - begin)


def check_disk(error: OSError) -> None:
    """Raise StorageError if the disk is full. Without this, the policy would be taught that its program was at
    fault."""
    if error.errno in OF_SPACE:
        raise StorageError(
            f"the sandbox: {not_written(Path(tempfile.gettempdir()), error)} {remedy(error)}, or set TMPDIR to a "
            "folder on another disk, then continue."
        ) from error


def require(isolation: Isolation) -> None:
    """Raise ConfigError, naming the missing part, if this machine lacks that isolation. Runs one program to find out.

    Raise UntrustedCodeError if a recipe that the user has not given asks for less than full isolation.
    """
    if isolation != "full":
        refuse_found(isolation, kind="isolation")
    _try_isolation(isolation)


@functools.cache
def _try_isolation(isolation: Isolation) -> None:
    if sys.platform != "linux":
        raise ConfigError(
            f"the sandbox needs Linux; this is {sys.platform}. Use rewards that run programs on a Linux machine."
        )
    trial = run("print(1)", isolation=isolation, limits=SandboxLimits(timeout_s=START_LIMIT_S))
    if trial.stdout == "1\n":
        return
    missing = trial.stderr.strip().rpartition("\n")[2] or f"a trial program ended with {trial.ended}"
    raise ConfigError(
        f"the sandbox cannot be set up on this machine ({sys.platform}, {platform.machine()}, kernel "
        f"{platform.release()}): {missing}. It needs Linux 5.13 or newer with Landlock and seccomp on x86-64 or arm64. "
        'Use such a machine, or set isolation: "available" if programs may read and reach what you can.'
    )


def job_of(
    role: Role, source: str, limits: SandboxLimits, *, cpu_s: float, packages: bool, isolation: Isolation
) -> dict[str, Any]:
    """Return the job for `sandbox_child`, sent as JSON. role: see there. cpu_s: CPU time in all."""
    restrictions = {"limits": _rlimits(limits, cpu_s), "full": isolation == "full", **_access(packages)}
    return {"role": role, "source": source, "parent": os.getpid(), **restrictions}


def start(
    folder: str, job: IO[bytes], stdin: IO[bytes] | int, ready: int, *, stderr: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    """Yield the child in a folder that is empty. It is killed when the thread that calls this ends.

    ready: a descriptor that gets a byte once all restrictions are in place.
    """
    # -P -s -S -B and our own environment do what -I does, but keep PYTHONHASHSEED, so that runs repeat exactly.
    flags = ["-P", "-s", "-S", "-B", "-X", "utf8"]
    return subprocess.Popen(
        [sys.executable, *flags, str(_CHILD), str(job.fileno()), str(ready)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        pass_fds=(job.fileno(), ready),
        cwd=folder,
        env={"PYTHONHASHSEED": "0", **ONE_THREAD},
        bufsize=0,
        start_new_session=True,  # a separate group that can be killed, without a terminal
    )


def _collect_output(process: subprocess.Popen[bytes], limits: SandboxLimits, ready: int) -> tuple[Ended, str, str]:
    """Read until the program ends, has used its time (which starts when the restrictions are in place) or writes too
    much."""
    assert process.stdout is not None
    assert process.stderr is not None
    texts = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    still_open = set(texts)
    ended, started, limit = Ended.EXIT_OK, False, OwnTime(process.pid, START_LIMIT_S)
    with selectors.DefaultSelector() as selector:
        for descriptor in (ready, *texts):
            selector.register(descriptor, selectors.EVENT_READ)
        while still_open and ended is Ended.EXIT_OK:
            for key, _ in selector.select(limit.patience_s()):
                part = os.read(key.fd, 65536)
                if key.fd == ready:
                    started, limit = True, OwnTime(process.pid, limits.timeout_s)
                    selector.unregister(ready)
                elif part:
                    texts[key.fd] += part
                    if len(texts[key.fd]) > limits.output_bytes:
                        ended = Ended.OUTPUT
                else:
                    still_open.remove(key.fd)
                    selector.unregister(key.fd)
            if ended is Ended.EXIT_OK and limit.is_over():  # also between the parts of an endless trickle of output
                ended = Ended.TIMEOUT
    if ended is Ended.EXIT_OK and not _has_ended(process, limit):
        ended = Ended.TIMEOUT
    stdout, stderr = (bytes(text[: limits.output_bytes]).decode(errors="replace") for text in texts.values())
    return ended if started else Ended.NEVER_RAN, stdout, stderr


def _has_ended(process: subprocess.Popen[bytes], limit: OwnTime) -> bool:
    """Wait for the end of a program that has closed its streams. `run` still has to reap the process."""
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if limit.is_over():
            return False
        time.sleep(0.001)
    return True


@contextlib.contextmanager
def pipe() -> Generator[tuple[int, int]]:
    """Yield both ends of a pipe, which are closed afterwards."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


@contextlib.contextmanager
def holding(text: str) -> Generator[IO[bytes]]:
    """Yield a nameless file that holds the text, open for reading only: a program can map its input into its memory."""
    with tempfile.TemporaryFile() as file:
        file.write(text.encode(errors="replace"))
        file.flush()
        with open(f"/proc/self/fd/{file.fileno()}", "rb") as reading:
            yield reading


def _rlimits(limits: SandboxLimits, cpu_s: float) -> dict[str, int]:
    return {
        "RLIMIT_CPU": int(cpu_s) + 1,
        "RLIMIT_AS": limits.memory_mb << 20,
        "RLIMIT_FSIZE": 0,
        "RLIMIT_NOFILE": 64,
        "RLIMIT_CORE": 0,
    }


@functools.cache
def _access(packages: bool) -> dict[str, Any]:
    """Return the child's module path, the folders that it can read, and its filter of system calls."""
    library = sysconfig.get_path("stdlib")
    path = [library, str(Path(library) / "lib-dynload")]
    if packages:
        path += dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    readable = [*_libraries(), *path[2:], *_SYSTEM]
    calls = build_filter()
    return {"path": path, "listable": [library], "readable": readable, "filter": calls.hex() if calls else ""}


def _libraries() -> list[str]:
    """Return the entries of the standard library and of the folders of shared libraries. Left out are the installed
    packages among them (a package can hold a data set, and in it the gold answers) and links to other places."""
    standard = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    shared = {os.path.realpath(place) for place in (str(Path(sys.base_prefix) / "lib"), *_LIBRARIES)}
    found: list[str] = []
    for folder in sorted(standard | shared):
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        packages = ("site-packages", "dist-packages") if folder in standard else ("python",)
        found += [os.path.join(folder, name) for name in names if not name.startswith(packages)]
    return [place for place in found if not os.path.islink(place)]
