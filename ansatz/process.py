"""The command's own process: settings made before torch is loaded, and what signals do to it."""

from __future__ import annotations

import ctypes
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_SHOW_CURSOR = b"\x1b[?25h"
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt(3)


def configure_process() -> None:
    """Let idle threads sleep after a few microseconds, and let the process keep the memory that it frees.

    By default, idle threads of torch's pool spin for milliseconds. If another process wants the core, this makes a run
    about thirty times slower. If the threads slept at once, every short operation on several threads would pay for
    waking them.

    By default, the C library returns every large block to the system and requests it again, page by page, for each
    temporary of a step. This took a tenth of a step's time.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # a few microseconds
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "mallopt"):
        library.mallopt(_MMAP_THRESHOLD, 2**30)
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def prepare_standard_streams() -> None:
    """Make the standard streams usable, however the process was started.

    The null device stands in for a stream that is closed (`ansatz ... >&-`). Without this, the next file to be opened
    would get the stream's descriptor: a checkpoint could then receive what a library prints, and Python's own stream is
    None, so that a flush is an error. Characters that the encoding of the output lacks are printed as question marks.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)
            os.set_inheritable(descriptor, True)
        if getattr(sys, name) is None:
            stream = open(descriptor, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="replace")


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """End the block on SIGINT (Ctrl-C), SIGTERM and SIGHUP with KeyboardInterrupt or SystemExit, so that it cleans
    up: it closes its files and workers and shows the cursor again. A second signal ends the process at once.

    No effect outside of the main thread, where Python forbids it, and on signals that are ignored or handled already.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def second(number: int, _frame: FrameType | None) -> NoReturn:
        exit_at_once(128 + number)

    def first(number: int, _frame: FrameType | None) -> NoReturn:
        for each in before:
            signal.signal(each, second)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    default = (signal.SIG_DFL, signal.default_int_handler)
    before = {number: handler for number in numbers if (handler := signal.getsignal(number)) in default}
    for number in before:
        signal.signal(number, first)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_at_once(code: int) -> NoReturn:
    """End the process without unwinding. Workers and servers end by themselves when their pipes close."""
    if sys.__stdout__ is not None and sys.__stdout__.isatty():
        os.write(sys.__stdout__.fileno(), _SHOW_CURSOR)
    os._exit(code)
