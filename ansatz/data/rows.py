"""Rows with any field names and what they say as problems: shared by all sources that read files of rows.

A field name may be a path with dots ("reward_model.ground_truth"). A question may be text or chat messages (the last
user turn counts), a solution text or a list of solutions (the first counts). What the settings leave open is looked up
in the file's first row and then holds for the whole file: a later row of another shape is an error with its line, not a
problem read in another way (see `shapes`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, cast

from ansatz.data.files import problem_file, source_name
from ansatz.data.record_formats import as_object, recognised, without_instructions
from ansatz.errors import ConfigError, DataError
from ansatz.types import Problem

ANSWER_PLACES = ("auto", "field", "####", "boxed")
_THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")
_ABSENT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Where a row keeps what; None: looked up in the first row (id: none, the file and line are the id).

    answer_from: "field" takes the answer field as it is; "####" what follows the last #### in it (GSM8K's form, commas
    between thousands dropped); "boxed" what stands in its last \\boxed{}; "auto" the one of these that the first row
    shows. Where the answer is taken out of a worked solution, that is the problem's solution unless another is named.
    limit: rows read at most.

    ConfigError for another `answer_from`, and for a limit under 1.
    """

    question: str | None = None
    answer: str | None = None
    answer_from: str = "auto"
    id: str | None = None
    level: str | None = None
    solution: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"limit = {self.limit}, expected 1 or more, or none at all to read the whole file.")
        if self.answer_from not in ANSWER_PLACES:
            raise ConfigError(
                f"answer_from = {self.answer_from!r}, expected one of {', '.join(map(repr, ANSWER_PLACES))}."
            )


class Row:
    """One row and where it stands, so that every complaint names file and line. unit: what the file is counted in."""

    def __init__(self, file: str | Path, line: int, values: dict[str, Any], *, unit: str = "line") -> None:
        self.file, self.line, self.values, self.unit = file, line, values, unit

    def fail(self, message: str) -> NoReturn:
        raise DataError(f"{self.file} {self.unit} {self.line}: {message}")

    def find(self, key: str) -> Any:
        """The field's value, _ABSENT where there is none."""
        value: Any = self.values
        for part in [key] if key in self.values else key.split("."):
            if not isinstance(value, dict) or part not in value:
                return _ABSENT
            value = cast("dict[str, Any]", value)[part]
        return value

    def get(self, key: str, setting: str) -> Any:
        value = self.find(key)
        if value is _ABSENT:
            self.fail(
                f"there is no field {key!r} (it has {', '.join(map(repr, self.values)) or 'none'}). "
                f"Set {setting} to the field that is meant, or repair the row."
            )
        return value

    def text(self, key: str, setting: str) -> str:
        value = self.get(key, setting)
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            self.fail(
                f"the field {key!r} is {short(value)}, expected text or a number. "
                f"Repair the row, or set {setting} to another field."
            )
        if not str(value).strip():
            self.fail(f"the field {key!r} is empty, expected text or a number. Fill it in, or take the row out.")
        return str(value).strip()

    def question(self, key: str) -> str:
        value = self.get(key, "question_key")
        if not isinstance(value, list):
            return without_instructions(self.text(key, "question_key"))
        messages = cast("list[Any]", value)
        turns = [m.get("content") for m in messages if isinstance(m, dict) and m.get("role") == "user"]
        if not turns or not isinstance(turns[-1], str) or not turns[-1].strip():
            self.fail(
                f"the messages in {key!r} have no user turn with text, expected "
                '[{"role": "user", "content": "..."}]. Repair the row, or set question_key to another field.'
            )
        return without_instructions(turns[-1].strip())

    def solution(self, key: str) -> str:
        value = self.get(key, "solution_key")
        first = _first(value)
        if not isinstance(first, str) or not first.strip():
            self.fail(
                f"the field {key!r} is {short(value)}, expected a solution text or a list of them. "
                "Repair the row, or set solution_key to another field."
            )
        return first.strip()

    def stated_answer(self, key: str, place: str) -> str:
        """The answer field's text; of a list its only item, or the first of several worked solutions."""
        value = self.get(key, "answer_key")
        if isinstance(value, list) and (len(cast("list[Any]", value)) == 1 or (value and place == "boxed")):
            return Row(self.file, self.line, {key: _first(value)}, unit=self.unit).text(key, "answer_key")
        return self.text(key, "answer_key")

    def answer(self, stated: str, place: str) -> str:
        if place == "field":
            return stated
        found = after_hashes(stated) if place == "####" else last_box(stated)
        if not found:
            expected = "'#### ANSWER' at its end" if place == "####" else "a \\boxed{ANSWER} in it"
            self.fail(
                f"the answer text has no {expected}, got {short(stated)}. "
                "Repair the row, or set answer_from to where the answer stands."
            )
        return found

    def rest(self, used: Iterable[str]) -> dict[str, Any]:
        """The fields that are not used; of a nested one its other parts."""
        left = dict(self.values)
        for key in used:
            if key in left or "." not in key:
                left.pop(key, None)
                continue
            first, _, inner = key.partition(".")
            if isinstance(left.get(first), dict):
                left[first] = Row(self.file, self.line, left[first]).rest([inner])
                if not left[first]:
                    del left[first]
        return left


