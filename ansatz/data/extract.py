"""Final answers in the texts of data sets: after `####` (GSM8K), in the last box (MATH), after "The answer is"
(MetaMath), and before a unit in parentheses (ASDiv)."""

from __future__ import annotations

import re

_THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")


_STATED = re.compile(r"\b(?:the|final) answer is:?+(?=.)", re.IGNORECASE)
_WITH_UNIT = re.compile(r"(-?\d[\d.,/]*)\s*\([^\W\d_](?:[^\W\d_]|[ .,'/%-])+\)")


_BRACE = re.compile(r"[{}]")
_BOX = re.compile(r"\\(?:boxed|fbox)(?:\s*\{|\s+(?P<bare>-?\d[\d.,/]*))")


def after_hashes(text: str) -> str | None:
    """Return the text after the last ####, up to the end of its line, without thousands separators. None if it is
    empty."""
    _, mark, rest = text.rpartition("####")
    line = rest.strip().partition("\n")[0].strip()
    if not mark or not line:
        return None
    return line.replace(",", "") if _THOUSANDS.fullmatch(line) else line


def last_box(text: str) -> str | None:
    """Return the content of the last \\boxed{...} or \\fbox{...}, braces balanced; None if there is none or it is
    empty.

    A number can also stand without braces, as in \\boxed 2.
    """
    opened, closing = list[int](), dict[int, int]()
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            opened.append(brace.end())
        elif opened:
            closing[opened.pop()] = brace.start()
    for match in reversed(list(_BOX.finditer(text))):
        if match["bare"]:
            return match["bare"].rstrip(".,/")
        if match.end() in closing:
            return text[match.end() : closing[match.end()]].strip() or None
    return None


def after_sentence(text: str) -> str | None:
    """Return the text after the last "the answer is" or "final answer is" on its line; None if there is none."""
    ends = [match.end() for match in _STATED.finditer(text)]
    line = text[ends[-1] :].partition("\n")[0] if ends else ""
    answer = line.strip().removesuffix(".").strip()
    return (answer.replace(",", "") if _THOUSANDS.fullmatch(answer) else answer) or None


def without_unit(text: str) -> str:
    """Return the number before a unit in parentheses, as in "9 (apples)"; any other text as it is."""
    match = _WITH_UNIT.fullmatch(text.strip())
    return match[1] if match else text


def has_unit(text: str) -> bool:
    """Return whether the text is a number with a unit in parentheses."""
    return without_unit(text) != text
