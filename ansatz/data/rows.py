"""One row of a problem file: access to its fields, with error messages that name the file and the line.

A field name can be a path with dots ("reward_model.ground_truth"). Upper and lower case are not distinguished.
Text that holds JSON is parsed where a file has no types (CSV), and where only a chat can be meant.
Everywhere else a text is a text: a gold answer can be JSON.
An answer can be text, a number, or a list of them; then any item is right.
A question can be text, or a chat; its last user turn counts. A solution can be text, a list of solutions, with the
first one counting, or a chat; its last assistant turn counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, cast

from ansatz.data.extract import after_hashes, after_sentence, last_box, without_unit
from ansatz.data.record_formats import (
    FOLLOWING,
    HINTS,
    PRECEDING,
    WORKED,
    as_object,
    media_in,
    media_mark_in,
    puzzle_of,
    turns_of,
    without_instructions,
)
from ansatz.data.unfit import RowError, UnfitRow, short
from ansatz.errors import DataError
from ansatz.json_text import parse_json
from ansatz.python_text import parse_literal

ABSENT = object()
"""The value of a field that a row does not have."""

EXTRACT = {"####": after_hashes, "boxed": last_box, "answer_is": after_sentence, "unit": without_unit}
"""How the answer is extracted from the text of its field, by the value of answer_from."""

_EXPECTED = {
    "####": "'#### ANSWER' at its end",
    "boxed": "\\boxed{ANSWER} in it",
    "answer_is": "'The answer is'",
    "unit": "text",
}


class Row:
    """The values of a row and its position in the file. unit: the unit of positions, "line" or "row". typed: False if
    the file only holds texts, as CSV."""

    def __init__(
        self, file: str | Path, line: int, values: dict[str, Any], *, unit: str = "line", typed: bool = True
    ) -> None:
        self.file, self.line, self.values, self.unit, self.typed = file, line, values, unit, typed

    @property
    def place(self) -> str:
        return f"{self.file} {self.unit} {self.line}"

    def fail(self, message: str) -> NoReturn:
        raise RowError(UnfitRow(self.place, message))

    def find(self, key: str) -> Any:
        """Return the value of the field, or ABSENT. The text of a chat is parsed, and the text of an object if one of
        its fields is named; without types also the text of another object or list."""
        value = self._as_written(key)
        return structured(value) if not self.typed or is_broken_chat(value) else value

    def parse_cells(self, keys: Iterable[str | None]) -> None:
        """Replace the text of a list or an object in these fields by its value, if the file only holds texts. Without
        this, a row that is written as JSON has one text there, which is read as one answer."""
        for key in keys:
            name = _find_spelling(self.values, key) if key and not self.typed else None
            if name is not None:
                self.values[name] = json_value(structured(self.values[name]))

    def first(self, names: Iterable[str]) -> str | None:
        """Return the first of the names that the row has a field of; None if it has none of them."""
        return next((name for name in names if self.find(name) is not ABSENT), None)

    def get(self, key: str, setting: str) -> Any:
        value = self.find(key)
        if value is ABSENT:
            hint = next((f" Perhaps {setting}: {name}." for name in HINTS.get(setting, ()) if name in self.values), "")
            self.fail(
                f"the row has no field {key!r} (its fields: {', '.join(map(repr, self.values)) or 'none'}).{hint} "
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
        """Return the text of a question, also of the two fields of Alpaca, ASDiv and SVAMP. Raise RowError if the row
        shows a picture, a film or sound."""
        question = self._question(key)
        if (name := media_in(self.values)) is not None:
            self.fail(f"the field {name!r} has a picture, a film or sound, expected only text. Remove the row.")
        if (mark := media_mark_in(question)) is not None:
            self.fail(f"the question contains {mark}, expected only text. Remove the row.")
        return question

    def _question(self, key: str) -> str:
        value = self.get(key, "question_key")
        if not isinstance(value, list):
            text = self.text(key, "question_key")
            if key in FOLLOWING and (given := self.part_of_question(FOLLOWING[key])):
                text = f"{text}\n\n{given}"
            if (first := PRECEDING.get(key.casefold())) and (told := self.part_of_question(first)):
                text = f"{told} {text}"
            if is_broken_chat(text):
                self.fail(
                    f"the field {key!r} begins as a list of messages, but is not valid JSON, got {short(text)}. Write "
                    "the file as JSON lines, or repair the row."
                )
            return without_instructions(text)
        asked = [turn.text for turn in turns_of(value) or () if turn.role == "user"]
        if not asked or not asked[-1]:
            self.fail(
                f"the messages in {key!r} have no user turn with text, expected "
                '[{"role": "user", "content": "..."}]. Repair the row, or set question_key to another field.'
            )
        return without_instructions(asked[-1])

    def part_of_question(self, key: str) -> str:
        """Return the text of a field that the question or its context contains; empty if the row has none."""
        value = self._as_written(key)
        if value is ABSENT or value is None:
            return ""
        if isinstance(value, bool | dict) or (isinstance(value, list) and value):
            self.fail(f"the field {key!r} is {short(value)}, expected text. Write it as text, or remove the field.")
        return "" if value == [] else str(value).strip()

    def solution(self, key: str) -> str:
        value = self.get(key, "solution_key")
        text = worked_text(value)
        if not text:
            self.fail(
                f"the field {key!r} is {short(value)}, expected a solution text, a list of them, or a chat with an "
                "assistant turn. Repair the row, or set solution_key to another field."
            )
        return text

    def optional_text(self, key: str | None) -> str | None:
        """Return the text of a field that was recognised, not named by the user: None if this row does not have it."""
        value = self.find(key) if key else None
        value = value if isinstance(value, int | float) and not isinstance(value, bool) else worked_text(value)
        return str(value) if value not in ("", None) else None

    def answer_texts(self, key: str) -> list[str]:
        """Return the text of the answer field; of a chat, the text that counts; of a Countdown puzzle, its target; of a
        list, the text of each item: any of them is right."""
        value = self._find_stated(key)
        if (puzzle := puzzle_of(value)) is not None:
            return [str(puzzle[1])]
        is_chat = turns_of(value) is not None
        items = [worked_text(value)] if is_chat else value if isinstance(value, list) and value else [value]
        if not is_chat and all(isinstance(item, dict) for item in items):
            return [json.dumps(value, ensure_ascii=False)]  # a call of a function, or several
        cells = (Row(self.file, self.line, {key: item}, unit=self.unit) for item in items)
        return [cell.text(key, "answer_key") for cell in cells]

    def _find_stated(self, key: str) -> Any:
        """Return the value of the answer field; a text stays one, except in a field of chats and responses, and
        without types."""
        value = self.get(key, "answer_key")
        if not self.typed or key in WORKED or not is_broken_chat(as_written := self._as_written(key)):
            return value
        return as_written

    def _as_written(self, key: str) -> Any:
        """Return the value of the field, not parsed, or ABSENT. A text around a field that is named is parsed."""
        value: Any = self.values
        for part in [key] if key in self.values else key.split("."):
            value = structured(value)
            name = _find_spelling(value, part)
            if name is None:
                return ABSENT
            value = value[name]
        return value

    def answers(self, texts: Sequence[str], key: str, answer_from: str) -> tuple[str, ...]:
        """Return the final answers in the texts of the answer field, each once; empty if a response to be imitated
        states none."""
        read = EXTRACT.get(answer_from, str)
        stating = [text for text in texts if read(text)] or texts[:1]  # a solution without a box states no answer
        golds = [self._answer(text, key, answer_from) for text in stating]
        return tuple(dict.fromkeys(filter(None, golds)))

    def _answer(self, text: str, key: str, answer_from: str) -> str:
        if answer_from == "field":
            return "" if key in WORKED and len(text) > LONGEST_ANSWER else text
        answer = EXTRACT[answer_from](text)
        if not answer:
            self.fail(
                f"the answer text has no {_EXPECTED[answer_from]}, got {short(text)}. "
                "Repair the row, or set answer_from to the right form."
            )
        return answer

    def rest(self, used: Iterable[str]) -> dict[str, Any]:
        """Return the fields that are not used. If only a part of a nested field is used, its other parts remain."""
        rest = dict(self.values)
        for key in used:
            name = _find_spelling(rest, key)
            if name is not None or "." not in key:
                rest.pop(name or key, None)
                continue
            outer, _, inner = key.partition(".")
            name = _find_spelling(rest, outer)
            if name is not None and isinstance(rest[name], dict):
                rest[name] = Row(self.file, self.line, rest[name]).rest([inner])
                if not rest[name]:
                    del rest[name]
        return rest


LONGEST_ANSWER = 100
"""Characters. A longer text in a field of worked solutions is a response without a final answer, not an answer."""


def row_of(file: str | Path, line: int, value: Any, *, unit: str = "line", typed: bool = True) -> Row:
    """Return the value as a row. typed: see `Row`. Raise DataError if it is not an object."""
    values = as_object(value)
    if not isinstance(values, dict):
        raise DataError(
            f"{file} {unit} {line}: got {short(value)}, expected a JSON object such as "
            f'{{"question": "...", "answer": "..."}}. Repair the {unit} or remove it.'
        )
    return Row(file, line, cast("dict[str, Any]", values), unit=unit, typed=typed)


def worked_text(value: Any) -> str:
    """Return the worked solution in a field: text, the first of a list, or the last assistant turn of a chat; else
    empty."""
    turns = turns_of(value)
    if turns is not None:
        return turns[-1].text if turns[-1].role == "assistant" else ""
    first: Any = cast("list[Any]", value)[0] if isinstance(value, list) and value else value
    return first.strip() if isinstance(first, str) else ""


def json_value(value: Any) -> Any:
    """Return a value of a table in JSON's types: containers become lists and objects; everything else except numbers
    becomes text. A table gives all rows the same fields, so nulls in calls of tools and their schemas are removed."""
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {str(key): json_value(_without_nulls(item) if key in _CALLS else item) for key, item in items}
    if isinstance(value, list | tuple | set):
        return [json_value(item) for item in cast("list[Any]", value)]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


_CALLS = ("tools", "tool_calls", "function_call")


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {key: _without_nulls(item) for key, item in items if item is not None}
    return [_without_nulls(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def _find_spelling(values: Any, name: str) -> str | None:
    """Return the name as the object spells it; None if it has no such field."""
    if not isinstance(values, dict):
        return None
    fields = cast("dict[str, Any]", values)
    if name in fields:
        return name
    folded = name.casefold()
    return next((field for field in fields if field.strip("\ufeff \t").casefold() == folded), None)


_STRUCTURED = re.compile(r"\s*(\{\s*[\"']|\[\s*\{\s*[\"']|\[\s*[\"'])")
_CHAT = re.compile(r"\s*\[\s*\{\s*[\"'](role|from|content|value)[\"']\s*:")


def structured(value: Any) -> Any:
    """Return the object, the list of objects or the list of texts that a text holds as JSON; any other value
    unchanged."""
    return _parse(value) if isinstance(value, str) and _STRUCTURED.match(value) else value


def is_broken_chat(value: Any) -> bool:
    """Return whether a value is text that begins as a chat. After `structured`, it is cut off or its JSON not valid."""
    return isinstance(value, str) and _CHAT.match(value) is not None


@lru_cache(maxsize=16)  # a row asks for the same field several times
def _parse(text: str) -> Any:
    value: Any = None
    try:
        value = parse_json(text)
    except ValueError:
        with suppress(ValueError):
            value = parse_literal(text)
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    if isinstance(value, list) and value:
        items = cast("Sequence[Any]", value)
        if any(all(isinstance(item, kind) for item in items) for kind in (dict, str)):
            return items
    return text