def problems_of(rows: Iterable[Row], reading: Reading, *, split: str, source: str) -> Iterator[Problem]:
    """The rows as problems, one at a time. `meta` holds the fields that nothing else uses, and `line`, the row's place.

    Raises DataError at the first wrong row, with file and line.
    """
    return (problem for _, problem in rows_with_problems(rows, reading, source=source, split=split))


def rows_with_problems(
    rows: Iterable[Row], reading: Reading, *, source: str, split: str = "all"
) -> Iterator[tuple[Row, Problem]]:
    """Every row beside its problem, so that a row can be kept as it was written."""
    found: Reading | None = None
    for row in islice(rows, reading.limit):
        found = found or _filled(reading, row)
        yield row, _problem(row, reading, found, split, source)


def _filled(keys: Reading, first: Row) -> Reading:
    """The settings with what they leave open looked up in the file's first row."""

    def known(key: str) -> bool:
        return first.find(key) not in (_ABSENT, None)

    answer = keys.answer or recognised("answer", known) or "answer"
    place = keys.answer_from
    if place == "auto":
        text = _first(first.find(answer))
        worked = text if isinstance(text, str) else ""
        place = "####" if re.search(r"^####", worked, re.MULTILINE) else "boxed" if last_box(worked) else "field"
    return Reading(
        question=keys.question or recognised("question", known) or "question",
        answer=answer,
        answer_from=place,
        id=keys.id,
        level=keys.level or recognised("level", known),
        solution=keys.solution or recognised("solution", known),
    )


def _problem(row: Row, given: Reading, keys: Reading, split: str, source: str) -> Problem:
    assert keys.question is not None
    assert keys.answer is not None
    stated = row.stated_answer(keys.answer, keys.answer_from)
    worked = stated if keys.answer_from != "field" else None
    used = [key for key in (keys.question, keys.answer, keys.id, keys.level, keys.solution) if key]
    return Problem(
        id=row.text(keys.id, "id_key") if keys.id else f"{source}:{row.line}",
        question=row.question(keys.question),
        answer=row.answer(stated, keys.answer_from),
        source=source,
        split=split,
        level=row.text(given.level, "level_key") if given.level else _loose_text(row, keys.level) or "",
        solution=row.solution(given.solution) if given.solution else worked or _loose_text(row, keys.solution),
        meta={**row.rest(used), "line": row.line},
    )


def _loose_text(row: Row, key: str | None) -> str | None:
    """A field that nobody named: where a row has none, the problem has none."""
    value = _first(row.find(key)) if key else None
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value).strip() or None
    return None


def after_hashes(text: str) -> str | None:
    """What follows the last #### on its line, without commas between thousands; None where there is nothing."""
    _, mark, rest = text.rpartition("####")
    line = rest.strip().partition("\n")[0].strip()
    if not mark or not line:
        return None
    return line.replace(",", "") if _THOUSANDS.fullmatch(line) else line


def last_box(text: str) -> str | None:
    """The content of the last \\boxed{...} or \\fbox{...}, braces balanced; None where there is none or it is empty."""
    for match in reversed(list(re.finditer(r"\\(?:boxed|fbox)\s*\{", text))):
        depth = 1
        for end in range(match.end(), len(text)):
            depth += (text[end] == "{") - (text[end] == "}")
            if depth == 0:
                return text[match.end() : end].strip() or None
    return None


def row_of(file: str | Path, line: int, value: Any, *, unit: str = "line") -> Row:
    """The value as a row. DataError where it is no object."""
    values = as_object(value)
    if not isinstance(values, dict):
        raise DataError(
            f"{file} {unit} {line}: got {short(value)}, expected a JSON object such as "
            f'{{"question": "...", "answer": "..."}}. Repair the {unit} or take it out.'
        )
    return Row(file, line, cast("dict[str, Any]", values), unit=unit)


def plain(value: Any) -> Any:
    """The value in what JSON can hold: containers as lists and objects, all else that is no number as text."""
    if isinstance(value, dict):
        return {str(key): plain(found) for key, found in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple | set):
        return [plain(found) for found in cast("list[Any]", value)]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def short(value: object) -> str:
    """The value as a complaint shows it, 60 characters at most."""
    shown = repr(value.strip() if isinstance(value, str) else value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _first(value: Any) -> Any:
    return cast("list[Any]", value)[0] if isinstance(value, list) and value else value


def file_source(
    name: str, read_rows: Callable[[Path], Iterator[Row]], *, expected: str
) -> Callable[..., Iterator[Problem]]:
    """The source of that name for files whose format has no settings of its own. expected: such as "a JSON file"."""

    def source(
        *,
        split: str,
        path: str,
        question_key: str | None = None,
        answer_key: str | None = None,
        answer_from: str = "auto",
        id_key: str | None = None,
        level_key: str | None = None,
        solution_key: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Problem]:
        """The file's problems in order. The keys: see `rows.Reading`; those not given are recognised. split: what the
        problems are labelled with.

        Raises DataError for a missing file or a wrong row, with file and line; ConfigError for a setting out of its
        range; MissingExtraError where the format needs an extra that is not installed.
        """
        reading = Reading(
            question=question_key,
            answer=answer_key,
            answer_from=answer_from,
            id=id_key,
            level=level_key,
            solution=solution_key,
            limit=limit,
        )
        file = problem_file(path, expected=expected)
        return problems_of(read_rows(file), reading, split=split, source=source_name(file))

    source.__name__, source.__module__ = name, read_rows.__module__
    return source
