"""The command's own process: settings made before torch is loaded, and the effect of signals."""

from __future__ import annotations

import ctypes
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NamedTuple, NoReturn

_exit = os._exit
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
    would get the stream's descriptor: a checkpoint could then receive a library's output, and Python's own stream is
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


_SAFE_PATH = "PYTHONSAFEPATH"


@contextmanager
def started_safely() -> Generator[None]:
    """Let the processes that `multiprocessing` starts within the block import nothing from the current folder, which
    may hold files of somebody else: they look for modules there before this process can tell them where to look.

    A process of several tasks calls `forget_safe_start` first, since user code may start scripts that import others.
    """
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        forget_safe_start()
        if before is not None:
            os.environ[_SAFE_PATH] = before


def forget_safe_start() -> None:
    os.environ.pop(_SAFE_PATH, None)


_settings_lock = threading.Lock()
_open_blocks: list[dict[str, Any]] = []
"""For each block of `keep_settings` that has not ended, the values that it will put back, by setting."""
_notes: dict[str, bool] = {}
"""Sentences for the user, such as about changes that were undone, and whether each has been taken."""


@contextmanager
def keep_settings(code: str) -> Generator[None]:
    """Put back settings of the whole process that the user's code within the block leaves changed: the current folder,
    and torch's default type, precision of products, and choice of deterministic algorithms.

    code: names the user's code in the sentence that `take_notes` gives once. Blocks of several threads may overlap: a
    value that another one has left, and that was put back meanwhile, is not put back again.
    """
    with _settings_lock:
        before = {name: setting.read() for name, setting in _find_settings().items()}
        _open_blocks.append(before)
    try:
        yield
    finally:
        with _settings_lock:
            _open_blocks[:] = [block for block in _open_blocks if block is not before]
            for name, setting in _find_settings().items():
                was, now = before.get(name, setting.default), setting.read()
                if was in (now, None):
                    continue
                setting.put(was)
                for block in _open_blocks:
                    if block.get(name) == now:
                        block[name] = was
                _notes.setdefault(f"{code} changed {name} from {was} to {now}, and it was put back.", False)


def note(sentence: str) -> None:
    """Leave a sentence for the user, from code that has no console, to `take_notes`."""
    with _settings_lock:
        _notes.setdefault(sentence, False)


def take_notes() -> list[str]:
    """Return a sentence for each change that `keep_settings` has undone, and each `note`, unless it has been taken."""
    with _settings_lock:
        sentences = [sentence for sentence, taken in _notes.items() if not taken]
        _notes.update(dict.fromkeys(sentences, True))
    return sentences


class _Setting(NamedTuple):
    """default: its value where code has loaded torch within a block, None where there is none."""

    read: Callable[[], Any]
    put: Callable[[Any], object]
    default: Any


def _find_settings() -> dict[str, _Setting]:
    """Return the settings of the process by name. Torch's settings are included only if torch is loaded."""
    folder = {"the current folder": _Setting(_read_folder, os.chdir, None)}
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "set_float32_matmul_precision"):  # it is being imported
        return folder
    return folder | {
        "torch's default type": _Setting(torch.get_default_dtype, torch.set_default_dtype, torch.float32),
        "the precision of torch's products": _Setting(
            torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"
        ),
        "torch's choice of deterministic algorithms": _Setting(
            torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, False
        ),
    }


def _read_folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # somebody has removed it
        return None


@contextmanager
def report_exits(advice: str) -> Iterator[None]:
    """Let `os._exit`, which ends a process in the middle with any code and without a word, say who has called it until
    the block ends, and end with code 2. A fork ends as before: that is how libraries end theirs."""
    owner = os.getpid()

    def say_and_exit(status: int) -> NoReturn:
        if os.getpid() == owner:
            caller = sys._getframe(1)
            place = f"{caller.f_code.co_filename}, line {caller.f_lineno}"
            with suppress(OSError):  # of a standard error that is closed: the exit code still tells
                print(f"ansatz: os._exit({status}) was called in {place}. {advice}", file=sys.stderr, flush=True)
            status = 2
        _exit(status)

    os._exit = say_and_exit
    try:
        yield
    finally:
        os._exit = _exit


def exit_at_once(code: int) -> NoReturn:
    """End the process without unwinding. Workers and servers end by themselves when their pipes close."""
    if sys.__stdout__ is not None and sys.__stdout__.isatty():
        os.write(sys.__stdout__.fileno(), _SHOW_CURSOR)
    _exit(code)
