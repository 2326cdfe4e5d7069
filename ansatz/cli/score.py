"""`ansatz score`: grades a file of saved responses, and says what came of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import typer

from ansatz.errors import ConfigError, DataError


def score(
    file: Path = typer.Argument(help="JSONL with one response a line"),
    gold_key: str = typer.Option("answer", help="field that holds the gold answer"),
    response_key: str = typer.Option("response", help="field that holds the response"),
    mode: str = typer.Option(
        "strict", help="strict (box or tag), anchored (phrases too), last_number (evaluation only)"
    ),
    out: Path | None = typer.Option(
        None, help="where to write the rows with their verdicts; FILE.scored.jsonl if not given"
    ),
    workers: int = typer.Option(1, help="processes for algebra"),
) -> None:
    """Grade FILE, print the verdicts by reason, and write each row with its verdict."""
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
    """Writes every row with a `verdict` field to `out`; returns how many verdicts there are of each reason.

    DataError for a file or row that cannot be read, ConfigError for an unknown mode.
    """
    from ansatz.rewards.math_answer import ALGEBRA_TARGET, verify
    from ansatz.rewards.pool import WorkerPool

    if mode not in ("strict", "anchored", "last_number"):
        raise ConfigError(f"--mode = {mode!r}: must be strict, anchored or last_number.")
    if not file.is_file():
        raise DataError(f"there is no file {str(file)!r}. Give a JSONL file with one response a line.")
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
                found = {"correct": verdict.correct, "reason": verdict.reason, "extracted": verdict.extracted}
                row["verdict"] = {**found, "stage": verdict.stage, "seconds": round(verdict.seconds, 6)}
                written.write(json.dumps(row, ensure_ascii=False) + "\n")
    finally:
        pool.close()
    return counts


def _row(line: str, place: str, keys: tuple[str, str]) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{place}: not JSON ({error.msg}). Each line must be one JSON object.") from error
    for key in keys:
        if not isinstance(row, dict) or key not in row:
            known = ", ".join(sorted(row)) if isinstance(row, dict) else type(row).__name__
            raise DataError(f"{place}: there is no field {key!r} (there are: {known}). Name it with an option.")
    return row


def _table(counts: Counter[str]) -> Any:
    from rich.table import Table

    from ansatz.types import Reason

    total = sum(counts.values())
    table = Table(title=f"{total} responses, {counts[Reason.EQUAL]} right")
    table.add_column("verdict")
    table.add_column("rows", justify="right")
    table.add_column("share", justify="right")
    for reason in Reason:
        if counts[reason]:
            table.add_row(str(reason), str(counts[reason]), f"{100 * counts[reason] / total:.1f} %")
    return table
