"""`ansatz report RUN...`: write a run's report.html again, also while it is still running; several runs: one page.

A sweep has a page too, and so have responses that a filter selects.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ansatz.cli.outputs import check_outputs
from ansatz.errors import ConfigError
from ansatz.files import check_ordinary_files, write_text
from ansatz.track.page import fill
from ansatz.track.report import write_report
from ansatz.visible import say

REPORT = "report.html"
"""The file of a run that this verb writes."""
MAX_RESPONSES = 200


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders, such as runs/NAME; or the name of a sweep, or its rows."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="HTML file to write. Default: RUN/report.html; others: in reports."),
    ] = None,
    rollouts: Annotated[
        str | None,
        typer.Option(
            metavar="FILTER", help='Instead, the responses of RUN that pass, such as "correct and truncated".'
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Of --rollouts: how many at most. Default: 200.")] = None,
) -> None:
    """Write the report of a run folder, finished or not, and print its path.

    The report of several runs draws their curves over each other, compares each with the first problem by problem, and
    lists the keys of the recipes that differ. The report of a sweep shows the result of each arm on each block.
    --rollouts writes the responses of one run that a filter selects, by prompt; docs/viewer.md has the filters.
    """
    from ansatz.track.sweep_rows import FOLDER, find_rows

    if rollouts is not None and len(runs) == 1:
        say(_write_responses(runs[0], rollouts, limit or MAX_RESPONSES, out))
        return
    if rollouts is not None or limit is not None:
        raise ConfigError('Responses are those of one run: `ansatz report RUN --rollouts "correct" --limit 50`.')
    if len(runs) == 1 and (rows := find_rows(runs[0])) is not None:
        say(_write_report_of_sweep(rows, out))
        return
    for run in runs:
        if not (run / "config.yaml").is_file():
            raise ConfigError(
                f"{str(run)!r} is not a run folder (config.yaml is missing). Give runs that `ansatz train` wrote, or "
                f"one sweep: the file of its rows, or its name in {FOLDER}."
            )
        check_ordinary_files(run)
    if len(runs) > 1:
        say(_write_report_of_runs(runs, out))
        return
    check_outputs([out], inputs=[file for file in runs[0].rglob("*") if file.name != REPORT], own=REPORT)
    say(write_report(runs[0], out))


def _write_responses(run: Path, where: str, limit: int, out: Path | None) -> Path:
    from ansatz.cli.rollouts import select_responses, write_page
    from ansatz.track.report_of_runs import default_path

    path = out or default_path([Path(f"{run.resolve().name}-responses")])
    check_outputs([path], inputs=[run])
    _, chosen = select_responses(run, where)
    write_page(path, chosen[:limit], run, where, total=len(chosen))
    return path


def _write_report_of_runs(runs: Sequence[Path], out: Path | None) -> Path:
    from ansatz.evaluate.comparisons import compare_runs
    from ansatz.track.report_of_runs import default_path, describe_runs, run_names
    from ansatz.track.runs import read_pipeline

    path = out or default_path(runs)
    check_outputs([path], inputs=runs)
    read = [read_pipeline(run) for run in runs]
    write_text(path, fill("compare.html", **describe_runs(read, run_names(read), comparisons=compare_runs(runs))))
    return path


def _write_report_of_sweep(rows: Path, out: Path | None) -> Path:
    from ansatz.track.report_of_runs import default_path
    from ansatz.track.report_of_sweep import describe_sweep

    path = out or default_path([rows.with_suffix("")])
    check_outputs([path], inputs=[rows])
    write_text(path, fill("sweep.html", **describe_sweep(rows)))
    return path
