"""Output of a command that must outlive its terminal: when nobody can read it any more, it is thrown away.

Without this, `ansatz train ... | head` or a closed terminal would end a run of days at its next line of progress.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class LastingOutput:
    """A text stream that sends everything to the null device after its first write or flush that fails."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            self._discard_from_now_on()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._discard_from_now_on()

    def _discard_from_now_on(self) -> None:
        """Lead the stream's file descriptor, which it keeps, nowhere, so that what it has buffered causes no error."""
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, self._stream.fileno())
        finally:
            os.close(null)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def outlive_readers() -> Iterator[None]:
    """Let standard output and standard error outlive their readers until the block ends."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = LastingOutput(sys.stdout), LastingOutput(sys.stderr)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before
