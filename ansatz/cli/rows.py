"""Shared parts of the commands that read problem files or sample responses: options, rows with problems, responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ansatz.cli.option_groups import RowFields
from ansatz.errors import DataError
from ansatz.visible import say

if TYPE_CHECKING:
    from ansatz.data.rows import Row
    from ansatz.data.unfit import RowError
    from ansatz.evaluate.response_store import ResponseStore
    from ansatz.types import Problem

T = TypeVar("T")
Files = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help="Problem files: .jsonl, .json, .csv, .tsv or .parquet.")
]
Out = Annotated[Path, typer.Option(help="JSONL file for the rows that stay; the report is written next to it.")]
Model = Annotated[
    Path, typer.Option(help="A run, a Hugging Face model folder, such as a checkpoint, or a model of the hub.")
]
Work = Annotated[
    Path | None,
    typer.Option(help="Folder for the responses; OUT.responses by default. A second run resumes from it."),
]


def rows_of(files: Path | Sequence[Path], fields: RowFields | None = None) -> Iterator[tuple[Row, Problem]]:
    """Yield the rows of the files together with their problems. Raise DataError at the first row that has none.

    fields: None if the command has no options for them. Fields are recognised in each file separately.
    """
    for row, result in results_of(files, fields):
        if isinstance(result, Exception):
            raise DataError(
                f"{result} To leave out all rows that cannot be read: ansatz data filter FILE --out OUT --drop "
                "unreadable."
            ) from result
        yield row, result


def results_of(
    files: Path | Sequence[Path], fields: RowFields | None = None
) -> Iterator[tuple[Row, Problem | RowError]]:
    """Return the rows of the files, each with its problem or with the reason why it has none. fields: see `rows_of`."""
    from ansatz.data.files import problem_files
    from ansatz.data.formats import FORMATS, open_rows
    from ansatz.data.row_problems import RowSettings, rows_with_results, sources_of_files

    settings = RowSettings(**asdict(fields or RowFields()))
    spelled = {"question_key": "--question-key FIELD", "answer_key": "--answer-key FIELD"} if fields else {}
    paths = problem_files(files, expected=f"a {', '.join(FORMATS)} file")
    opened = list(zip(sources_of_files(paths), map(open_rows, paths), strict=True))
    return (
        pair for source, rows in opened for pair in rows_with_results(rows, settings, source=source, spelled=spelled)
    )


def named(files: Sequence[Path]) -> str:
    """Return the files as reports and messages name them."""
    return ", ".join(map(str, files))


def history_of(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the reports of the verbs that the rows of the files went through earlier."""
    from ansatz.data.hygiene.report import history

    return [head for file in files for head in history(file)]


def run_row_filter(
    verb: str, pairs: Iterable[Any], reject: Any, files: Sequence[Path], out: Path, settings: dict[str, Any]
) -> None:
    """Write the rows that `reject` leaves to `out` with their report, and print the counts."""
    from ansatz.data.hygiene.report import report_path
    from ansatz.data.hygiene.row_filter import filter_rows

    about = {"verb": verb, "file": named(files), **settings, "before": history_of(files)}
    report = filter_rows(with_progress(pairs, verb), reject, out, about=about)
    kinds = ", ".join(f"{kind} {count}" for kind, count in report["kinds"].items())
    counts = ", ".join(f"{report[part]} {part}" for part in ("rows", "kept", "dropped"))
    say(counts + (f" ({kinds})" if kinds else ""))
    say(f"kept rows: {out}; report: {report_path(out)}")


def response_store(work: Path | None, out: Path) -> ResponseStore:
    from ansatz.evaluate.response_store import ResponseStore

    return ResponseStore(work or out.with_suffix(".responses"), option="--work")


def correct_responses(store: ResponseStore, mode: str) -> dict[str, int]:
    """Return the number of correct responses to each problem, by problem id."""
    return {group[0].id: sum(response.verdicts[mode].correct for response in group) for group in store.responses()}


def with_progress(items: Iterable[T], what: str) -> Iterator[T]:
    """Yield the items, with a running count on stderr if it is a terminal."""
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    from ansatz.track.console import SafeConsole

    console = SafeConsole(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield from progress.track(items, description=what)
