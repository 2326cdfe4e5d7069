"""Cleans a text before parsing: one spelling for what looks the same, no wrappers. Linear in the length of the text."""

from __future__ import annotations

import re

from ansatz.rewards.math_answer import languages
from ansatz.rewards.math_answer.words import FUNCTIONS, NOTATION

_SUPERSCRIPTS, _SUBSCRIPTS = NOTATION["superscripts"], NOTATION["subscripts"]
_FRACTIONS = [(source, parts.split()) for source, parts in NOTATION["vulgar_fractions"].items()]
_INVISIBLE = [
    *range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F, 0xAD, *range(0x200B, 0x2010), *range(0x202A, 0x202F),
    *range(0x2060, 0x2070), 0xFE0F, 0xFEFF,
]  # fmt: skip
_TABLE: dict[int, str | None] = {
    **{ord(source): target for source, target in (NOTATION["characters"] | NOTATION["wide"]).items()},
    **{zero + n: str(n) for zero in (0xFF10, 0x0660, 0x06F0, 0x0966) for n in range(10)},  # also Arabic, Persian, Hindi
    **{0xFF21 + n: chr(65 + n) for n in range(26)},
    **{ord(source): f"\\frac{{{top}}}{{{bottom}}} " for source, (top, bottom) in _FRACTIONS},
    **dict.fromkeys(_INVISIBLE),
}
_MARKS = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2028\u2029\u2800\u3164\ufe00-\ufe0e\ufff9-\ufffb\uffa0"
_MORE_MARKS = "\x80-\x9f\u0300-\u036f\u061c\u20d0-\u20ff\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
_UNSEEN = f"[{''.join(re.escape(chr(point)) for point in _INVISIBLE)}{_MARKS}{_MORE_MARKS}]"
"""One character that is not seen, or that marks the character before it: what has no place within a number."""
_UNSEEN_RUN = rf"((?:{_UNSEEN}|\{{{_UNSEEN}*\}})+)"
_WITHIN_NUMBER = re.compile(rf"(?<=\d){_UNSEEN_RUN}(?=\.?\d)|(?<=\d\.){_UNSEEN_RUN}(?=\d)")
UNREADABLE = "\ufffd"
"""Stands in a number for characters that are not seen. No answer is read with it."""
_RAISED = re.compile("[" + "".join(_SUPERSCRIPTS) + "]+")
_LOWERED = re.compile("[" + "".join(_SUBSCRIPTS) + "]+")

_SPACES = re.compile(" {2,}")
_SIZING = re.compile(rf"\\(?:{NOTATION['sizing']})(?![A-Za-z])\.?")
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z%$!,;{}])")
_EMPTY_GROUP = re.compile(r"(?<![A-Za-z\\*])\{\}")
_PHANTOM = re.compile(r"\\[hv]?phantom(?![A-Za-z])\s*(?:\{[^{}]*\}|[^\s{}\\&])")
_COLOR = re.compile(r"\\(?:text)?color(?:box)?\s*(?:\[[A-Za-z]{1,8}\])?\s*\{[^{}]*\}")
_FRACTION = re.compile(r"\\[dtc]frac(?![A-Za-z])")
_PRIMES = re.compile(r"\^\s*(?:\{((?:\s*(?:\\prime(?![A-Za-z])|'))+)\s*\}|\\prime(?![A-Za-z])|')")
_VECTOR = r"\\(?:mathbf|boldsymbol|vec|overrightarrow)\s*\{?\s*([A-Za-z]{1,2})\s*\}?"
_CROSS = re.compile(rf"{_VECTOR}\s*\\times\s*{_VECTOR}")
_CLEANED = [(mark, re.compile(pattern), usual) for mark, pattern, usual in NOTATION["cleaned"]]
_NAME = r"(?:\\(?!circ)[A-Za-z]+|[A-Za-z])(?:_\w|\^\{-1\})?"
_COMPOSED = re.compile(rf"(?<![\w^{{\\])({_NAME}(?:\s*\\circ\s*{_NAME})+)(?![\w(])(?!\s*(?:\\circ|\)\s*\())")
_DECIMAL_COMMA = re.compile(r"(?<![\d.}])(0|\d+(?=\{,\}(?:\d\d?|\d{4,})(?![\d{])))\{,\}(?=\d)")
_FUNCTION = re.compile(rf"\\operatorname\s*\{{\s*({'|'.join(FUNCTIONS)})\s*\}}")
_WRAPPERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("`", "`"), ('"', '"'))
_LEFT_WRAPPERS = tuple(left for left, _ in _WRAPPERS)
_LOOSE_SPACE = re.compile(r"(?<![0-9A-Za-z])\s+|\s+(?![0-9A-Za-z])")


