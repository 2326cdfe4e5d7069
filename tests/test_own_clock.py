"""Limits in wall time count the time in which the process could run."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from ansatz import own_clock
from benchmarks.faults.processes import descendants

WITHIN = {"reward": "done", "environment": "seen", "judge": "yes", "program": "done", "worker": "done"}
HANGING = {"hanging reward": "missed", "hanging worker": "missed", "endless program": "timeout"}


def test_a_stop_costs_no_call_its_time_and_a_call_that_hangs_is_still_ended():
    """Of the command alone, whose programs and workers go on, and of all that it has started."""
    command = [sys.executable, "-m", "tests.limited_calls"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [str(process.stdout and process.stdout.readline()) for process in processes]
    assert said == ["now\n"] * 2
    pids = [process.pid for process in processes]
    send_all(signal.SIGSTOP, pids)
    pids += descendants(pids[0])
    send_all(signal.SIGSTOP, pids)
    time.sleep(4.0)
    send_all(signal.SIGCONT, pids)
    said = [json.loads(process.communicate()[0]) for process in processes]
    assert said == [{"ended": WITHIN | HANGING, "stalls": [], "stops": 1}] * 2


def send_all(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # a program has ended meanwhile
            os.kill(pid, number)


def test_a_call_that_keeps_the_lock_of_python_uses_its_time():
    """A regular expression, or a library in C, can keep it for as long as it likes. That is no stop."""
    own_clock.take_stops()  # those of other tests, on a machine that paused
    began, own_began = time.monotonic(), own_clock.now()
    ctypes.PyDLL(None).usleep(600_000)
    took_s, own_s = time.monotonic() - began, own_clock.now() - own_began
    assert own_s == pytest.approx(took_s, abs=0.05)
    assert own_clock.take_stops() == []


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="only Linux has this scheduling class")
def test_a_process_that_waits_while_others_run_was_not_stopped():
    """A thread of the lowest class next to busy processes on one processor comes late by half a second."""
    command = [sys.executable, "-c", NEXT_TO_BUSY_PROCESSES]
    longest_s, stops = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=120).stdout)
    assert longest_s > 0.5
    assert stops == []


NEXT_TO_BUSY_PROCESSES = """
import json, os, subprocess, sys, time
from ansatz import own_clock

own_clock._STOP_S = 0.25
own_clock.now()
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
for thread in os.listdir("/proc/self/task"):
    os.sched_setaffinity(int(thread), os.sched_getaffinity(0))
    os.sched_setscheduler(int(thread), os.SCHED_IDLE, os.sched_param(0))
times = [time.monotonic()]
while times[-1] - times[0] < 30 and max([0, *(b - a for a, b in zip(times, times[1:]))]) < 0.55:
    time.sleep(0.05)
    times.append(time.monotonic())
for process in busy:
    process.kill()
time.sleep(0.5)
print(json.dumps([max(b - a for a, b in zip(times, times[1:])), own_clock.take_stops()]))
"""


def test_a_fork_has_a_clock_of_its_own_that_ticks():
    own_clock.now()
    if (child := os.fork()) == 0:
        own_clock.now()
        os._exit(sum(thread.name == "own clock" and thread.is_alive() for thread in threading.enumerate()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_a_deadline_without_limit_is_never_over():
    deadline = own_clock.Deadline(None)
    assert deadline.left_s is None
    assert not deadline.is_over()
    assert own_clock.Deadline(0.0).is_over()
