"""`ansatz rollouts RUN --where "correct and truncated"`: find responses that a run has stored, in the terminal."""

from __future__ import annotations

import functools
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ansatz.errors import ConfigError
from ansatz.files import replacing, write_text
from ansatz.links import read_text
from ansatz.visible import say, visible, write_csv

if TYPE_CHECKING:
    from ansatz.track.jsonl import Row

MODES = ("strict", "anchored", "last_number")
"""Modes of the verifier that `other` knows."""


def rollouts(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run, or a folder with responses.")],
    where: Annotated[str, typer.Option(help='A filter, such as "correct and truncated".')] = "",
    sort: Annotated[str, typer.Option(help="Fields to sort by, such as -tokens,step. Default: as stored.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Responses that are printed. Files get all of them.")] = 20,
    group: Annotated[bool, typer.Option("--group", help="Also the other responses to the same prompts.")] = False,
    csv_out: Annotated[Path | None, typer.Option("--csv", help="Write the responses as a table.")] = None,
    jsonl_out: Annotated[Path | None, typer.Option("--jsonl", help="Write the responses as JSON lines.")] = None,
    html_out: Annotated[Path | None, typer.Option("--html", help="Write the responses as one page.")] = None,
    as_verifier_cases: Annotated[
        bool, typer.Option("--as-verifier-cases", help="Print those with a judging label as cases for the verifier.")
    ] = False,
) -> None:
    """Print the responses of a run that a filter selects, and write them to files. docs/viewer.md has the filters.

    A filter combines tests with and, or, not: correct, truncated, tokens > 100, level = 3, reason in (hedged, crashed),
    step 40..60, group.correct = 0, parts.NAME < 1, "text of the response", extracted ~ "regex", other(last_number),
    label = hack. Labels come from the notes that were written in `ansatz view`. Those that judge the verdict are
    false_negative, false_positive and hack.
    """
    from ansatz.cli.outputs import check_outputs
    from ansatz.track.notes import read_notes

    files = [csv_out, jsonl_out, html_out]
    check_outputs(files, inputs=[run])
    notes = read_notes(run)
    for notice in notes.notices:
        say(notice, file=sys.stderr)
    rows, chosen = select_responses(run, where, sort, labels=notes.labels)
    if group:
        groups = {_group_of(row) for row in chosen}
        chosen = [row for row in rows if _group_of(row) in groups]
    if csv_out is not None:
        _write_csv(csv_out, chosen)
    if jsonl_out is not None:
        _write_jsonl(jsonl_out, chosen)
    if html_out is not None:
        write_page(html_out, chosen, run, where, total=len(chosen))
    if as_verifier_cases:
        _print_cases(run, chosen, notes.by_rollout)
        return
    if is_shown := not any(files):
        _print(chosen[:limit])
    say(f"{len(chosen)} of {len(rows)} responses" + (f", {limit} shown" if is_shown and len(chosen) > limit else ""))


def select_responses(
    run: Path, where: str, sort: str = "", *, labels: Mapping[str, Sequence[str]] | None = None
) -> tuple[list[Row], list[Row]]:
    """Return all responses that a run has stored, and those that a filter selects. labels: by the id of a response;
    None for the labels in the notes on the run."""
    from ansatz.track.filters import check_sort, parse_filter
    from ansatz.track.notes import read_notes, resolve_labels
    from ansatz.track.rollout_table import KINDS, read_all, select_rows

    if not run.is_dir():
        raise ConfigError(f"{str(run)!r} is not a folder. Give a run, such as runs/NAME.")
    read = functools.cache(lambda: read_all(run))
    parts = functools.cache(lambda: {name for row in read() for name in row["parts"]})
    query = parse_filter(where, KINDS, graders=MODES, parts=parts)
    if sort:
        query = query._replace(sort=check_sort(sort.split(","), KINDS, parts=parts))
    rows, labels = read(), read_notes(run).labels if labels is None else labels
    for row in rows:
        row["label"] = " ".join(labels.get(row["id"], ()))
    query = query._replace(tree=resolve_labels(query.tree, labels))
    with open_grader() as grade:
        return rows, select_rows(rows, query, grade=grade)


