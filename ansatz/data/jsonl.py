"""Problems from a JSONL file, one JSON object a line, with any field names.

A field name may be a path with dots ("reward_model.ground_truth"). A question may be text or chat messages (the last
user turn counts), a solution text or a list of solutions (the first counts).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from ansatz.errors import ConfigError, DataError
from ansatz.types import Problem

ANSWER_PLACES = ("field", "####", "boxed")
_THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")


def jsonl(
    *,
    split: str,
    path: str,
    question_key: str = "question",
    answer_key: str = "answer",
    answer_from: str = "field",
    id_key: str | None = None,
    level_key: str | None = None,
    solution_key: str | None = None,
    limit: int | None = None,
) -> Iterator[Problem]:
    """The file's problems in order, read as they are asked for; empty lines are skipped.

    answer_from: "field" takes the answer field as it is; "####" what follows the last #### in it (GSM8K's form, commas
    between thousands dropped); "boxed" what stands in its last \\boxed{}. With the last two the answer field is a
    worked solution, and is the problem's solution unless solution_key names another.
    split: what the problems are labelled with. limit: read at most that many.

    Raises DataError for a missing file or a wrong row, with file and line; ConfigError for another `answer_from`.
    """
    if answer_from not in ANSWER_PLACES:
        raise ConfigError(
            f"jsonl: answer_from = {answer_from!r}, expected one of {', '.join(map(repr, ANSWER_PLACES))}."
        )
    if limit is not None and limit < 1:
        raise ConfigError(f"jsonl: limit = {limit}, expected 1 or more, or none at all to read the whole file.")
    file = Path(path)
    if not file.is_file():
        got = "is a folder" if file.is_dir() else f"does not exist (looked in {Path.cwd()})"
        raise DataError(
            f"problem file {path!r} {got}; expected a JSONL file. Give its path in the data setting 'path'."
        )
    source = f"{file.resolve().parent.name}/{file.stem}"

    def problem(row: _Row) -> Problem:
        stated = row.text(answer_key, "answer_key")
        worked = stated if answer_from != "field" else None
        return Problem(
            id=row.text(id_key, "id_key") if id_key else f"{source}:{row.line}",
            question=row.question(question_key),
            answer=row.answer(stated, answer_from),
            source=source,
            split=split,
            level=row.text(level_key, "level_key") if level_key else "",
            solution=row.solution(solution_key) if solution_key else worked,
        )

    return (problem(row) for row in _rows(file, limit))


class _Row:
    """One row and where it stands, so that every complaint names file and line."""

    def __init__(self, file: Path, line: int, values: dict[str, Any]) -> None:
        self.file, self.line, self.values = file, line, values

    def fail(self, message: str) -> NoReturn:
        raise DataError(f"{self.file} line {self.line}: {message}")

    def get(self, key: str, setting: str) -> Any:
        value: Any = self.values
        for part in [key] if key in self.values else key.split("."):
            if not isinstance(value, dict) or part not in value:
                self.fail(
                    f"there is no field {key!r} (it has {', '.join(map(repr, self.values)) or 'none'}). "
                    f"Set {setting} to the field that is meant, or repair the row."
                )
            value = value[part]
        return value

    def text(self, key: str, setting: str) -> str:
        value = self.get(key, setting)
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            self.fail(
                f"the field {key!r} is {_short(value)}, expected text or a number. "
                f"Repair the row, or set {setting} to another field."
            )
        if not str(value).strip():
            self.fail(f"the field {key!r} is empty, expected text or a number. Fill it in, or take the row out.")
        return str(value).strip()

    def question(self, key: str) -> str:
        value = self.get(key, "question_key")
        if not isinstance(value, list):
            return self.text(key, "question_key")
        turns = [m.get("content") for m in value if isinstance(m, dict) and m.get("role") == "user"]
        if not turns or not isinstance(turns[-1], str) or not turns[-1].strip():
            self.fail(
                f"the messages in {key!r} have no user turn with text, expected "
                '[{"role": "user", "content": "..."}]. Repair the row, or set question_key to another field.'
            )
        return turns[-1].strip()

    def solution(self, key: str) -> str:
        value = self.get(key, "solution_key")
        first = value[0] if isinstance(value, list) and value else value
        if not isinstance(first, str) or not first.strip():
            self.fail(
                f"the field {key!r} is {_short(value)}, expected a solution text or a list of them. "
                "Repair the row, or set solution_key to another field."
            )
        return first.strip()

    def answer(self, stated: str, place: str) -> str:
        if place == "field":
            return stated
        found = after_hashes(stated) if place == "####" else last_box(stated)
        if not found:
            expected = "'#### ANSWER' at its end" if place == "####" else "a \\boxed{ANSWER} in it"
            self.fail(
                f"the answer text has no {expected}, got {_short(stated)}. "
                "Repair the row, or set answer_from to where the answer stands."
            )
        return found


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


def _rows(file: Path, limit: int | None) -> Iterator[_Row]:
    given = 0
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if given == limit:
                return
            if not line.strip():
                continue
            try:
                values = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            except (UnicodeDecodeError, json.JSONDecodeError) as error:
                raise DataError(
                    f"{file} line {number}: this is no JSON ({error}), got {_short(line.decode(errors='replace'))}; "
                    "expected one JSON object a line. Repair the line or take it out."
                ) from error
            if not isinstance(values, dict):
                raise DataError(
                    f"{file} line {number}: got {_short(values)}, expected a JSON object such as "
                    '{"question": "...", "answer": "..."}. Repair the line or take it out.'
                )
            given += 1
            yield _Row(file, number, values)


def _short(value: object) -> str:
    shown = repr(value.strip() if isinstance(value, str) else value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
