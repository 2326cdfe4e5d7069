from __future__ import annotations

import gc
import importlib.util
import json
import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="ansatz-tests-")  # no key in the home of who runs the tests
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read once, when torch starts its threads

import pytest
import torch
from idle_workers import start_workers_when_needed
from known_tokenizers import try_each_once

gc.disable()  # until all tests are collected: what is loaded stays, and each search for garbage would look at all of it
torch.set_num_threads(2)
start_workers_when_needed()
try_each_once()
os.fsync = os.fstat  # no test cuts the power, and a toy run waits for a disk for a quarter of its time

# A shell that starts the tests in the background lets them ignore these signals, and all processes that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


SECONDS = Path(__file__).with_name("seconds.json")


def pytest_unconfigure() -> None:
    shutil.rmtree(os.environ["XDG_CONFIG_HOME"], ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:  # the longest files first, so that no worker waits for the other at the end
        seconds = json.loads(SECONDS.read_text(encoding="utf-8"))
        items.sort(key=lambda item: -seconds.get(item.location[0], 0.0))
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:  # tests/vllm itself is found as a package without an origin
        for item in items:
            if item.get_closest_marker("vllm"):
                item.add_marker(pytest.mark.skip(reason="vLLM is not installed; make test-vllm"))
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="there is no CUDA GPU"))


CPU_SECONDS = pytest.StashKey[float]()


def _cpu_seconds() -> float:
    """Return the processor time of this process and of all that it has started, those that still run included."""
    return sum(os.times()[:4]) + _ticks_of_children("self") / os.sysconf("SC_CLK_TCK")


def _ticks_of_children(process: str) -> int:
    """Return the clock ticks of the processes that run below one; 0 where there is no /proc."""
    ticks = 0
    with suppress(OSError):  # a process that has ended meanwhile
        for file in Path("/proc", process, "task").glob("*/children"):
            for child in file.read_text().split():
                fields = Path("/proc", child, "stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15])) + _ticks_of_children(child)  # its own, and of those it waited for
    return ticks


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item):
    item.stash[CPU_SECONDS] = _cpu_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    if call.when == "teardown":  # tools.test_times reads it from the report
        item.user_properties.append(("cpu_seconds", f"{_cpu_seconds() - item.stash[CPU_SECONDS]:.3f}"))
    return (yield)


def pytest_collection_finish() -> None:
    """Leave what has been loaded out of each later search for garbage."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def ansatz(monkeypatch, capsys):
    """The command in this process: ansatz(*arguments) -> (exit code, stdout, stderr)."""
    from ansatz.cli.main import main

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["ansatz", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