def mark_unseen(text: str) -> str:
    r"""Replace characters that are not seen by UNREADABLE where they stand within a number, as in `4\x002`.

    Elsewhere they mean nothing and can be dropped. Without this, a text that is not a number to anyone else, such as
    the output of a program that prints `4\x002`, would be read as 42, or as 2 if only the last number counts.
    """
    if text.isascii() and text.isprintable():
        return text
    return _WITHIN_NUMBER.sub(lambda run: run[0] if run[0].strip("{}") == "" else UNREADABLE, text)


def clean(text: str) -> str:
    """Replace special characters by plain spellings, and drops sizing commands and wrappers around the whole text.

    Characters that are not seen are dropped, except within a number; see `mark_unseen`.
    """
    text = mark_unseen(text)
    if not text.isascii():
        text = languages.UNIT.sub(lambda unit: f"\\text{{ {languages.UNIT_OF_WORD[unit[1].lower()]}}}", text.strip())
        text = _RAISED.sub(lambda m: "^{" + "".join(_SUPERSCRIPTS[c] for c in m[0]) + "}", text)
        text = _LOWERED.sub(lambda m: "_{" + "".join(_SUBSCRIPTS[c] for c in m[0]) + "}", text)
        text = _SPACES.sub(" ", text.translate(_TABLE))
    text = text.translate(_TABLE).strip()
    for mark, pattern, usual in _CLEANED:
        text = pattern.sub(usual, text) if mark in text else text
    if "per cent" in text:
        text = text.replace("per cent", "percent")
    if "{,}" in text:  # a comma that is not before three digits is a decimal one
        text = _DECIMAL_COMMA.sub(r"\1.", text)
    if "{}" in text:
        text = _EMPTY_GROUP.sub("", text)
    if "\\" in text:
        if "\\\\" in text and "\\begin" not in text:  # a program escaped it twice
            text = _DOUBLED.sub(r"\\", text)
        if "phantom{" in text or "phantom " in text:  # takes room and is not seen
            text = _PHANTOM.sub(" ", text)
        if "color" in text:
            text = _COLOR.sub("", text)
        text = _PRIMES.sub(lambda m: "'" * max(m[0].count("prime"), m[0].count("'")), text)
        text = _FUNCTION.sub(r"\\\1 ", text)
        if "\\times" in text:  # of two vectors: b x a is -(a x b)
            text = _CROSS.sub(lambda m: f"{'(-1)' * (m[1] > m[2])}\\Xi_{{{min(m.groups())} {max(m.groups())}}}", text)
        if "\\circ" in text:  # a composition, whose order counts
            text = _COMPOSED.sub(lambda m: "\\Xi_{o " + m[1].replace("\\circ", " ") + "}", text)
        text = _SIZING.sub("", text)
        if "dfrac" in text or "tfrac" in text or "cfrac" in text:
            text = _FRACTION.sub(r"\\frac", text)
    return unwrap(text)


def unwrap(text: str) -> str:
    """Remove outer dollars, math brackets, boxes, bold marks and final punctuation."""
    while True:
        before = text
        text = text.strip()
        if text[:1].isalnum() and text[-1].isalnum():
            return text
        while text.endswith((".", ",", ";", ":", "\\\\", "~", "\\ ")) and not text.endswith(
            ("\\,", "\\;", "\\:", "...")
        ):
            text = text[:-1].rstrip() if not text.endswith("\\\\") else text[:-2].rstrip()
        text = text.removesuffix("\\,").removesuffix("\\;").removesuffix("\\!")
        for left, right in _WRAPPERS if text.startswith(_LEFT_WRAPPERS) else ():
            if len(text) >= len(left) + len(right) and text.startswith(left) and text.endswith(right):
                inner = text[len(left) : -len(right)]
                if left not in inner and right not in inner and not inner.endswith("\\"):
                    text = inner
        for command in (r"\boxed{", r"\fbox{"):
            if text.startswith(command) and _closes_last(text, len(command) - 1):
                text = text[len(command) : -1]
        if text == before:
            return text


def _closes_last(text: str, start: int) -> bool:
    """Return whether the last character closes the brace at `start`."""
    depth = 0
    for index in range(start, len(text)):
        if text[index] == "{" and text[index - 1] != "\\":
            depth += 1
        elif text[index] == "}" and text[index - 1] != "\\":
            depth -= 1
            if depth == 0:
                return index == len(text) - 1
    return False


def squeeze(text: str) -> str:
    """Remove spaces without a meaning from a cleaned text. `1 1/2` keeps its space, because it is not `11/2`."""
    return _LOOSE_SPACE.sub("", text)
