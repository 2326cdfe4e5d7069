"""Rows that a run cannot use (a missing field, an unreadable gold answer, a text that is too long), and their fields
that nothing uses.

Normally the first such row is an error. Within `collect_unfit`, sources leave such rows out and record them instead, so
that all of them can be reported at once, or dropped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

from ansatz.errors import DataError

In = TypeVar("In")
Out = TypeVar("Out")
SHOWN = 5  # rows that a message describes


class UnfitRow(NamedTuple):
    """place: file and line, or the id of the problem. gold: as an error message shows it; empty if it is not known."""

    place: str
    reason: str
    gold: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {f'gold {self.gold}: ' if self.gold else ''}{self.reason}"


class RowError(DataError):
    """A row that cannot be used."""

    def __init__(self, row: UnfitRow) -> None:
        super().__init__(f"{row.place}: {row.reason}")
        self.row = row


def short(value: object) -> str:
    """Return the value as an error message shows it, at most 60 characters."""
    shown = repr(value.strip() if isinstance(value, str) else value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


_collected: ContextVar[list[UnfitRow] | None] = ContextVar("unfit rows", default=None)
_lost: ContextVar[Counter[str] | None] = ContextVar("lost fields", default=None)


@contextmanager
def _collecting(variable: ContextVar[Out | None], found: Out) -> Iterator[Out]:
    """Let the variable be what is found within the block."""
    token = variable.set(found)
    try:
        yield found
    finally:
        variable.reset(token)


def collect_unfit() -> AbstractContextManager[list[UnfitRow]]:
    """Collect unfit rows within the block: sources append them to the list instead of raising an error for the
    first."""
    return _collecting(_collected, [])


def collect_lost() -> AbstractContextManager[Counter[str]]:
    """Count the rows of each field that holds a text or a thought and is used by nothing, within the block."""
    return _collecting(_lost, Counter[str]())


def note_lost(names: Callable[[], Iterable[str]]) -> None:
    """Count the fields of a row for the enclosing `collect_lost`. names: called only within one."""
    if (fields := _lost.get()) is not None:
        fields.update(set(names()))


def describe_lost(fields: Mapping[str, int], *, total: int) -> str:
    """Return the sentence about fields that nothing uses; empty without any. total: the number of rows."""
    if not fields:
        return ""
    shown = ", ".join(f"{name!r} ({count} of {total} rows)" for name, count in sorted(fields.items()))
    return f"nothing uses the field{'s' if len(fields) > 1 else ''} {shown}"


def read_each(rows: Iterable[In], read: Callable[[In], Out]) -> Iterator[Out]:
    """Yield read(row) of each row. Within `collect_unfit`, rows that make it raise RowError are recorded there and left
    out."""
    unfit = _collected.get()
    for row in rows:
        try:
            yield read(row)
        except RowError as error:
            if unfit is None:
                raise
            unfit.append(error.row)


def _form(reason: str) -> str:
    """Return the reason without names and numbers, which differ from row to row."""
    return re.sub(r"'[^']*'|\d+", "", reason)


def unfit_message(rows: Sequence[UnfitRow], *, total: int, what: str) -> str:
    """Return the message for unfit rows: their number, the first five with gold and reason, and how to remove them. A
    reason that holds for all rows is given once, because removing them would leave nothing.

    total: the number of rows read. `what` names their origin, such as "data.train".
    """
    if len(rows) == total > 1 and len({_form(row.reason) for row in rows}) == 1:
        return f"{what}: {total} of {total} rows cannot be used, all for the same reason. The first: {rows[0]}"
    first = " " if len(rows) == 1 else "\n  "
    shown = "".join(f"{first}{row}" for row in rows[:SHOWN])
    more = f"\n  and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return (
        f"{what}: {len(rows)} of {total} rows cannot be used:{shown}{more}{first[0]}"
        "Set data.unfit: drop to leave them out, or write a file without them: ansatz data filter FILE --out OUT "
        "--drop unreadable (long prompts: --max-question-tokens N --tokenizer MODEL)."
    )
