"""Cleans a text before parsing: one spelling for texts that look the same, no wrappers. Linear in the text's length."""

from __future__ import annotations

import re
import unicodedata

from ansatz_verify.words import FUNCTIONS, NOTATION

_SUPERSCRIPTS, _SUBSCRIPTS = NOTATION["superscripts"], NOTATION["subscripts"]
_FRACTIONS = [(source, parts.split()) for source, parts in NOTATION["vulgar_fractions"].items()]
_INVISIBLE = [
    *range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F, 0xAD, *range(0x200B, 0x2010), *range(0x202A, 0x202F),
    *range(0x2060, 0x2070), 0xFE0F, 0xFEFF,
]  # fmt: skip
_TABLE: dict[int, str | None] = {
    **{ord(source): target for source, target in NOTATION["characters"].items()},
    **{0xFEE0 + ord(char): char for char in NOTATION["wide"]},
    **{zero + n: str(n) for zero in (0x0660, 0x06F0, 0x0966) for n in range(10)},  # Arabic, Persian, Hindi
    **{ord(source): f"\\frac{{{top}}}{{{bottom}}} " for source, (top, bottom) in _FRACTIONS},
    **dict.fromkeys(_INVISIBLE),
}
_FILLERS = "\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"


class _Seen(dict[int, str]):
    """Maps each character that is not seen, or that marks the one before it, to NUL, and others to themselves."""

    def __missing__(self, point: int) -> str:
        unseen = point in _INVISIBLE or unicodedata.category(chr(point))[0] in "CM" or chr(point) in _FILLERS
        seen = self[point] = "\0" if unseen and point not in _SPACES_SEEN else chr(point)
        return seen


_SEEN, _SPACES_SEEN = _Seen(), (0x09, 0x0A, 0x0D)
_RUN = r"((?:\0|\{\0*\})+)"
_WITHIN_NUMBER = re.compile(rf"(?<=\d){_RUN}(?=\.?\d)|(?<=\d\.){_RUN}(?=\d)")
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
_WIDE_GAP = re.compile(r"(?<=[^,;\s])\s*\\q?quad(?![a-z])\s*(?=[A-Za-z\\][^=,;]{0,40}=)")
_DECIMAL_COMMA = re.compile(r"(?<![\d.}])(0|\d+(?=\{,\}(?:\d\d?|\d{4,})(?![\d{])))\{,\}(?=\d)")
_OPERATOR_NAME = re.compile(r"\\operatorname\s*\{\s*([A-Za-z]+)\s*\}")
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
    seen = text.translate(_SEEN)
    for run in reversed(list(_WITHIN_NUMBER.finditer(seen))):
        if "\0" in run[0]:
            text = text[: run.start()] + UNREADABLE + text[run.end() :]
    return text


def clean(text: str) -> str:
    """Replace special characters by plain spellings, and drop sizing commands and wrappers around the whole text.

    Characters that are not seen are dropped, except within a number; see `mark_unseen`.
    """
    text = mark_unseen(text)
    if not text.isascii():
        text = _RAISED.sub(lambda m: "^{" + "".join(_SUPERSCRIPTS[c] for c in m[0]) + "}", text)
        text = _LOWERED.sub(lambda m: "_{" + "".join(_SUBSCRIPTS[c] for c in m[0]) + "}", text)
        text = _SPACES.sub(" ", text.translate(_TABLE))
    text = text.translate(_TABLE).strip()
    if "per cent" in text:
        text = text.replace("per cent", "percent")
    if "{,}" in text:  # a comma that is not before three digits is a decimal one
        text = _DECIMAL_COMMA.sub(r"\1.", text)
    if "{}" in text:
        text = _EMPTY_GROUP.sub("", text)
    if "quad" in text and text.count("=") > 1:  # x = 1 \\quad y = 2
        text = _WIDE_GAP.sub(", ", text)
    return unwrap(_with_plain_commands(text) if "\\" in text else text)


def _with_plain_commands(text: str) -> str:
    """Replace commands by their usual spelling, and drop those that change only how a formula looks."""
    if "\\\\" in text and "\\begin" not in text:  # a program escaped it twice
        text = _DOUBLED.sub(r"\\", text)
    if "phantom{" in text or "phantom " in text:  # takes room and is not seen
        text = _PHANTOM.sub(" ", text)
    if "color" in text:
        text = _COLOR.sub("", text)
    text = _PRIMES.sub(lambda m: "'" * max(m[0].count("prime"), m[0].count("'")), text)
    text = _OPERATOR_NAME.sub(lambda m: f"\\{m[1]} " if m[1] in FUNCTIONS else m[0], text)
    text = _SIZING.sub("", text)
    if "dfrac" in text or "tfrac" in text or "cfrac" in text:
        text = _FRACTION.sub(r"\\frac", text)
    if "dbinom" in text or "tbinom" in text:
        text = text.replace("\\dbinom", "\\binom").replace("\\tbinom", "\\binom")
    return text


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
        if text == before:
            return text


def squeeze(text: str) -> str:
    """Remove spaces without a meaning from a cleaned text. `1 1/2` keeps its space, because it is not `11/2`."""
    return _LOOSE_SPACE.sub("", text)
