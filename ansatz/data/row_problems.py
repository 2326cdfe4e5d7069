"""Turns rows with any field names into problems.

Settings that are left open are determined from the first row of a file and then apply to the whole file. A later row
with another shape is an error that names its line; it is never read in a different way (see `record_formats`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, get_type_hints

from ansatz.data.extract import last_box
from ansatz.data.files import problem_file, source_name
from ansatz.data.record_formats import recognised
from ansatz.data.rows import ABSENT, Row, first_item
from ansatz.errors import ConfigError
from ansatz.registry import settings_of
from ansatz.types import Problem

ANSWER_FORMS = ("auto", "field", "####", "boxed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSettings:
    """Which field of a row holds what. Keys that are None are recognised from the first row of the file.

    answer_from: "field" takes the answer field as it is. "####" takes the text after the last #### in it (GSM8K's form,
    without thousands separators). "boxed" takes the content of its last \\boxed{}. "auto" uses the form that the first
    row shows. If the answer is extracted from a worked solution, that solution is the problem's solution unless
    solution_key names another one.
    id_key: if None, file and line are the id.
    limit: maximum number of rows to read.

    ConfigError for an unknown answer_from, or a limit below 1.
    """

    question_key: str | None = None
    answer_key: str | None = None
    answer_from: str = "auto"
    id_key: str | None = None
    level_key: str | None = None
    solution_key: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"limit = {self.limit}, expected 1 or more. Remove it to read the whole file.")
        if self.answer_from not in ANSWER_FORMS:
            raise ConfigError(
                f"answer_from = {self.answer_from!r}, expected one of {', '.join(map(repr, ANSWER_FORMS))}."
            )


def problems_of(rows: Iterable[Row], settings: RowSettings, *, split: str, source: str) -> Iterator[Problem]:
    """The rows as problems, one at a time. `meta` holds all unused fields, and `line`, the position of the row.

    DataError at the first wrong row, with file and line.
    """
    return (problem for _, problem in rows_with_problems(rows, settings, source=source, split=split))


def rows_with_problems(
    rows: Iterable[Row], settings: RowSettings, *, source: str, split: str = "all"
) -> Iterator[tuple[Row, Problem]]:
    """Every row together with its problem, so that a row can be written back unchanged."""
    resolved: RowSettings | None = None
    for row in islice(rows, settings.limit):
        resolved = resolved or _resolved(settings, row)
        yield row, _problem(row, settings, resolved, split, source)


def _resolved(settings: RowSettings, first: Row) -> RowSettings:
    """The settings, with open ones determined from the first row of the file."""

    def known(key: str) -> bool:
        return first.find(key) not in (ABSENT, None)

    answer = settings.answer_key or recognised("answer", known) or "answer"
    form = settings.answer_from
    if form == "auto":
        value = first_item(first.find(answer))
        text = value if isinstance(value, str) else ""
        form = "####" if re.search(r"^####", text, re.MULTILINE) else "boxed" if last_box(text) else "field"
    return replace(
        settings,
        question_key=settings.question_key or recognised("question", known) or "question",
        answer_key=answer,
        answer_from=form,
        level_key=settings.level_key or recognised("level", known),
        solution_key=settings.solution_key or recognised("solution", known),
    )


def _problem(row: Row, named: RowSettings, keys: RowSettings, split: str, source: str) -> Problem:
    """named: the user's settings; a field that the user named must be there. keys: the resolved settings."""
    assert keys.question_key is not None
    assert keys.answer_key is not None
    text = row.answer_text(keys.answer_key, keys.answer_from)
    worked = text if keys.answer_from != "field" else None
    all_keys = (keys.question_key, keys.answer_key, keys.id_key, keys.level_key, keys.solution_key)
    level = row.text(named.level_key, "level_key") if named.level_key else row.optional_text(keys.level_key) or ""
    solution = (
        row.solution(named.solution_key) if named.solution_key else worked or row.optional_text(keys.solution_key)
    )
    return Problem(
        id=row.text(keys.id_key, "id_key") if keys.id_key else f"{source}:{row.line}",
        question=row.question(keys.question_key),
        answer=row.answer(text, keys.answer_from),
        source=source,
        split=split,
        level=level,
        solution=solution,
        meta={**row.rest(key for key in all_keys if key), "line": row.line},
    )


ROW_KEYS = tuple(field.name for field in fields(RowSettings))


def row_source(name: str, open_source: Callable[..., tuple[Iterable[Row], str]]) -> Callable[..., Iterator[Problem]]:
    """A data source from a function (*, split, ...settings) -> (rows, source name).

    The source takes the settings of the function and those of `RowSettings`. Both are part of its signature, which is
    the schema of the recipe's data entry.
    """

    def source(*, split: str, **settings: Any) -> Iterator[Problem]:
        row_settings = RowSettings(**{key: settings.pop(key) for key in ROW_KEYS if key in settings})
        rows, label = open_source(split=split, **settings)
        return problems_of(rows, row_settings, split=split, source=label)

    types = get_type_hints(RowSettings)
    keyword = inspect.Parameter.KEYWORD_ONLY
    row_parameters = [
        inspect.Parameter(field.name, keyword, default=field.default, annotation=types[field.name])
        for field in fields(RowSettings)
    ]
    source.__signature__ = inspect.Signature([*settings_of(open_source).values(), *row_parameters])  # type: ignore[attr-defined]
    source.__name__, source.__module__, source.__doc__ = name, open_source.__module__, open_source.__doc__
    return source


def file_source(
    name: str, read_rows: Callable[[Path], Iterator[Row]], *, expected: str
) -> Callable[..., Iterator[Problem]]:
    """The source for a file format without settings of its own. expected: the kind of file, such as "a JSON file"."""

    def open_file(*, split: str, path: str) -> tuple[Iterable[Row], str]:
        """The problems of a file in order. DataError for a missing file or a wrong row, with file and line;
        ConfigError for a setting outside its range; MissingExtraError if the format needs an extra that is missing."""
        file = problem_file(path, expected=expected)
        return read_rows(file), source_name(file)

    open_file.__module__ = read_rows.__module__
    return row_source(name, open_file)
