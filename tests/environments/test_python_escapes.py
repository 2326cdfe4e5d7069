"""What programs of a policy try through the Python environment: nothing of it leaves the sandbox or outlives it."""

from __future__ import annotations

import gc
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ansatz.environments.base import bind_environment
from ansatz.environments.calls import EnvironmentCalls, environment_calls
from ansatz.environments.episode import Episode
from ansatz.errors import ConfigError
from ansatz.rewards import sandbox
from ansatz.types import Problem

ANSWER = f"answer-{secrets.token_hex(8)}"  # what no program may find
PROBLEM = Problem(id="p", question="?", answers=(ANSWER,), source="test", split="train", meta={"gold": ANSWER})
TIMEOUT_S = 1.0


@pytest.fixture(scope="module", autouse=True)
def _needs_a_sandbox() -> None:
    try:
        sandbox.require("full")
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture
def timeout_s() -> float:
    return TIMEOUT_S


@pytest.fixture
def calls(timeout_s: float) -> Iterator[EnvironmentCalls]:
    with environment_calls(bind_environment({"name": "python", "timeout_s": timeout_s, "turns": 6})) as calls:
        assert calls
        yield calls


def play(calls: EnvironmentCalls, *programs: str) -> list[str]:
    episode = Episode(calls.spec, PROBLEM)
    replies = [str(calls.answer(episode, f"<code>{program}</code>")) for program in programs]
    calls.end(episode)
    return replies


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if "sandbox_child" in " ".join(cmdline(child))]


def cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


