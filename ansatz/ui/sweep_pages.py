"""The page of a sweep, with links to its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from starlette.responses import Response

from ansatz.links import read_text
from ansatz.track.jsonl import Row
from ansatz.track.report_of_sweep import describe_sweep
from ansatz.track.sweep_rows import begin_of_run
from ansatz.ui.library import Library
from ansatz.ui.open_run import NotFound, Page


class SweepPages:
    """Each method makes one page. query: the parameters of the address."""

    def __init__(self, library: Library) -> None:
        self.library = library

    def routes(self) -> dict[str, Callable[..., Page | Response]]:
        """Return the methods by address."""
        return {"/sweep/{name}": self.show_sweep, "/sweep/{name}/rows.jsonl": self.export_rows}

    def export_rows(self, name: str, query: Mapping[str, str]) -> Response:
        return Response(read_text(self._find(name)), media_type="application/jsonl")

    def show_sweep(self, name: str, query: Mapping[str, str]) -> Page:
        runs = list(self.library.find_runs())

        def find_run(row: Row) -> str:
            """Return the name of a cell's run; empty if it is not there any more, or if several could be it."""
            begin = f"block-{row['block']:04d}-{begin_of_run(row['arm'], row['times'])}"
            found = [run for run in runs if run.rpartition("-")[0] == begin]
            return found[0] if len(found) == 1 else ""

        return "sweep.html", {**describe_sweep(self._find(name), query.get("outcome", "")), "find_run": find_run}

    def _find(self, name: str) -> Path:
        known = self.library.find_sweeps()
        if name not in known:
            raise NotFound(f"{name!r} is not a sweep. The sweeps are {', '.join(known) or 'none'}.")
        return known[name]
