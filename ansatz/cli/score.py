"""`ansatz score`: grade a file of saved responses and count the verdicts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ansatz.cli.outputs import check_outputs
from ansatz.errors import ConfigError, DataError

if TYPE_CHECKING:
    from ansatz.data.rows import Row


def score(
    file: Annotated[Path, typer.Argument(help="A JSONL file with one response per line.")],
    gold_key: Annotated[str, typer.Option(help="Field of the gold answer.")] = "answer",
    response_key: Annotated[str, typer.Option(help="Field of the response.")] = "response",
    mode: Annotated[
        str,
        typer.Option(help="strict (a box or tag), anchored (also phrases), or last_number (only for evaluation)."),
    ] = "strict",
    out: Annotated[
        Path | None, typer.Option(help="File for the rows with their verdicts. Default: FILE.scored.jsonl.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=1024, help="Processes for algebra.")] = 1,
) -> None:
    """Grade FILE, print how often each verdict occurs, and write each row with its verdict."""
    from rich.console import Console

    counts = score_file(
        file,
        out,
        gold_key=gold_key,
        response_key=response_key,
        mode=mode,
        workers=workers,
    )
    Console().print(_table(counts))


def score_file(
    file: Path, out: Path | None, *, gold_key: str, response_key: str, mode: str = "strict", workers: int = 1
) -> Counter[str]:
    """Write every row, with a field `verdict`, to `out` (FILE.scored.jsonl if None), which is replaced at once.

    Returns the number of verdicts by reason. DataError for a file or row that cannot be read, ConfigError for an
    unknown mode or a file that cannot be written.
    """
    from ansatz.data.files import problem_file, replacing
    from ansatz.data.hygiene.row_filter import json_line
    from ansatz.data.jsonl import read_rows
    from ansatz.rewards.math_answer import ALGEBRA_TARGET, verify
    from ansatz.rewards.pool import WorkerPool

    if mode not in ("strict", "anchored", "last_number"):
        raise ConfigError(f"--mode = {mode!r}: expected strict, anchored or last_number.")
    problem_file(file, expected="a JSONL file with one response per line")
    out = out or file.with_suffix(".scored.jsonl")
    check_outputs([out], inputs=[file])
    counts: Counter[str] = Counter()
    pool = WorkerPool(ALGEBRA_TARGET, workers=workers)
    try:
        with replacing(out) as written:
            for row in read_rows(file):
                gold, response = (_text(row, key) for key in (gold_key, response_key))
                verdict = verify(gold, response, mode=mode, pool=pool)
                counts[verdict.reason] += 1
                fields = {
                    "correct": verdict.correct,
                    "reason": verdict.reason,
                    "extracted": verdict.extracted,
                    "stage": verdict.stage,
                    "seconds": round(verdict.seconds, 6),
                }
                written.write(json_line({**row.values, "verdict": fields}))
    finally:
        pool.close()
    return counts


def _text(row: Row, key: str) -> str:
    """The field as text. DataError, with the row's place, if the row does not have it."""
    if key not in row.values:
        known = ", ".join(sorted(row.values))
        raise DataError(f"{row.place}: there is no field {key!r} (there are: {known}). Name the field with an option.")
    return str(row.values[key])


def _table(counts: Counter[str]) -> Any:
    from rich.table import Table

    from ansatz.types import Reason

    total = sum(counts.values())
    table = Table(title=f"{total} responses, {counts[Reason.EQUAL]} correct")
    table.add_column("verdict")
    table.add_column("responses", justify="right")
    table.add_column("fraction", justify="right")
    for reason in Reason:
        if counts[reason]:
            table.add_row(str(reason), str(counts[reason]), f"{100 * counts[reason] / total:.1f} %")
    return table
