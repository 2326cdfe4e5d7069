"""One row of a problem file: access to its fields, with error messages that name the file and the line.

A field name can be a path with dots ("reward_model.ground_truth"). A question can be text or a list of chat messages;
the last user turn counts. A solution can be text or a list of solutions; the first counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn, cast

from ansatz.data.extract import after_hashes, last_box
from ansatz.data.record_formats import as_object, without_instructions
from ansatz.errors import DataError

ABSENT = object()
"""The value of a field that a row does not have."""


class Row:
    """The values of a row and its position in the file. unit: what the file is counted in, "line" or "row"."""

    def __init__(self, file: str | Path, line: int, values: dict[str, Any], *, unit: str = "line") -> None:
        self.file, self.line, self.values, self.unit = file, line, values, unit

    def fail(self, message: str) -> NoReturn:
        raise DataError(f"{self.file} {self.unit} {self.line}: {message}")

    def find(self, key: str) -> Any:
        """The value of the field, or ABSENT."""
        value: Any = self.values
        for part in [key] if key in self.values else key.split("."):
            if not isinstance(value, dict) or part not in value:
                return ABSENT
            value = cast("dict[str, Any]", value)[part]
        return value

    def get(self, key: str, setting: str) -> Any:
        value = self.find(key)
        if value is ABSENT:
            self.fail(
                f"the row has no field {key!r} (its fields: {', '.join(map(repr, self.values)) or 'none'}). "
                f"Set {setting} to the right field, or repair the row."
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
            self.fail(f"the field {key!r} is empty, expected text or a number. Fill it in, or remove the row.")
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
        first = first_item(value)
        if not isinstance(first, str) or not first.strip():
            self.fail(
                f"the field {key!r} is {short(value)}, expected a solution text or a list of them. "
                "Repair the row, or set solution_key to another field."
            )
        return first.strip()

    def optional_text(self, key: str | None) -> str | None:
        """The text of a field that was recognised, not named by the user: None if this row does not have it."""
        value = first_item(self.find(key)) if key else None
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value).strip() or None
        return None

    def answer_text(self, key: str, answer_from: str) -> str:
        """The text of the answer field. If it is a list: its only item, or the first of several worked solutions."""
        value = self.get(key, "answer_key")
        if isinstance(value, list) and (len(cast("list[Any]", value)) == 1 or (value and answer_from == "boxed")):
            return Row(self.file, self.line, {key: first_item(value)}, unit=self.unit).text(key, "answer_key")
        return self.text(key, "answer_key")

    def answer(self, text: str, answer_from: str) -> str:
        """The final answer in the text of the answer field."""
        if answer_from == "field":
            return text
        answer = after_hashes(text) if answer_from == "####" else last_box(text)
        if not answer:
            expected = "'#### ANSWER' at its end" if answer_from == "####" else "a \\boxed{ANSWER} in it"
            self.fail(
                f"the answer text has no {expected}, got {short(text)}. "
                "Repair the row, or set answer_from to the right form."
            )
        return answer

    def rest(self, used: Iterable[str]) -> dict[str, Any]:
        """The fields that are not used. If only a part of a nested field is used, its other parts remain."""
        rest = dict(self.values)
        for key in used:
            if key in rest or "." not in key:
                rest.pop(key, None)
                continue
            first, _, inner = key.partition(".")
            if isinstance(rest.get(first), dict):
                rest[first] = Row(self.file, self.line, rest[first]).rest([inner])
                if not rest[first]:
                    del rest[first]
        return rest


def row_of(file: str | Path, line: int, value: Any, *, unit: str = "line") -> Row:
    """The value as a row. DataError if it is not an object."""
    values = as_object(value)
    if not isinstance(values, dict):
        raise DataError(
            f"{file} {unit} {line}: got {short(value)}, expected a JSON object such as "
            f'{{"question": "...", "answer": "..."}}. Repair the {unit} or remove it.'
        )
    return Row(file, line, cast("dict[str, Any]", values), unit=unit)


def json_value(value: Any) -> Any:
    """The value in JSON's types: containers become lists and objects; everything else except numbers becomes text."""
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple | set):
        return [json_value(item) for item in cast("list[Any]", value)]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def short(value: object) -> str:
    """The value as an error message shows it, at most 60 characters."""
    shown = repr(value.strip() if isinstance(value, str) else value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def first_item(value: Any) -> Any:
    """The first item of a non-empty list; any other value unchanged."""
    return cast("list[Any]", value)[0] if isinstance(value, list) and value else value
