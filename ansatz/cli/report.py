"""`ansatz report RUN...`: write a run's report.html again, also while it is still running; several runs: one page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ansatz.cli.outputs import check_outputs
from ansatz.errors import ConfigError
from ansatz.files import check_ordinary_files, write_text
from ansatz.track.report import write_report
from ansatz.visible import say

REPORT = "report.html"
"""The file of a run that this verb writes."""


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, such as runs/NAME.")],
    out: Annotated[
        Path | None,
        typer.Option(help="HTML file to write. Default: RUN/report.html; several: reports/RUN-RUN.html."),
    ] = None,
) -> None:
    """Write the report of a run folder, finished or not, and print its path.

    The report of several runs draws their curves over each other, compares each with the first problem by problem, and
    lists the keys of the recipes that differ.
    """
    for run in runs:
        if not (run / "config.yaml").is_file():
            raise ConfigError(
                f"{str(run)!r} is not a run folder (config.yaml is missing). Give one that `ansatz train` wrote."
            )
        check_ordinary_files(run)
    if len(runs) > 1:
        say(_write_report_of_runs(runs, out))
        return
    check_outputs([out], inputs=[file for file in runs[0].rglob("*") if file.name != REPORT], own=REPORT)
    say(write_report(runs[0], out))


def _write_report_of_runs(runs: Sequence[Path], out: Path | None) -> Path:
    from ansatz.evaluate.comparisons import compare_runs
    from ansatz.track.page import fill
    from ansatz.track.report_of_runs import default_path, describe_runs, run_names
    from ansatz.track.runs import read_pipeline

    path = out or default_path(runs)
    check_outputs([path], inputs=[file for run in runs for file in run.rglob("*")])
    read = [read_pipeline(run) for run in runs]
    write_text(path, fill("compare.html", **describe_runs(read, run_names(read), comparisons=compare_runs(runs))))
    return path
