"""`ansatz score`: grade files of responses, whoever wrote them, and count the verdicts."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ansatz.cli.option_groups import AnswerFrom
from ansatz.cli.outputs import check_outputs
from ansatz.errors import ConfigError, DataError
from ansatz.visible import say

if TYPE_CHECKING:
    from ansatz.data.rows import Row


def score(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Files with responses: .jsonl, .json, .csv, .tsv or .parquet. -: JSON lines from standard input, with "
            "the rows to standard output.",
        ),
    ],
    gold_key: Annotated[
        str | None, typer.Option("--answer-key", "--gold-key", help="Field of the gold answer. Recognised by default.")
    ] = None,
    answer_from: AnswerFrom = "auto",
    response_key: Annotated[
        list[str] | None,
        typer.Option(
            help="Field of the response, of a list of responses, or of messages that end with it; can be repeated. "
            "Recognised by default."
        ),
    ] = None,
    mode: Annotated[
        str,
        typer.Option(help="strict (a box or tag), anchored (also phrases), or last_number (only for evaluation)."),
    ] = "strict",
    out: Annotated[
        Path | None, typer.Option(help="File for the rows with their verdicts. Default: FILE.scored.jsonl.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=1024, help="Processes for algebra.")] = 1,
) -> None:
    """Grade each response, print how often each verdict occurs, and write one row per response with its verdict.

    `ansatz data select` then chooses the responses to teach.
    """
    from ansatz.data.files import problem_files
    from ansatz.track.console import SafeConsole

    how: dict[str, Any] = {"gold_key": gold_key, "answer_from": answer_from, "response_keys": response_key or ()}
    how |= {"mode": mode, "workers": workers}
    if files == [Path("-")]:
        with tempfile.TemporaryDirectory() as folder:
            read, scored = Path(folder, "standard input.jsonl"), out or Path(folder, "scored.jsonl")
            read.write_bytes(sys.stdin.buffer.read())
            counts = score_file([read], scored, **how)
            if out is None:
                sys.stdout.write(scored.read_text(encoding="utf-8"))
                sys.stdout.flush()
        SafeConsole(stderr=out is None).print(_table(counts))
        return
    out = out or default_out(problem_files(files, expected="files with responses"))
    SafeConsole().print(_table(score_file(files, out, **how)))
    say(f"Rows with their verdicts: {out}")


def default_out(files: Sequence[Path]) -> Path:
    """Return FILE.scored.jsonl, next to the first file."""
    from ansatz.data.files import name_of_file

    return files[0].with_name(f"{name_of_file(files[0])}.scored.jsonl")


def score_file(
    files: Sequence[Path],
    out: Path,
    *,
    gold_key: str | None = None,
    answer_from: str = "auto",
    response_keys: Sequence[str] = (),
    mode: str = "strict",
    workers: int = 1,
) -> Counter[str]:
    """Write one row per response to `out`, which is replaced at once: the fields of its row, the text as `response`,
    and the `verdict` with the gold answer. A list of responses becomes several rows.

    Return the number of verdicts by reason. Raise DataError for a file or row that cannot be read, ConfigError for an
    unknown mode, a gold answer that comes from the response itself, or a file that cannot be written.
    """
    from ansatz_verify.grade import ALGEBRA_TARGET
    from ansatz_verify.pool import WorkerPool
    from ansatz_verify.score import graded

    from ansatz.data.files import problem_files, replacing
    from ansatz.data.formats import FORMATS, open_rows
    from ansatz.data.hygiene.row_filter import json_line
    from ansatz.data.row_problems import RowSettings, rows_with_golds

    if mode not in ("strict", "anchored", "last_number"):
        raise ConfigError(f"--mode = {mode!r}: expected strict, anchored or last_number.")
    settings = RowSettings(answer_key=gold_key, answer_from=answer_from)
    paths = problem_files(files, expected=f"a {', '.join(FORMATS)} file with responses")
    opened = [open_rows(path) for path in paths]
    check_outputs([out], inputs=files)
    counts: Counter[str] = Counter()
    with closing(WorkerPool(ALGEBRA_TARGET, workers=workers)) as pool, replacing(out) as written:
        pool.start(wait=False)
        for rows in opened:
            for row, gold, key in rows_with_golds(rows, settings, spelled={"answer_key": "--answer-key FIELD"}):
                for response in _responses(row, response_keys, gold_key=key):
                    said = row.values.get("said") if response == row.values.get("response") else None
                    text = said if isinstance(said, str) and said else response  # see evaluate.responses.Response
                    verdict = graded(gold, text, mode=mode, pool=pool)
                    counts[verdict["reason"]] += 1
                    written.write(json_line({**row.values, "response": response, "verdict": verdict}))
    return counts


def _responses(row: Row, keys: Sequence[str], *, gold_key: str) -> Iterator[str]:
    """Yield the responses of a row, from the named fields or from the first one that is recognised.

    Raise DataError, with the row's place, if the row does not have the field. Raise ConfigError if it is the gold
    answer's.
    """
    from ansatz_verify.responses import RESPONSES, responses_of

    from ansatz.data.rows import ABSENT

    known = (key for key in RESPONSES if row.find(key) not in (ABSENT, None, "", []))
    for key in keys or [next(known, "response")]:
        if key.casefold() == gold_key.casefold():
            raise ConfigError(
                f"{row.place}: the field {key!r} would be both the response and the gold answer, so every response "
                "would be correct. Name another field with --gold-key or --response-key."
            )
        value = row.find(key)
        if value is ABSENT:
            shown = ", ".join(sorted(row.values))
            raise DataError(
                f"{row.place}: there is no field {key!r}; its fields are {shown}. Set --response-key to one of them."
            )
        yield from responses_of(value)


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