REFUSED = {
    # files
    "read a file of the run": "open('{folder}/gold.txt').read()",
    "read it by its folder": "import os; os.open('gold.txt', os.O_RDONLY, dir_fd=os.open('{folder}', 0))",
    "list a folder": "import os; os.listdir('{folder}')",
    "walk up from the working folder": "import os; os.listdir('..')",
    "write into the working folder": "open('made', 'w')",
    "write into the temporary folder": "open('/tmp/made_by_a_policy', 'w')",
    "append to a library": "open(__import__('json').__file__, 'a')",
    "make a link": "import os; os.symlink('/etc/passwd', 'passwd')",
    "make a hard link": "import os; os.link('{folder}/gold.txt', 'gold')",
    "rename": "import os; os.rename('{folder}/gold.txt', '{folder}/moved')",
    "remove": "import os; os.unlink('{folder}/gold.txt')",
    "change a mode": "import os; os.chmod('{folder}/gold.txt', 0o777)",
    "make a pipe with a name": "import os; os.mkfifo('fifo')",
    "shared memory by name": "from multiprocessing import shared_memory as s; s.SharedMemory(create=True, size=9)",
    "a database in a file": "import sqlite3; sqlite3.connect('{folder}/new.db').execute('create table t (x)')",
    # network
    "a connection": "import socket; socket.create_connection(('127.0.0.1', {port}), timeout=1)",
    "a socket of the file system": "import socket; socket.socket(socket.AF_UNIX).connect('{folder}/socket')",
    "a raw socket": "import ctypes\nassert ctypes.CDLL(None).socket(17, 3, 0) >= 0, 'OSError'",
    "a web page": "import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}', timeout=1)",
    # processes and threads
    "fork": "import os; os.fork()",
    "a command": "import os; assert os.system('true') == 0, 'OSError'",
    "a command by posix_spawn": "import os; os.posix_spawn('/bin/true', ['true'], {{}})",
    "a pool": "import multiprocessing as m; m.get_context('fork').Process(target=print).start()",
    "a thread": "import threading; threading.Thread(target=print).start()",
    "a thread without Python": "import _thread; _thread.start_new_thread(print, ())",
    "the clone call": "import ctypes\nassert ctypes.CDLL(None).syscall(56, 17, 0, 0, 0, 0) >= 0, 'OSError'",
    "another program": "import os, sys; os.execv(sys.executable, [sys.executable, '-c', '1'])",
    # signals and limits
    "a signal to the parent": "import os; os.kill({parent}, 0)",
    "a signal to every process": "import os; os.kill(-1, 9)",
    "a signal to the group": "import os; os.killpg(0, 9)",
    "an alarm": "import signal\nassert signal.alarm(1) == 0, 'OSError'",
    "a timer": "import signal; signal.setitimer(signal.ITIMER_REAL, 1)",
    "more memory": "import resource as r; r.setrlimit(r.RLIMIT_AS, (-1, -1))",
    "more CPU time": "import resource as r; r.setrlimit(r.RLIMIT_CPU, (-1, -1))",
    "a priority": "import os; os.setpriority(os.PRIO_PROCESS, {parent}, 19)",
    "a session": "import os; os.setsid()",
    "to survive the parent": "import ctypes\nassert ctypes.CDLL(None).prctl(1, 0, 0, 0, 0) == 0, 'OSError'",
    # the answer in the parent
    "the parent's memory": "open('/proc/{parent}/mem', 'rb')",
    "the parent's environment": "open('/proc/{parent}/environ').read()",
    "the parent's arguments": "open('/proc/{parent}/cmdline').read()",
    "the parent's descriptors": "import os; os.listdir('/proc/{parent}/fd')",
    "the parent by ptrace": "import ctypes\nassert ctypes.CDLL(None).ptrace(16, {parent}, 0, 0) == 0, 'OSError'",
    "the parent by process_vm_readv": (
        "import ctypes\nassert ctypes.CDLL(None).process_vm_readv({parent}, 0, 0, 0, 0, 0) == 0, 'OSError'"
    ),
    "a descriptor of the parent": "import ctypes\nassert ctypes.CDLL(None).syscall(434, {parent}, 0) >= 0, 'OSError'",
    "another namespace": "import ctypes\nassert ctypes.CDLL(None).unshare(0x10000000) == 0, 'OSError'",
    "another root": "import os; os.chroot('/')",
    "a mount": "import ctypes\nassert ctypes.CDLL(None).mount(b'x', b'/tmp', b'tmpfs', 0, 0) == 0, 'OSError'",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_way_out_is_an_error_for_the_program_and_nothing_else(
    calls: EnvironmentCalls, name: str, tmp_path: Path
) -> None:
    gold = tmp_path / "gold.txt"
    gold.write_text(ANSWER)
    before = {path: path.stat() for path in (gold, tmp_path)}
    with socket.socket() as listener, socket.socket(socket.AF_UNIX) as named:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        named.bind(str(tmp_path / "socket"))
        named.listen()
        before[tmp_path] = tmp_path.stat()
        for server in (listener, named):
            server.settimeout(0.05)
        program = REFUSED[name].format(folder=tmp_path, port=listener.getsockname()[1], parent=os.getpid())
        first, second = play(calls, program, "40 + 2")
        for server in (listener, named):
            with pytest.raises(TimeoutError):
                server.accept()
    assert "Error" in first or "itimer_error" in first, first
    assert ANSWER not in first
    assert second == "<interpreter>42</interpreter>\n"
    assert gold.read_text() == ANSWER
    assert all(path.stat().st_mtime_ns == stat.st_mtime_ns for path, stat in before.items())
    assert all(path.stat().st_mode == stat.st_mode for path, stat in before.items())
    assert not Path("/tmp/made_by_a_policy").exists()


SEARCHES = {
    "all objects": "import gc; print([o for o in gc.get_objects() if 'answer-' in repr(o)[:10**5]])",
    "all frames": (
        "import sys\nf = sys._getframe()\nwhile f: print(f.f_code.co_filename, f.f_locals.keys(), f.f_globals.keys()); "
        "f = f.f_back"
    ),
    "the environment": "import os; print(dict(os.environ), __import__('sys').argv, __import__('sys').orig_argv)",
    "all descriptors": (
        "import os\nfor n in range(64):\n  try: print(n, os.pread(n, 10**6, 0))\n  except OSError as e: print(n, e)"
    ),
    "its own memory": (
        "import ctypes\nfor o in __import__('gc').get_objects():\n  if isinstance(o, dict) and 'gold' in o: print(o)"
    ),
    "the modules": "import sys; print([m for m in sys.modules if 'ansatz' in m or 'verif' in m])",
}


@pytest.mark.parametrize("name", SEARCHES)
def test_the_answer_is_nowhere_in_the_interpreter(calls: EnvironmentCalls, name: str) -> None:
    (reply,) = play(calls, SEARCHES[name])
    assert ANSWER not in reply
    assert "ansatz." not in reply


ENDED = {
    "a loop": "while True: pass",
    "a loop that catches everything": "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
    "a long sleep": "import time; time.sleep(1000)",
    "signals that are ignored": (
        "import signal\nfor n in range(1, 65):\n  try: signal.signal(n, signal.SIG_IGN)\n"
        "  except (OSError, ValueError): pass\nwhile True: pass"
    ),
    "a flood": "while True: print('x' * 10**6)",
    "a flood of errors": "import sys\nwhile True: sys.stderr.write('x' * 10**6)",
    "a flood of empty writes": "import os\nwhile True: os.write(1, b'')",
    "a number without an end": "print(9 ** 9 ** 9)",
    "a deep recursion": "import sys; sys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
    "an expression without an end": "import re; re.match('(a+)+$', 'a' * 60 + 'b')",
    "output that nobody reads": "import os\nos.set_blocking(1, False)\nwhile True:\n  try: os.write(1, b'x' * 10**5)\n"
    "  except OSError: pass",
    "a crash": "import ctypes; ctypes.memset(0, 1, 10**6)",
    "an exit within a handler": "import atexit; atexit.register(lambda: print('late')); exit(0)",
}


@pytest.mark.parametrize("name", ENDED)
def test_what_does_not_end_or_crashes_is_ended_and_answered(calls: EnvironmentCalls, name: str) -> None:
    first, second = play(calls, ENDED[name], "40 + 2")
    assert first.startswith("<interpreter>")
    assert len(first) < 3000
    assert second == "<interpreter>42</interpreter>\n"
    assert left_over() == []


def left_over() -> list[psutil.Process]:
    """Interpreters that still run a moment after their responses have ended; zombies count."""
    deadline = time.monotonic() + 60
    while (left := children()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


@pytest.mark.parametrize("timeout_s", [30.0])  # on a busy machine, filling the memory takes more than a second
def test_memory_is_limited_and_the_kernel_ends_interpreters_first(calls: EnvironmentCalls) -> None:
    episode = Episode(calls.spec, PROBLEM)
    ways = (
        "x = bytearray(10**9)",
        "x = 'x' * 10**9",
        "x = []\nwhile True: x.append(bytearray(10**7))",
        "x = 1 << 10**10",
    )
    for program in ways:
        assert "MemoryError" in str(calls.answer(episode, f"<code>{program}</code>"))
    (interpreter,) = children()
    assert Path(f"/proc/{interpreter.pid}/oom_score_adj").read_text().strip() == "1000"
    assert interpreter.memory_info().rss < 600 << 20
    calls.end(episode)
    assert left_over() == []


def test_a_program_that_pretends_to_be_done_cannot_hold_up_or_answer_the_next(calls: EnvironmentCalls) -> None:
    """It finds the descriptor on which the end of a program is reported, and goes on."""
    pretend = (
        "import os, time\nfor n in range(3, 64):\n  try: os.write(n, b'111')\n  except OSError: pass\ntime.sleep(1000)"
    )
    episode = Episode(calls.spec, PROBLEM)
    calls.answer(episode, f"<code>{pretend}</code>")
    long = "x = '" + "y" * 10**6 + "'; print(len(x))"  # more than a pipe holds
    second = str(calls.answer(episode, f"<code>{long}</code>"))
    third = str(calls.answer(episode, f"<code>{long}</code>"))
    assert "The next call starts a new interpreter" in second
    assert third == "<interpreter>1000000</interpreter>\n"
    calls.end(episode)
    assert left_over() == []


def test_an_interpreter_that_does_not_read_cannot_hold_up_the_caller(calls: EnvironmentCalls) -> None:
    once = (
        "import os, time\nfor n in range(3, 64):\n  try: os.write(n, b'1'); break\n  except OSError: pass\n"
        "time.sleep(1000)"
    )
    episode = Episode(calls.spec, PROBLEM)
    calls.answer(episode, f"<code>{once}</code>")
    second = str(calls.answer(episode, "<code>x = '" + "y" * 10**6 + "'</code>"))
    assert "The next call starts a new interpreter" in second
    calls.end(episode)
    assert left_over() == []


def test_no_interpreter_descriptor_or_thread_is_left(calls: EnvironmentCalls) -> None:
    play(calls, "1")  # what is opened once
    gc.collect()
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for program in ("x = 1", "exit()", "while True: print(1)", "import os; os._exit(3)"):
        play(calls, program)
    assert left_over() == []
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= files
    assert threading.active_count() <= threads + 1
    assert not [child for child in psutil.Process().children() if child.status() == psutil.STATUS_ZOMBIE]


def test_interpreters_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    script = """
import sys, time
from ansatz.environments.base import bind_environment
from ansatz.environments.calls import EnvironmentCalls
from ansatz.environments.episode import Episode
from ansatz.types import Problem
calls = EnvironmentCalls(bind_environment({"name": "python", "timeout_s": 60}))
episode = Episode(calls.spec, Problem(id="p", question="", source="t", split="train"))
calls.answer(episode, "<code>x = 1</code>")
calls.submit([(0, episode, "<code>import time; time.sleep(1000)</code>")])
print("ready", flush=True)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    inner = psutil.Process(process.pid).children(recursive=True)
    assert inner
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(inner, timeout=60)
    assert alive == []
