"""Calls that might hang, end their process or change its state: they are made in a fork that can be killed."""

from __future__ import annotations

import datetime
import gc
import itertools
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from ansatz_verify.own_time import OwnTime

HANGS, ENDS = "hangs", "ends the process"
_MEMORY_BYTES = 8 << 30
_BEGIN_S = time.time()


class Raised(str):
    """The error that a call raised, in place of its result; also HANGS and ENDS."""


def outcomes(
    calls: Sequence[Callable[[], Any]], *, most_s: float, prepare: Callable[[], None], limit_s: float = 2.0
) -> Generator[Any, None, None]:
    """Yield the result of each call, or its error. A call that takes over limit_s is followed by a new fork.

    It ends early after two of them, and after most_s seconds. prepare: called first in every fork.
    """
    end, done, stops = time.monotonic() + most_s, 0, 0
    while done < len(calls) and stops < 2 and time.monotonic() < end:
        ours, theirs = multiprocessing.Pipe()
        if not (pid := os.fork()):
            _serve(theirs, calls[done:], prepare)
        theirs.close()
        try:
            while done < len(calls) and time.monotonic() < end:
                limit = OwnTime(pid, limit_s)
                while not (is_there := ours.poll(limit.patience_s())) and not limit.is_over():
                    pass
                outcome = ours.recv() if is_there else Raised(HANGS)
                done += 1
                yield outcome
                if not is_there:
                    break
        except (EOFError, ConnectionError):
            done += 1
            yield Raised(ENDS)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            ours.close()
        stops += 1


def _serve(pipe: Any, calls: Sequence[Callable[[], Any]], prepare: Callable[[], None]) -> None:
    silent = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silent, descriptor)
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    gc.freeze()  # a collection would copy every page of a large parent
    prepare()
    for call in calls:
        pipe.send(caught(call))
    signal.pause()  # until it is killed: its caches need no cleaning up


def caught(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or its error."""
    try:
        return call()
    except (Exception, SystemExit) as error:
        return Raised(f"{type(error).__name__}: {error}"[:100])


def fix_circumstances(seed: int, later_s: float, module: ModuleType) -> None:
    """Seed the generators of random numbers, and let every fork see the same wall clock, later_s after the start.

    The clock advances with each look at it. Names that the module has for it are replaced too.
    """
    for name, function in (("random", "seed"), ("numpy.random", "seed"), ("torch", "manual_seed")):
        if name in sys.modules:
            getattr(sys.modules[name], function)(seed)
    ticks = itertools.count()

    def clock() -> float:
        return _BEGIN_S + later_s + next(ticks) * 1e-6

    def now(cls: Any, tz: Any = None) -> Any:
        return cls.fromtimestamp(clock(), tz)

    def today(cls: Any) -> Any:
        return cls.fromtimestamp(clock())

    methods = {"now": classmethod(now), "today": classmethod(today), "utcnow": classmethod(today)}
    times: dict[int, Any] = {
        id(datetime.datetime): type("Now", (datetime.datetime,), methods),
        id(datetime.date): type("Today", (datetime.date,), {"today": methods["today"]}),
        id(time.time): clock,
        id(time.time_ns): lambda: int(clock() * 1e9),
    }
    converters: list[Callable[[float], Any]] = [time.localtime, time.gmtime, time.ctime]
    for convert in converters:
        times[id(convert)] = partial(_converted, convert, clock)
    for holder in (time, datetime, module):
        for name, value in list(vars(holder).items()):
            setattr(holder, name, times.get(id(value), value))


def _converted(convert: Callable[[float], Any], clock: Callable[[], float], at: float | None = None) -> Any:
    return convert(clock() if at is None else at)
