"""Plain text, to train on by next token (`sft.objective: text`): the rows of files, each with one text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain, islice

from ansatz.config.fields import Positive
from ansatz.data.files import problem_files, source_name
from ansatz.data.formats import open_rows
from ansatz.data.row_problems import find_lost_fields
from ansatz.data.rows import Row
from ansatz.data.unfit import note_lost, read_each
from ansatz.files import has_half_character
from ansatz.types import Problem

IDS = ("id", "uuid")


def text(
    *, split: str, path: str | list[str], text_key: str = "text", limit: Positive | None = None
) -> Iterator[Problem]:
    """The texts of a file (jsonl, json, csv, tsv, parquet), or of several: a list, or a pattern such as "part-*.jsonl".

    text_key: the field of the text, which is taken as it is. The row's other fields are not trained on, and those that
    hold a text are named with their counts. limit: rows to read, from the first on; null: all of them.

    A row without a text is an error, or with data.unfit: drop it is left out and counted. The problems have no question
    and no answer, so only `sft.objective: text` can learn from them.
    """
    files = problem_files(path, expected="a file of texts")
    rows = chain.from_iterable(map(open_rows, files))
    return read_each(islice(rows, limit), partial(_problem, key=text_key, split=split, source=source_name(files[0])))


def _problem(row: Row, *, key: str, split: str, source: str) -> Problem:
    value = row.get(key, "text_key")
    if not isinstance(value, str) or not value.strip():
        row.fail(f"the field {key!r} has no text. Fill it in, or remove the row.")
    if has_half_character(value):
        row.fail(f"the field {key!r} has half of a character. Repair the encoding of the file.")
    row_id = next((str(row.values[name]) for name in IDS if row.values.get(name)), f"{row.file}:{row.line}")
    problem = Problem(id=row_id, question="", source=source, split=split, solution=value)
    note_lost(lambda: find_lost_fields(row, (key, *IDS), problem))
    return problem
