"""`ansatz score`: grade a file of saved responses and count the verdicts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from ansatz.errors import ConfigError, DataError


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
    workers: Annotated[int, typer.Option(help="Processes for algebra.")] = 1,
) -> None:
    """Grade FILE, print how often each verdict occurs, and write each row with its verdict."""
    from rich.console import Console

    counts = score_file(
        file,
        out or file.with_suffix(".scored.jsonl"),
        gold_key=gold_key,
        response_key=response_key,
        mode=mode,
        workers=workers,
    )
    Console().print(_table(counts))


def score_file(
    file: Path, out: Path, *, gold_key: str, response_key: str, mode: str = "strict", workers: int = 1
) -> Counter[str]:
    """Write every row, with a field `verdict`, to `out`. Returns the number of verdicts by reason.

    DataError for a file or row that cannot be read, ConfigError for an unknown mode.
    """
    from ansatz.rewards.math_answer import ALGEBRA_TARGET, verify
    from ansatz.rewards.pool import WorkerPool

    if mode not in ("strict", "anchored", "last_number"):
        raise ConfigError(f"--mode = {mode!r}: expected strict, anchored or last_number.")
    if not file.is_file():
        raise DataError(f"the file {str(file)!r} does not exist. Give a JSONL file with one response per line.")
    counts: Counter[str] = Counter()
    pool = WorkerPool(ALGEBRA_TARGET, workers=workers)
    try:
        with file.open() as rows, out.open("w") as written:
            for number, line in enumerate(rows, start=1):
                if not line.strip():
                    continue
                row = _row(line, f"{file}:{number}", (gold_key, response_key))
                verdict = verify(str(row[gold_key]), str(row[response_key]), mode=mode, pool=pool)
                counts[verdict.reason] += 1
                row["verdict"] = {
                    "correct": verdict.correct,
                    "reason": verdict.reason,
                    "extracted": verdict.extracted,
                    "stage": verdict.stage,
                    "seconds": round(verdict.seconds, 6),
                }
                written.write(json.dumps(row, ensure_ascii=False) + "\n")
    finally:
        pool.close()
    return counts


def _row(line: str, place: str, keys: tuple[str, str]) -> dict[str, Any]:
    """The line as a row that has the keys. DataError, with its place, if it is not one."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{place}: not JSON ({error.msg}). Each line must be a JSON object.") from error
    for key in keys:
        if not isinstance(row, dict) or key not in row:
            known = ", ".join(sorted(row)) if isinstance(row, dict) else type(row).__name__
            raise DataError(f"{place}: there is no field {key!r} (there are: {known}). Name the field with an option.")
    return row


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
