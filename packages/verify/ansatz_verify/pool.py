"""Worker processes that can be killed, for work that might not end: algebra on text that a model wrote.

The parent watches the time that a job uses (`OwnTime`: a loaded machine does not change the questions that a worker can
decide). It kills and replaces a worker that needs too long, so a call returns whatever the job does, from any thread,
within asyncio, in a daemonic process or in a Ray actor. The parent uses no signals, alarms or forks: a worker is a
fresh interpreter on two pipes. It does not import the parent's main module, so it never loads torch and needs no
`__main__` guard. Workers start with the first job, or before it with `start`. After the first job there is always one
spare worker, so that a job that follows a killed one does not wait for an interpreter to start.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import weakref
from typing import Any

from ansatz_verify.own_time import OwnTime

Json = dict[str, Any]

_BOOT = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from ansatz_verify.worker import main; main()"
_START_LIMIT_S = 60.0  # of the own time of a worker that imports sympy
_KILL_MARGIN_S = 0.1  # part of the time limit that is reserved for the kill itself
_JOBS_PER_WORKER = 5_000  # then it is replaced, so that the caches of libraries cannot grow forever


class JobTimeout(Exception):
    """The job has used its time. Its worker was killed and replaced."""


class JobCrashed(Exception):
    """The worker died, ran out of memory, or the job raised."""


class _Worker:
    """One child process. Only one thread at a time calls `ask`."""

    def __init__(self, target: str, memory_mb: int, lifetime_s: float) -> None:
        arguments = [json.dumps(sys.path), target, str(memory_mb), str(lifetime_s)]
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # the parent handles an interrupt at the terminal
        )
        self.jobs = 0
        self._ready = False

    def wait_ready(self) -> None:
        if not self._ready:
            self._read(_START_LIMIT_S)
            self._ready = True

    def ask(self, job: Json, timeout_s: float) -> Json:
        self.wait_ready()
        self.jobs += 1
        assert self.process.stdin is not None
        message = memoryview(json.dumps(job).encode() + b"\n")
        try:
            while message:
                message = message[self.process.stdin.write(message) or 0 :]
        except OSError as error:
            raise JobCrashed("the worker has died") from error
        reply: Json = json.loads(self._read(timeout_s))
        if "crashed" in reply:
            raise JobCrashed(reply["crashed"])
        return reply

    def _read(self, limit_s: float) -> bytes:
        """Return one line of the worker's output. Raise JobTimeout if it has used its time."""
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        limit = OwnTime(self.process.pid, limit_s)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        parts: list[bytes] = []
        while True:
            if not poll.poll(limit.patience_s() * 1000):
                if limit.is_over():
                    raise JobTimeout("no reply in time")
                continue
            part = os.read(descriptor, 65536)
            if not part:
                raise JobCrashed("the worker died")
            parts.append(part)
            if part.endswith(b"\n"):
                return b"".join(parts)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def _kill_all(workers: list[_Worker], owner: int) -> None:
    if os.getpid() != owner:  # a fork of the parent must not kill the parent's workers
        return
    while workers:
        workers.pop().kill()


class WorkerPool:
    """Up to `workers` processes that run `target`: "package.module:function", which maps a JSON object to another.

    timeout_s: own time of one job, including the kill, see `OwnTime`. Waiting for a free worker does not count.
    memory_mb: address space of a worker (RLIMIT_AS).
    """

    def __init__(self, target: str, *, workers: int = 1, timeout_s: float = 1.0, memory_mb: int = 1024) -> None:
        if workers < 1:
            raise ValueError(f"workers = {workers}: expected 1 or more.")
        if timeout_s <= _KILL_MARGIN_S:
            raise ValueError(f"timeout_s = {timeout_s}: expected more than {_KILL_MARGIN_S} s.")
        self.target, self.workers, self.timeout_s, self.memory_mb = target, workers, timeout_s, memory_mb
        self._reset()

    def _reset(self) -> None:
        self._owner = os.getpid()
        self._changed = threading.Condition()
        self._all: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._busy = 0
        self._finalizer = weakref.finalize(self, _kill_all, self._all, self._owner)

    @property
    def started(self) -> int:
        """Return the number of live processes: at most `workers` and the spare."""
        return len(self._all)

    def start(self, *, wait: bool = True) -> None:
        """Start all workers and the spare, and wait until they are ready, so that no job waits for an import.

        wait: without it, only the workers start, and they import while the caller does something else.
        """
        with self._changed:
            while len(self._all) < self.workers + wait:
                self._idle.append(self._spawn())
            idle = list(self._idle)
        for worker in idle if wait else ():
            worker.wait_ready()

    def call(self, job: Json, *, timeout_s: float | None = None) -> Json:
        """Return the target's reply to `job`. Raise JobTimeout or JobCrashed."""
        if os.getpid() != self._owner:  # after a fork the pipes belong to the parent
            self._reset()
        worker = self._take()
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        healthy = False
        try:
            reply = worker.ask(job, max(limit_s - _KILL_MARGIN_S, 0.01))
            healthy = worker.jobs < _JOBS_PER_WORKER
            return reply
        finally:
            self._give_back(worker, healthy=healthy)

    def close(self) -> None:
        """End all workers. It can be called twice. A later call starts new workers."""
        with self._changed:
            if os.getpid() == self._owner:
                for worker in self._all:
                    if worker in self._idle:
                        worker.kill()
                    else:  # a thread is waiting on its pipes; it sees the end and closes them
                        worker.process.kill()
            self._idle.clear()
            self._all.clear()
            self._changed.notify_all()

    def _spawn(self) -> _Worker:
        worker = _Worker(self.target, self.memory_mb, 5 * self.timeout_s + 5)
        self._all.append(worker)
        return worker

    def _take(self) -> _Worker:
        with self._changed:
            while self._busy >= self.workers:
                self._changed.wait()
            self._busy += 1
            return self._idle.pop() if self._idle else self._spawn()

    def _give_back(self, worker: _Worker, *, healthy: bool) -> None:
        if not healthy:
            worker.kill()
        with self._changed:
            self._busy -= 1
            self._changed.notify()
            if worker not in self._all:  # the pool was closed in the meantime
                return
            if healthy:
                self._idle.append(worker)
            else:
                self._all.remove(worker)
            if len(self._all) < self.workers + 1:
                self._idle.insert(0, self._spawn())  # used last, because it is still importing
