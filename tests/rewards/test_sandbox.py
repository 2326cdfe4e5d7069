"""The sandbox: honest programs run, and the ways out through Python's own functions are shut."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ansatz.errors import ConfigError
from ansatz.rewards import sandbox, seccomp
from ansatz.rewards.sandbox import Ended, SandboxLimits, run

SHORT = SandboxLimits(timeout_s=0.3)

WAYS_OUT = [
    "open('/etc/passwd').read()",
    "open('mine', 'w')",
    "open('/dev/null', 'w')",
    "import os; os.listdir('/')",
    "import os; os.listdir('/proc/self')",
    "import os; os.mkdir('/tmp/made_by_a_program')",
    "import os; os.remove('/tmp/anything')",
    "import os; os.memfd_create('x')",
    "import tempfile; tempfile.TemporaryFile()",
    "import socket; socket.socket()",
    "import socket; socket.socketpair()",
    "import os; os.fork()",
    "import os; os.execv('/bin/true', ['true'])",
    "import subprocess; subprocess.run(['true'])",
    "import threading; threading.Thread(target=print).start()",
    "import os; os.kill(os.getppid(), 0)",
    "import os; os.setsid()",
    "import os; os.chmod('/tmp', 0o777)",
    "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 1))",
    "import os; os.fstat(3)",
    "import fcntl, os; fcntl.fcntl(1, fcntl.F_SETOWN, os.getppid())",
    "import fcntl; fcntl.fcntl(1, 10, 9)",  # F_SETSIG
    "import fcntl; fcntl.fcntl(1, fcntl.F_SETFL, fcntl.fcntl(1, fcntl.F_GETFL) | 0x2000)",  # O_ASYNC
    "import fcntl; fcntl.fcntl(1, 1031, 1 << 20)",  # F_SETPIPE_SZ
    "import fcntl; fcntl.fcntl(0, 1024, 0)",  # F_SETLEASE
    "import fcntl; fcntl.flock(0, fcntl.LOCK_EX)",
    "import ctypes\nlibc = ctypes.CDLL(None)\nassert libc.madvise(ctypes.c_void_p(0), 0, 100) == 0",  # MADV_HWPOISON
    "import ctypes\nlibc = ctypes.CDLL(None)\nassert libc.prctl(4, 1, 0, 0, 0) == 0",
    "import ctypes\nlibc = ctypes.CDLL(None)\nassert libc.syscall(101, 16, 1, 0, 0) == 0",
]


@pytest.fixture(scope="module", autouse=True)
def _needs_a_sandbox():
    try:
        sandbox.require("full")
    except ConfigError as error:
        pytest.skip(str(error))


def test_a_program_reads_its_input_and_its_output_comes_back():
    source = "import sys, math, fractions, json\nn = int(input())\nprint(n * 2, sys.stdin.read().strip())\nexit()"
    seen = run(source, stdin="21\nrest é\n")
    assert (seen.ended, seen.stdout, seen.stderr) == (Ended.EXIT_OK, "42 rest é\n", "")
    assert seen.seconds > 0


@pytest.mark.parametrize("read", ["input()", "sys.stdin.read()", "open(0).read()", "open('/dev/stdin').read()"])
def test_each_way_to_read_the_input_works(read):
    assert run(f"import sys; print({read})", stdin="here", limits=SandboxLimits(timeout_s=20)).stdout == "here\n"


def test_what_honest_programs_use_is_allowed():
    source = """
import asyncio, ctypes, datetime, decimal, fractions, hashlib, itertools, json, mmap, os, queue, random, re, resource
import socket, sqlite3, ssl, statistics, subprocess, tempfile, threading, time, traceback
lock = threading.Lock()
assert lock.acquire(timeout=0.01) and not lock.acquire(timeout=0.01) and not threading.Event().wait(0.01)
waiting = queue.Queue(); waiting.put(1)
assert waiting.get(timeout=1) == 1
time.sleep(0.01)
assert min(time.time(), time.perf_counter(), time.process_time(), time.thread_time(), time.monotonic()) > 0
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (64, 64) and os.cpu_count() and os.sched_getaffinity(0)
memory = mmap.mmap(-1, 4096); memory[:2] = b"ab"
assert sqlite3.connect(":memory:").execute("select 1").fetchall() == [(1,)]
assert len(str(3**5000)) == 2386 and fractions.Fraction(1, 3) + 1 == fractions.Fraction(4, 3)
assert [int(number) for number in re.findall("[0-9]+", open(0).read())] == [1, 2, 3]
try: 1 / 0
except ZeroDivisionError: traceback.print_exc()
print("done")
"""
    seen = run(source, stdin="1 2\n3", limits=SandboxLimits(timeout_s=20))
    assert seen.stdout == "done\n", seen.stderr


@pytest.mark.parametrize(
    "source",
    [
        "import numpy as np; print(round(np.linalg.solve(np.eye(300) * 2, np.ones((300, 300)) @ np.ones(300))[0]))",
        "import sympy as sp; x = sp.symbols('x'); print(sp.solve(x**3 - 450 * x**2 + 67500 * x - 3375000, x)[0])",
    ],
    ids=["numpy", "sympy"],
)
def test_libraries_of_mathematics_work_if_packages_are_asked_for(source):
    pytest.importorskip(source.split()[1])
    seen = run(source, packages=True, limits=SandboxLimits(timeout_s=60, memory_mb=2048))
    assert seen.stdout == "150\n", seen.stderr


def test_it_is_main_and_runs_the_same_each_time():
    source = "print(__name__, hash('a'), list({'x', 'y', 'z'}))"
    first, second = run(source), run(source)
    assert first.stdout.startswith("__main__")
    assert first.stdout == second.stdout


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x =", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(3)", ""),
        ("bytearray(10**10)", "MemoryError"),
        ("f = lambda: f()\nf()", "RecursionError"),
        ("import ctypes; ctypes.string_at(0)", ""),
        ("import numpy", "ModuleNotFoundError"),
    ],
)
def test_a_program_that_fails_ends_with_an_error_and_its_message(source, message):
    seen = run(source)
    assert seen.ended is Ended.EXIT_ERROR
    assert message in seen.stderr


def test_there_is_no_way_out():
    tries = "for way in {ways!r}:\n try: exec(way)\n except BaseException: pass\n else: print(way)\nprint('tried')"
    seen = run(tries.format(ways=[*WAYS_OUT, "print('honest')"]))
    assert seen.stdout == "honest\nprint('honest')\ntried\n"


def test_a_program_cannot_have_the_kernel_signal_another_process():
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    attack = f"""
import fcntl, os
for command, value in ((fcntl.F_SETOWN, {victim.pid}), (10, 9), (fcntl.F_SETFL, os.O_NONBLOCK | 0x2000)):
    try: fcntl.fcntl(1, command, value)
    except OSError: pass
