"""The ledger: the tickets of open steps and their rollouts, as JSON lines in one file for each step.

    ledger/step-000012.jsonl    {"ticket": {...}}     a ticket that was issued
                                {"landed": {...}}     the rollouts of a ticket that was issued above

It is only a cache: without it, tickets that a checkpoint leaves open are sampled again, with the same result. Lines are
written at once, so they survive a kill of the process, and are flushed to disk within a second. When the disk is full,
the run continues without the ledger of the steps whose lines could not be written.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from ansatz.files import not_written
from ansatz.links import list_folder, make_folder, open_file, read_bytes, remove
from ansatz.rollout.ticket import (
    Landed,
    Ticket,
    TicketKey,
    digest,
    landed_from_json,
    landed_to_json,
    ticket_from_json,
    ticket_to_json,
)

SYNC_S = 1.0
"""A line is on disk after at most this number of seconds."""


class Ledger:
    """The ledger in a folder, which is made when it is needed. Any thread may call it.

    on_failure: called with a step and a sentence if its lines cannot be written, once for each step, from `issue`.
    Example: after `ledger.issue([ticket])` and `ledger.land(landing)`, `ledger.landed()[ticket.key]` is the landing.
    """

    def __init__(self, folder: Path, *, on_failure: Callable[[int, str], None] = lambda step, text: None) -> None:
        self._folder, self._on_failure = folder, on_failure
        self._failed: dict[int, str] = {}  # steps whose files end before a line that could not be written
        self._reported = set[int]()
        self._files: dict[int, TextIO] = {}
        self._unsynced = set[int]()
        self._timer: threading.Timer | None = None
        self._lock = threading.RLock()

    def issue(self, tickets: Iterable[Ticket]) -> None:
        """Record tickets before they are sampled."""
        for ticket in tickets:
            self._append(ticket.step, {"ticket": ticket_to_json(ticket)})
        for step in self._failed.keys() - self._reported:
            self._reported.add(step)
            self._on_failure(step, f"{self._failed[step]} A kill before the next checkpoint costs time, and no result.")

    def land(self, landing: Landed) -> None:
        """Record a finished group. Its ticket must have been issued."""
        self._append(landing.ticket.step, {"landed": landed_to_json(landing)})

    def landed(self) -> dict[TicketKey, Landed]:
        """Return the finished groups by key. If two tickets share a key, the one that was issued last counts.

        Torn or damaged lines are left out.
        """
        by_key: dict[TicketKey, Landed] = {}
        for path in list_folder(self._folder, "step-*.jsonl"):
            tickets: dict[TicketKey, Ticket] = {}
            for line in read_bytes(path).split(b"\n")[:-1]:
                try:
                    row = json.loads(line)
                    if "ticket" in row:
                        ticket = ticket_from_json(row["ticket"])
                        tickets[ticket.key] = ticket
                        by_key.pop(ticket.key, None)
                        continue
                    landing = landed_from_json(row["landed"], tickets)
                    if digest(landing.rollouts) == landing.digest:
                        by_key[landing.ticket.key] = landing
                except (ValueError, KeyError, TypeError):
                    continue
        return by_key

    def forget(self, through: int) -> None:
        """Remove the files of steps up to this one: a checkpoint covers them."""
        with self._lock:
            for path in list_folder(self._folder, "step-*.jsonl"):
                if (step := int(path.stem.removeprefix("step-"))) <= through:
                    self._unsynced.discard(step)
                    if (file := self._files.pop(step, None)) is not None:
                        file.close()
                    remove(path)

    def sync(self) -> None:
        """Flush all lines to disk."""
        with self._lock:
            self._timer = None
            for step in self._unsynced:
                with suppress(OSError):  # a cache that may be lost
                    os.fsync(self._files[step].fileno())
            self._unsynced.clear()

    def close(self) -> None:
        """Flush and close the files. They are kept."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self.sync()
            for file in self._files.values():
                file.close()
            self._files.clear()

    def _append(self, step: int, row: dict[str, Any]) -> None:
        line = json.dumps(row, separators=(",", ":")) + "\n"
        with self._lock:
            if step in self._failed:  # a landing must not follow without its ticket
                return
            try:
                if step not in self._files:
                    self._files[step] = self._open(step)
                self._files[step].write(line)
                self._files[step].flush()
            except OSError as error:
                self._failed[step] = not_written(self._folder / _name(step), error, needed=len(line))
                self._unsynced.discard(step)
                if (file := self._files.pop(step, None)) is not None:
                    with suppress(OSError):  # what is left in its buffer cannot be written either
                        file.close()
                return
            self._unsynced.add(step)
            if self._timer is None:
                self._timer = threading.Timer(SYNC_S / 2, self.sync)
                self._timer.daemon = True
                self._timer.start()

    def _open(self, step: int) -> TextIO:
        """Open a file to append to it, without the torn line that a kill may have left at its end."""
        make_folder(self._folder, private=True)
        path = self._folder / _name(step)
        if path.is_file():
            whole = read_bytes(path).rfind(b"\n") + 1
            with open_file(path, "r+b") as file:
                file.truncate(whole)
        return open_file(path, "a", encoding="utf-8")


def _name(step: int) -> str:
    return f"step-{step:06d}.jsonl"
