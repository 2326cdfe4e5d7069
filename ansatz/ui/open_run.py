"""The run that a page of the viewer shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from ansatz.errors import DataError
from ansatz.track.filters import Compare, Query, Tree
from ansatz.track.rollout_table import RolloutFile, read_groups
from ansatz.track.runs import PipelineRun
from ansatz.ui.library import Library, RunSummary

if TYPE_CHECKING:
    from ansatz.ui.index import RolloutIndex

Page = tuple[str, dict[str, Any]]
"""The name of a template, and the values that fill it."""


class NotFound(DataError):
    """The address names something that does not exist."""


class NotYet(NotFound):
    """A run that has only begun, or responses that are still being read. The page loads itself again."""


class Selected(NamedTuple):
    """The first rows that a filter selects, and how many it selects in all. waiting: files that were still to be read,
    whose rows are therefore missing."""

    rows: list[dict[str, Any]]
    total: int
    waiting: int


class OpenRun(NamedTuple):
    """A run that a page shows. summary: read once for the page, as the run may be removed meanwhile."""

    library: Library
    name: str
    path: Path
    summary: RunSummary

    @classmethod
    def find(cls, library: Library, name: str) -> OpenRun:
        """Return a run of the library. Raise NotFound if it has none of that name."""
        known = library.find_runs()
        if name not in known and name == library.awaited:
            raise NotYet(f"the run {name!r} is about to begin: libraries are loaded, recipe and data are checked.")
        if name not in known:
            raise NotFound(f"{name!r} is not a run. The runs are {', '.join(known) or 'none'}.")
        return cls(library, name, known[name], library.summarise(name, known[name]))

    @property
    def index(self) -> RolloutIndex:
        return self.library.open_index(self.path)

    def read(self) -> PipelineRun:
        """Return the run. Raise DataError if it cannot be read."""
        if self.summary.run is None and self.name == self.library.awaited:
            raise NotYet(f"the run {self.name!r} has begun and has no stage to show yet.")
        if self.summary.run is None:
            raise DataError(self.summary.notice)
        return self.summary.run

    def context(self, here: str) -> dict[str, Any]:
        """Return the values that every page of a run needs. live: where it asks whether there is something new."""
        root = f"/run/{quote(self.name)}"
        live = {"address": f"/api{root}/state", **self.library.describe_state([self.name])}
        return {"run": self.name, "here": here, "root": root, "live": live, "summary": self.summary}

    def select(self, tree: Tree, *, limit: int, what: str, whole: str = "") -> Selected:
        """Return what a filter selects, the newest files first. Raise NotFound for nothing.

        what: its name in the error. whole: a field whose last value is left out if the limit cuts into its rows.
        """
        index = self.index
        waiting = index.waiting  # before, because a file that is read meanwhile is not among the rows
        rows = index.select(Query(tree), limit=limit)
        if not rows and waiting:
            raise self.still_reading(waiting)
        if not rows:
            raise NotFound(f"the run {self.name!r} has no {what}.")
        total = index.count(tree) if len(rows) == limit else len(rows)
        if whole and total > limit:
            rows = [row for row in rows if row[whole] != rows[-1][whole]] or rows
        return Selected(rows, total, waiting)

    def still_reading(self, waiting: int) -> NotYet:
        """Return the error of a page that needs files which the index has yet to read."""
        return NotYet(f"{waiting} files with responses of the run {self.name!r} are still being read.")

    def find_row(self, place: str) -> dict[str, Any]:
        return self.select(Compare("id", "=", place), limit=1, what=f"response {place!r}").rows[0]

    def find_question(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the question and the gold answer of a row; empty texts if the run does not have them."""
        file = RolloutFile(row["stage"], row["step"], row["split"], self.path / row["file"])
        group = read_groups(file, self.index.problems).get(row["group"], {})
        known = {**self.index.problems.get(row["problem"], {}), **group}
        return {**dict.fromkeys(("question", "answer", "level", "subject", "prompt"), ""), **known}