for _ in range(200): os.write(1, b"x" * 1000)
print("done")
"""
    try:
        assert run(attack, limits=SandboxLimits(timeout_s=5)).stdout.endswith("done\n")
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_the_environment_and_the_arguments_tell_nothing(monkeypatch):
    monkeypatch.setenv("SECRET", "sesame")
    seen = run("import os, sys; print(sorted(os.environ), sys.argv)")
    assert "SECRET" not in seen.stdout
    assert seen.stdout.endswith("['program.py']\n")


@pytest.mark.parametrize("source", ["while True: pass", "import time; time.sleep(60)"])
def test_what_does_not_end_is_ended(source):
    assert run(source, limits=SHORT).ended is Ended.TIMEOUT


def test_output_without_pause_does_not_move_the_deadline(monkeypatch):
    # without a limit on CPU time, only the parent can end it, and if it does not, the limit on output does
    monkeypatch.setattr(sandbox, "_rlimits", lambda limits, cpu_s: {})
    endless = "import os\nwhile True: os.write(1, b'x')"
    seen = run(endless, limits=SandboxLimits(timeout_s=0.1, output_bytes=1 << 22))
    assert seen.ended is Ended.TIMEOUT


def test_a_program_that_closes_its_streams_is_waited_for_and_ended_at_the_deadline():
    close = "import os, time\nos.close(1); os.close(2); time.sleep({})"
    assert run(close.format(0.1), limits=SandboxLimits(timeout_s=5)).ended is Ended.EXIT_OK
    assert run(close.format(60), limits=SHORT).ended is Ended.TIMEOUT


def test_writing_is_refused_before_the_files_are_even_looked_at():
    # EPERM is the call filter's answer, EACCES would be Landlock's: each must hold where the other is lacking
    seen = run("for place in ('/dev/null', '/none'):\n try: open(place, 'w')\n except OSError as e: print(e.errno)")
    assert seen.stdout == "1\n1\n"


def test_a_flood_of_output_is_cut_and_ended():
    seen = run("while True: print('x' * 1000)", limits=SandboxLimits(output_bytes=5000))
    assert seen.ended is Ended.OUTPUT
    assert len(seen.stdout) == 5000


def children() -> set[str]:
    """The processes that this one started, zombies included."""
    return {pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


def test_nothing_is_left_behind():
    before = len(os.listdir("/proc/self/fd")), children()
    for source in ("print(1)", "while True: pass", "x ="):
        run(source, limits=SandboxLimits(timeout_s=0.2))
    assert (len(os.listdir("/proc/self/fd")), children()) == before


def test_runs_go_side_by_side_from_threads():
    seen: list[str] = []
    threads = [threading.Thread(target=lambda n=n: seen.append(run(f"print({n})").stdout)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [f"{n}\n" for n in range(6)]


def test_installed_packages_may_be_asked_for():
    seen = run("import typing_extensions; print('there')", packages=True)
    assert seen.stdout == "there\n"


def test_without_a_filter_full_isolation_runs_nothing_and_available_runs(monkeypatch):
    monkeypatch.setattr(sandbox, "build_filter", lambda: None)
    sandbox._access.cache_clear()
    sandbox._try_isolation.cache_clear()
    try:
        seen = run("print('ran')")
        assert (seen.ended, seen.stdout) == (Ended.NEVER_RAN, "")
        with pytest.raises(ConfigError, match=r"system calls.*not known.*isolation"):
            sandbox.require("full")
        assert run("print('ran')", isolation="available").stdout == "ran\n"
    finally:
        sandbox._access.cache_clear()
        sandbox._try_isolation.cache_clear()


def test_an_unknown_machine_has_no_filter_and_each_known_one_its_own():
    assert seccomp.build_filter("pdp11") is None
    filters = [seccomp.build_filter(machine) for machine in ("x86_64", "aarch64")]
    assert all(made and len(made) % 8 == 0 for made in filters)
    assert filters[0] != filters[1]


@pytest.mark.parametrize("wrong", [{"timeout_s": 0}, {"memory_mb": 1}, {"output_bytes": 0}])
def test_limits_that_cannot_be_kept_are_refused(wrong):
    with pytest.raises(ConfigError, match="sandbox"):
        SandboxLimits(**wrong)
