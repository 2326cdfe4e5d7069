"""Normal forms for comparing texts: words, signs and numbers without typesetting."""

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


def normalized_words(text: str) -> list[str]:
    """Runs of letters and digits in lower case. LaTeX commands count as words, except those that only typeset."""
    return _WORD.findall(_plain(text))


def signature(text: str) -> str:
    """Words, signs and brackets. So x+1 and x-1 differ, and so do 8/(4/2) and 8/4/2. Blanks, dollar signs, full stops,
    typesetting, and braces around a single letter or digit are ignored."""
    return " ".join(_WORD_OR_SIGN.findall(_LONE.sub(r"\1", _plain(text))))


def figures_of(text: str) -> tuple[str, ...]:
    """All numbers in digits and all arithmetic signs, sorted. Texts with different figures are different problems."""
    return tuple(sorted(_FIGURE.findall(_plain(text))))


def ngrams(words: Sequence[str], length: int) -> list[str]:
    """All runs of `length` consecutive words, in order; empty for a shorter text."""
    return [" ".join(words[start : start + length]) for start in range(len(words) - length + 1)]


def same_answer(left: str, right: str) -> bool:
    """Whether two answers are the same text, ignoring typesetting, blanks and a final full stop. There is no algebra:
    1/2 and 0.5 differ."""
    return bare_answer(left) == bare_answer(right)


def bare_answer(answer: str) -> str:
    """The answer without typesetting, blanks, dollar signs, a final full stop, and braces around the whole."""
    bare = re.sub(r"[\s$]", "", _plain(answer)).rstrip(".")
    return bare[1:-1] if re.fullmatch(r"\{[^{}]*\}", bare) else bare


def _plain(text: str) -> str:
    return _TYPESETTING.sub(" ", _SAME.sub(r"\\frac", unicodedata.normalize("NFKC", text).casefold()))
