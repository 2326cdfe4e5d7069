"""The process of one worker: the code in a Ray actor, and how its process tree is found and killed. No Ray here."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import queue
import signal
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansatz.cluster.base import Failed, Role

_PR_SET_PDEATHSIG = 1
_CLOCK_S = 5.0


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process, and not another one that gets its number later. machine: a kernel and a space of process numbers."""

    machine: str
    pid: int
    created: float

    @classmethod
    def own(cls) -> ProcessId:
        return cls(this_machine(), os.getpid(), importlib.import_module("psutil").Process().create_time())

    @property
    def is_here(self) -> bool:
        return self.machine == this_machine()

    def is_alive(self) -> bool:
        """Tell whether a process of this machine is alive. A zombie is not."""
        psutil = importlib.import_module("psutil")
        try:
            process = psutil.Process(self.pid)
            return self.names(process) and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def names(self, process: Any) -> bool:
        """Tell whether a process with this number is the same. The time of creation moves when the clock is set."""
        return abs(process.create_time() - self.created) < _CLOCK_S


def this_machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    if not boot.exists():  # not Linux: Ray then runs on this machine only
        return ""
    return f"{boot.read_text(encoding='ascii').strip()}/{os.stat('/proc/self/ns/pid').st_ino}"


def kill_tree(process: ProcessId) -> None:
    """Send SIGKILL to a process of this machine and to all below it, also if it is stopped."""
    kill_all(tree_of(process))


def tree_of(process: ProcessId) -> list[Any]:
    """Return a process of this machine and all below it, which are found only while it is alive; empty if it is not."""
    psutil = importlib.import_module("psutil")
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(process.pid)
        if process.names(root):
            return [*root.children(recursive=True), root]
    return []


def kill_all(tree: Iterable[Any]) -> None:
    """Send SIGKILL to those that are still alive."""
    psutil = importlib.import_module("psutil")
    for member in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()


class Actor:
    """Hosts the object that the role builds. Calls run in a thread of their own, and the actor passes on the values
    that they emit."""

    def __init__(self, role: Role) -> None:
        if sys.platform == "linux":  # without this, a worker that computes outlives its node for some time
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="call")
        self._host = self._thread.submit(role.build).result()

    def joined(self) -> ProcessId:
        return ProcessId.own()

    def call(self, method: str, args: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
        """Yield ("emitted", value) for each value, then ("answered", value) or ("failed", (error, fatal))."""
        messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

        def run() -> None:
            try:
                value = getattr(self._host, method)(*args, lambda item: messages.put(("emitted", item)))
                messages.put(("answered", value))
            except BaseException as error:  # also what ends a process, such as exit(), belongs to the caller
                failed = Failed.of("", 0, error)
                messages.put(("failed", (failed.error, failed.fatal)))

        self._thread.submit(run)
        while True:
            message = messages.get()
            yield message
            if message[0] != "emitted":
                return
