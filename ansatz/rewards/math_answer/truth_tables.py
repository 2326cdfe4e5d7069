"""Sets and statements made of single letters, compared by a table of all truth values: De Morgan, contraposition."""

from __future__ import annotations

import re
from collections.abc import Callable

from ansatz.rewards.math_answer.clean import clean
from ansatz.rewards.math_answer.words import NOTATION

_SPELLINGS = NOTATION["connectives"]
_COMMAND = re.compile("|".join(rf"\\(?P<n{i}>{names})(?![A-Za-z])" for i, names in enumerate(_SPELLINGS.values())))
_LEVELS = ("=", ">", "|", "^", "&-")
_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "&": lambda left, right: left & right,
    "|": lambda left, right: left | right,
    "^": lambda left, right: left ^ right,
    "-": lambda left, right: left & ~right,
    ">": lambda left, right: ~left | right,
    "=": lambda left, right: ~(left ^ right),
}
_MAX_LENGTH, _MAX_LETTERS, _ROWS = 200, 6, 64


def has_same_table(gold: str, answer: str) -> bool:
    """Return whether both texts are such sets or statements, and have the same truth table."""
    if len(gold) + len(answer) > _MAX_LENGTH or not _COMMAND.search(gold + answer):
        return False
    texts = [_write_plainly(gold), _write_plainly(answer)]
    letters = sorted(set(re.findall("[A-Za-z]", "".join(texts))))
    operators = set("".join(texts)) & set("&|->=^")
    if len(letters) > _MAX_LETTERS or not operators or (operators == {"&"} and "wedge" in gold):
        return False  # the wedge of forms or vectors has a sign
    rows = {name: sum(1 << row for row in range(_ROWS) if row >> place & 1) for place, name in enumerate(letters)}
    try:
        (expected, end), (stated, other_end) = (_read(text + ".", 0, 0, rows) for text in texts)
    except KeyError:
        return False
    return (end, other_end) == (len(texts[0]), len(texts[1])) and (expected ^ stated) % (1 << _ROWS) == 0


def _write_plainly(text: str) -> str:
    """Write each operator as one character."""
    marks = list(_SPELLINGS)
    text = _COMMAND.sub(lambda match: marks[int(str(match.lastgroup)[1:])], clean(text))
    return re.sub(r"\^\s?\{?\s?[c']\s?\}?", "'", text).translate(str.maketrans("{}[]", "()()", " "))


def _read(text: str, at: int, level: int, rows: dict[str, int]) -> tuple[int, int]:
    """Return the truth values of the expression at a place, and the place after it. Raises KeyError for other texts."""
    if level < len(_LEVELS):
        value, at = _read(text, at, level + 1, rows)
        while text[at] in _LEVELS[level]:
            right, end = _read(text, at + 1, level + (text[at] != ">"), rows)
            value, at = _OPERATORS[text[at]](value, right), end
        return value, at
    if text[at] == "~":
        value, at = _read(text, at + 1, level, rows)
        return ~value, at
    value, at = _read(text, at + 1, 0, rows) if text[at] == "(" else (rows[text[at]], at)
    at += 1
    while text[at : at + 1] == "'":
        value, at = ~value, at + 1
    return value, at
