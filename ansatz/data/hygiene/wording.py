"""What two texts are compared by: words, signs and figures, without typesetting."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_TYPESETTING = re.compile(
    r"\\(?:left|right|displaystyle|text|textbf|textit|mathrm|mathbf|quad|qquad|big|bigl|bigr)(?![a-z])|\\[,;!: ]"
)
_SAME = re.compile(r"\\[dtc]frac(?![a-z])")
_WORD = re.compile(r"[^\W_]+")
_WORD_OR_SIGN = re.compile(r"\d+\.\d+|[^\W_]+|[-+*/=<>^!%|(){}\[\]]")
_LONE = re.compile(r"\{(\w)\}")
_FIGURE = re.compile(r"\d+(?:\.\d+)?|[-+*/=<>^!%]")


def words_of(text: str) -> list[str]:
    """Runs of letters and digits in lower case, LaTeX commands among them, those that only set type left out."""
    return _WORD.findall(_plain(text))


def signature(text: str) -> str:
    """Words, signs and brackets, so that x+1 and x-1 differ, as 8/(4/2) and 8/4/2 do; blanks, dollars, stops and
    typesetting are left out, and braces around one letter or digit."""
    return " ".join(_WORD_OR_SIGN.findall(_LONE.sub(r"\1", _plain(text))))


def figures_of(text: str) -> tuple[str, ...]:
    """All numbers in figures and all signs of arithmetic, sorted: two texts with other figures are other problems."""
    return tuple(sorted(_FIGURE.findall(_plain(text))))


def ngrams(words: Sequence[str], length: int) -> list[str]:
    """All runs of `length` words, in order; none for a shorter text."""
    return [" ".join(words[start : start + length]) for start in range(len(words) - length + 1)]


def same_answer(left: str, right: str) -> bool:
    """Whether two answers are one text, typesetting, blanks and an end point aside. No algebra: 1/2 is not 0.5 here."""
    return bare_answer(left) == bare_answer(right)


def bare_answer(answer: str) -> str:
    """The answer without typesetting, blanks, dollars and an end point, and without braces around the whole."""
    bare = re.sub(r"[\s$]", "", _plain(answer)).rstrip(".")
    return bare[1:-1] if re.fullmatch(r"\{[^{}]*\}", bare) else bare


def _plain(text: str) -> str:
    return _TYPESETTING.sub(" ", _SAME.sub(r"\\frac", unicodedata.normalize("NFKC", text).casefold()))