@contextmanager
def open_grader() -> Iterator[Callable[[Mapping[str, Any], str], bool]]:
    """Yield a function that grades a row in another mode of the verifier."""
    from ansatz_verify import verify
    from ansatz_verify.grade import ALGEBRA_TARGET
    from ansatz_verify.pool import WorkerPool

    from ansatz.track.rollout_table import cut_observations

    with closing(WorkerPool(ALGEBRA_TARGET, workers=1)) as pool:
        pool.start(wait=False)
        yield lambda row, mode: verify(row["answer"], cut_observations(row), mode=mode, pool=pool).correct  # pyright: ignore[reportArgumentType]


def _group_of(row: Row) -> tuple[object, ...]:
    return row["stage"], row["step"], row["split"], row["group"]


def _flat(row: Row) -> Row:
    """Return the row with one level: parts.NAME, and only the fields that filters know."""
    from ansatz.track.rollout_table import FIELDS

    parts = {f"parts.{name}": value for name, value in row["parts"].items()}
    return {**{name: row[name] for name in FIELDS if name != "text"}, **parts, "text": row["text"]}


def _write_csv(path: Path, rows: Sequence[Row]) -> None:
    flat = [_flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    with replacing(path) as file:
        write_csv(file, names, flat)


def _write_jsonl(path: Path, rows: Sequence[Row]) -> None:
    from ansatz.types import gold_value

    flat = ({**_flat(row), "answer": gold_value(row["answer"] or "")} for row in rows)
    with replacing(path) as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in flat)


def write_page(path: Path, rows: Sequence[Row], run: Path, where: str, *, total: int) -> None:
    """Write responses as one page, by prompt. total: how many pass the filter."""
    from ansatz.track.page import fill

    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(_group_of(row), []).append(row)
    shown = {"groups": list(groups.values()), "count": len(rows), "total": total}
    write_text(path, fill("responses.html", name=run.resolve().name, where=where, **shown))


def _print(rows: Sequence[Row]) -> None:
    """Print one line per response, whose text is cut at the edge of the terminal."""
    lines = [["id", "verdict", "reward", "tokens", "answer", "gold", "response"]]
    for row in rows:
        reason = row["reason"] + (" (cut off)" if row["truncated"] and row["reason"] != "truncated" else "")
        answers = [_on_a_line(text or "-")[:20] for text in (row["extracted"], row["answer"])]
        start = _on_a_line(row["text"][:400])
        numbers = f"{row['reward']:g}", str(row["tokens"])
        lines.append([_on_a_line(row["id"]), _on_a_line(reason), *numbers, *answers, start])
    widths = [max(len(line[column]) for line in lines) for column in range(6)]
    width = max(shutil.get_terminal_size((120, 24)).columns, 60)
    for *cells, start in lines:
        padded = [cell.ljust(size) for cell, size in zip(cells, widths, strict=True)]
        padded[2:4] = [cell.rjust(size) for cell, size in zip(cells[2:4], widths[2:4], strict=True)]
        say("  ".join((*padded, start))[:width])


def _on_a_line(text: object) -> str:
    return visible(" ".join(str(text).split()))


def _print_cases(run: Path, rows: Sequence[Row], notes: Mapping[str, Sequence[Row]]) -> None:
    """Print the responses on whose verdict a label has judged, one JSON object per line as in the verifier's corpus."""
    from ansatz.config.load import parse_yaml
    from ansatz.track.notes import VERDICTS
    from ansatz.track.rollout_table import cut_observations

    mode, num_cases = MODES[0], 0
    with suppress(OSError, ValueError, ConfigError, LookupError, TypeError):  # of a folder without a recipe
        recipe = parse_yaml(read_text(run / "config.yaml"), where="config.yaml")
        mode = recipe["rewards"]["math_answer"]["mode"]
    for row in rows:
        judging = [note for note in notes.get(row["id"], ()) if note["label"] in VERDICTS]
        verdicts = {VERDICTS[note["label"]] for note in judging}
        if len(verdicts) == 1 and row["answer"]:
            num_cases += 1
            case = {"gold": row["answer"], "response": cut_observations(row), "verdict": verdicts.pop()}
            case["mode"] = next((name for name in row["parts"] if name in MODES), mode)
            why = dict.fromkeys(f"{note['label']}: {note['text']}".removesuffix(": ") for note in judging)
            print(json.dumps({**case, "why": "; ".join(why)}))
    judges = f"or labels {', '.join(VERDICTS)} that agree on one"
    say(f"{num_cases} of {len(rows)} responses are cases; the others lack a gold answer, {judges}.", file=sys.stderr)
