"""Rows of a run on a disk that may be full: a write that fails is repeated with the next one, in order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ansatz.errors import StorageError
from ansatz.files import HALF_CHARACTERS, append_text, not_written, remedy, write_text

MAX_FAILING_STEPS = 3
"""A run stops when its rows could not be written at this number of steps in a row."""


class RowWriter:
    """Writes files of one stage. on_failure: called with the step and a sentence, once for each step that fails."""

    def __init__(self, on_failure: Callable[[int, str], None]) -> None:
        self._on_failure = on_failure
        self._waiting: list[tuple[Callable[[Path, str], None], Path, Callable[[], str]]] = []  # write, path, text
        self._failing_steps: list[int] = []

    def append(self, step: int, path: Path, text: str) -> None:
        """Append the text to the file, now or with a later call. Raise StorageError at the third failing step in a
        row."""
        self._add(step, append_text, path, lambda: text)

    def replace(self, step: int, path: Path, text: Callable[[], str]) -> None:
        """Replace the file by the result of `text`, which is called when the file is written. Otherwise as `append`."""
        self._add(step, write_text, path, text)

    def flush(self) -> None:
        """Write everything that is still waiting. Raise StorageError if that is not possible."""
        if (fault := self._try()) is not None:
            raise StorageError(fault[0]) from fault[1]

    def forget(self) -> None:
        """Drop everything that is still waiting."""
        self._waiting.clear()
        self._failing_steps.clear()

    def _add(self, step: int, write: Callable[[Path, str], None], path: Path, text: Callable[[], str]) -> None:
        self._waiting.append((write, path, text))
        if (fault := self._try()) is None or step in self._failing_steps[-1:]:
            return
        sentence, error = fault
        self._failing_steps.append(step)
        if len(self._failing_steps) >= MAX_FAILING_STEPS:
            raise StorageError(
                f"step {step}: {sentence} It failed at {MAX_FAILING_STEPS} steps in a row. The last checkpoint is "
                f"intact. {remedy(error)}, then continue with --resume."
            )
        self._on_failure(step, f"{sentence} It is written again at the next step.")

    def _try(self) -> tuple[str, OSError] | None:
        """Write everything that is waiting. Return a sentence and the error of the first file that fails, or None."""
        while self._waiting:
            write, path, text = self._waiting[0]
            try:
                write(path, text())
            except OSError as error:
                needed = len(text().encode(errors=HALF_CHARACTERS))
                return not_written(path, error, needed=needed), error
            self._waiting.pop(0)
        self._failing_steps.clear()
        return None
