"""What the verbs that read problem files or draw responses share: arguments, rows with their problems, responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from ansatz.data.rows import Row
    from ansatz.evaluate.response_store import ResponseStore
    from ansatz.types import Problem

T = TypeVar("T")
File = Annotated[Path, typer.Argument(help="A problem file: .jsonl, .json, .csv, .tsv or .parquet.")]
Out = Annotated[Path, typer.Option(help="Where the rows that stay are written, as JSONL; the report stands beside it.")]
QuestionKey = Annotated[
    str | None, typer.Option(help="Field of the question; dots go into nested fields. Recognised if not given.")
]
AnswerKey = Annotated[str | None, typer.Option(help="Field of the answer. Recognised if not given.")]
AnswerFrom = Annotated[
    str, typer.Option(help="auto, field, #### (what follows it) or boxed (the last box): where the answer stands.")
]
IdKey = Annotated[str | None, typer.Option(help="Field of the id; file and line if not given.")]
Model = Annotated[Path, typer.Option(help="A Hugging Face model folder, such as a checkpoint.")]
Work = Annotated[
    Path | None,
    typer.Option(help="Folder that keeps the responses; OUT.responses if not given. Run again, it goes on."),
]


def rows_of(
    file: Path,
    question_key: str | None = None,
    answer_key: str | None = None,
    answer_from: str = "auto",
    id_key: str | None = None,
) -> Iterator[tuple[Row, Problem]]:
    from ansatz.data.files import source_name
    from ansatz.data.formats import open_rows
    from ansatz.data.rows import Reading, rows_with_problems

    reading = Reading(question=question_key, answer=answer_key, answer_from=answer_from, id=id_key)
    return rows_with_problems(open_rows(file), reading, source=source_name(file))


def run_row_filter(
    verb: str, pairs: Iterable[Any], judge: Any, file: Path, out: Path, settings: dict[str, Any]
) -> None:
    from ansatz.data.hygiene.report import history, report_path
    from ansatz.data.hygiene.row_filter import filter_rows

    about = {"verb": verb, "file": str(file), **settings, "before": history(file)}
    report = filter_rows(with_progress(pairs, verb), judge, out, about=about)
    kinds = ", ".join(f"{kind} {count}" for kind, count in report["kinds"].items())
    counts = ", ".join(f"{report[part]} {part}" for part in ("rows", "kept", "dropped"))
    print(counts + (f" ({kinds})" if kinds else ""))
    print(f"kept rows: {out}; report: {report_path(out)}")


def responses_folder(work: Path | None, out: Path) -> ResponseStore:
    from ansatz.evaluate.response_store import ResponseStore

    return ResponseStore(work or out.with_suffix(".responses"))


def correct_responses(folder: ResponseStore, mode: str) -> dict[str, int]:
    """Number of correct responses to each problem, by its id."""
    return {group[0].id: sum(response.verdicts[mode].correct for response in group) for group in folder.responses()}


def with_progress(items: Iterable[T], what: str) -> Iterator[T]:
    """The items, with a count on stderr while they pass, where a person is there to see it."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield from progress.track(items, description=what)
