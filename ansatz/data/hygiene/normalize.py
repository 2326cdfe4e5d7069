"""Normal forms for comparing texts: words, signs and numbers without typesetting.

LaTeX is read so that different ways to write one formula give one text: \\dfrac{1}{2} and \\frac12, \\( x \\) and $x$,
\\leq and \\le, x^{2} and x^2, \\text{cm} and cm, 1{,}000 and 1,000, \\cdot and \\times.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, groupby, islice
from pathlib import Path

from ansatz.files import read_yaml
from ansatz.types import golds_of

_NAMES: dict[str, str] = read_yaml(Path(__file__).with_suffix(".yaml"))
"""LaTeX commands that mean the same as another command or sign."""

_SPLIT_SIGNS = str.maketrans({"\u2212": "-", "\u00d7": "*", "\u00b7": "*", "\u22c5": "*", "\u2026": " ", "\u2019": "'"})
_SIGNS = _SPLIT_SIGNS | str.maketrans({"\u2217": "*", "\u2219": "*", "\u2215": "/", "\u2223": "|", "\u22ef": " "})
_SPLIT_UNICODE = {"\u2264": "le", "\u2265": "ge", "\u2260": "ne", "\u03c0": "pi", "\u221a": "sqrt", "\u00b0": "^circ"}
_UNICODE = _SPLIT_UNICODE | {"\u2044": "/"}  # NFKC puts it into a fraction that is one character
_UNICODE |= {"\u222a": r"\cup", "\u2229": r"\cap", "\u2208": r"\in", "\u2220": r"\angle", "\u2192": r"\to"}
_UNICODE |= {"\u00b1": r"\pm", "\u00f7": r"\div"}
_OTHER_SIGNS = "\u2032\u00ac\u2190-\u230b\u27c0-\u2aff"
"""The prime, and the other arrows, operators and brackets of Unicode."""
_QUOTED = re.compile(r"``((?:(?!``|'')[\s\S])*+)''")
_NOT_OPENED = r"(?<![`\u2018])(?<!(?<![\w)\]}'])')(?<!(?<![\w)\]}'])'')"
_PRIME = re.compile(rf"(\\[a-z]++|(?<![^\W\d_]){_NOT_OPENED}[^\W\d_]|(?<!\\)[)\]]|\}})('+)(?!s\b)")
"""Apostrophes that are primes: after a command, a bracket, or a single letter that is not in quotation marks."""
_MOST_MARKS = 30
_TYPESETTING = re.compile(
    r"\\(?:left|right|displaystyle|limits|quad|qquad|big|bigl|bigr|bigg|biggl|biggr)(?![a-z])|\\[,;!: ()\[\]]|~"
)
_STYLED = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|operatorname|mbox)(?![a-z])\s*(?:\{([^{}]*)\})?"
)
_COMMAND = re.compile(r"\\([a-z]+)")
_SHORT_FRACTION = re.compile(r"\\[dtc]?frac\s*(\d)\s*(\d)")
_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|,\\!|,)(?=\d{3}(?!\d))")
_WORD = re.compile(r"[^\W_]+")
_SPLIT_WORD = re.compile(r"\d+\.\d+|[^\W_]+|[-+*/=<>^!%|(){}\[\]]")
_WORD_OR_SIGN = re.compile(rf"\d+\.\d+|[^\W_]+|[-+*/=<>^!%|(){{}}\[\]{_OTHER_SIGNS}]")
_IDEOGRAPH = re.compile(
    "[\u3005-\u3007\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003134f]"
)
"""Characters of Chinese and Japanese, which write no spaces between words."""
_LONE = re.compile(r"\{\s*(\w|\\[a-z]+)\s*\}")
_OPERATOR = re.compile(r"\\(cup|cap|pm|div)(?![a-z])")  # as a command, because a cup is a word too
_FIGURE = re.compile(rf"\d+(?:\.\d+)?|[-+*/=<>^!%{_OTHER_SIGNS}]")


def normalized_words(text: str) -> list[str]:
    """Return the runs of letters and digits, in lower case. LaTeX commands count as words, except those that only
    typeset. In Chinese and Japanese, each character is a word."""
    return _WORD.findall(_strip_typesetting(text))


def signature(text: str) -> str:
    """Return words, signs and brackets. So x+1 and x-1 differ, f and f', and 8/(4/2) and 8/4/2. Blanks, dollar signs,
    full stops, quotation marks, typesetting, and braces around a single letter, digit or command are ignored."""
    return " ".join(_WORD_OR_SIGN.findall(_strip_typesetting(text)))


def split_key(text: str) -> str:
    """Return the form of a question that decides its side of a split. It never changes, even if `signature` does: rows
    that were held out would be trained on."""
    text = _normalize_unicode(text.translate(_SPLIT_SIGNS)).casefold()
    for sign, name in _SPLIT_UNICODE.items():
        text = text.replace(sign, f" {name} ")
    return " ".join(_SPLIT_WORD.findall(_strip_latex(text)))


def figures_of(text: str) -> tuple[str, ...]:
    """Return all numbers in digits and all signs of arithmetic and sets, sorted. Texts with different figures are
    different problems."""
    spelled = _spell_signs(text)
    return tuple(sorted(_FIGURE.findall(_strip_latex(spelled)) + _OPERATOR.findall(spelled)))


def numbers_of(text: str) -> list[str]:
    """Return all numbers in digits, in order."""
    return [figure for figure in _FIGURE.findall(_strip_typesetting(text)) if figure[0].isdigit()]


def ngrams(words: Sequence[str], length: int) -> list[str]:
    """Return all runs of `length` consecutive words, in order; empty for a shorter text."""
    return [" ".join(words[start : start + length]) for start in range(len(words) - length + 1)]


def is_ideograph(word: str) -> bool:
    return _IDEOGRAPH.fullmatch(word) is not None


def same_answer(left: str, right: str) -> bool:
    """Return whether two answers are the same text, ignoring typesetting, blanks and a final full stop; of several,
    whether they share one. There is no algebra: 1/2 and 0.5 differ."""
    return not set(map(bare_answer, golds_of(left))).isdisjoint(map(bare_answer, golds_of(right)))


def bare_answer(answer: str) -> str:
    """Return the answer without typesetting, blanks, dollar signs, a final full stop, and braces around the whole."""
    bare = re.sub(r"[\s$]", "", _strip_typesetting(answer)).rstrip(".")
    return bare[1:-1] if re.fullmatch(r"\{[^{}]*\}", bare) else bare


def _normalize_unicode(text: str) -> str:
    """Return the text in Unicode's form NFKC. Marks after the 30th on one letter are left out: the time of putting them
    in order grows with the square of their number."""
    if text.isascii():
        return text
    runs = (islice(run, _MOST_MARKS) if mark else run for mark, run in groupby(text, key=_is_mark))
    return unicodedata.normalize("NFKC", "".join(chain.from_iterable(runs)))


@lru_cache(maxsize=4096)
def _is_mark(character: str) -> bool:
    return unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) > 0


def _strip_typesetting(text: str) -> str:
    return _strip_latex(_spell_signs(text))


def _spell_signs(text: str) -> str:
    """Return the text in lower case, with signs of Unicode as in LaTeX, and apostrophes that are primes as primes."""
    text = _normalize_unicode(text.translate(_SIGNS)).casefold()
    if not text.isascii():
        for sign, name in _UNICODE.items():
            text = text.replace(sign, f" {name} ")
        text = _IDEOGRAPH.sub(r" \g<0> ", text)
    if "'" in text:
        text = _QUOTED.sub(r" \1 ", text)
        text = _PRIME.sub(lambda match: match[1] + "\u2032" * len(match[2]), text)
    return text


def _strip_latex(text: str) -> str:
    """Return a text in lower case without LaTeX. `split_key` depends on every line, and on normalize.yaml."""
    text = _THOUSANDS.sub("", text)
    text = _TYPESETTING.sub(" ", text)
    text = _STYLED.sub(lambda match: f" {match[1] or ''} ", text)
    text = _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", text)
    text = _LONE.sub(r" \1 ", text)
    return _COMMAND.sub(lambda match: f" {_NAMES.get(match[1], match[1])} ", text).replace("\\", " ")
