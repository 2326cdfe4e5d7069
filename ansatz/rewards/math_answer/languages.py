"""The words around an answer in other languages than English, from the table `languages.yaml`.

The patterns are for `re.IGNORECASE`. A word of an alphabet with spaces between words must stand alone; any other may
stand inside a text.
"""

from __future__ import annotations

import re

from ansatz.rewards.math_answer.words import read_table, split_phrases

_TABLE = read_table("languages")


def _alternatives(text: str) -> str:
    return text.replace(" | ", "|").replace(" ", r"\s+")


def _pattern(name: str, after_spaced: str = r"(?!\w)", after_inside: str = "") -> str:
    """Return a pattern for the phrases of a list, and what may follow those of each kind."""
    words = _TABLE[name]
    spaced = rf"(?<!\w)(?:{_alternatives(words['spaced'])}){after_spaced}"
    return f"{spaced}|(?:{_alternatives(words['inside'])}){after_inside}" if "inside" in words else spaced


def _first_words(*names: str) -> frozenset[str]:
    """Return the first words of phrases in plain letters. A single letter is left out, because it is not telling."""
    phrases = (phrase for name in names for phrase in split_phrases(_TABLE[name]["spaced"]) if phrase.isascii())
    return frozenset(word for word in (phrase.split()[0] for phrase in phrases) if len(word) > 1)


OR, AND, ANSWER, RESULT, AFTER = (_alternatives(_TABLE[name]) for name in ("or", "and", "answer", "result", "after"))
TOTALS = f"(?:{_alternatives(_TABLE['totals'])})"
REFUSED = "|".join(map(_pattern, ("denied", "doubted", "bounded")))
"""Denies, doubts or bounds the answer in whose clause it stands."""
CHANGED, RETRACTED, WRONG, OTHER_QUANTITY, NOT_BEFORE_VALUE, VALUE_OF, OPERATION = map(
    _pattern, ("about", "retracted", "wrong", "other_quantity", "not_before_value", "value_of", "operation")
)
_MISLEADING = ("unsure", "example", "misled")
UNSURE, EXAMPLE, MISLED = map(_pattern, _MISLEADING)
TELLING_WORDS = frozenset(re.findall(r"[^\W\d_]{3,}", " ".join(_TABLE[name]["spaced"] for name in _MISLEADING)))
"""The words of these three lists: a fast check for an ASCII text."""
CONCLUSION = _pattern("conclusion", r"(?!\w)[,\s]*", r"[,，、،\s]*")
OF_WORDS = frozenset(_TABLE["of"].split())
CHANGED_BEFORE = _pattern("changed", rf"\s+(?:{'|'.join(OF_WORDS)})[\s$*({{\\]*$")
"""Changes the answer that follows: half of it, or its root."""
COPULA = _pattern("copula", r"(?:\s+(?:donc|also|gleich|de|di|igual\s+a|uguale\s+a|pari\s+a|égale?\s+à|par))?(?!\w)")
ASCII_WORDS = _first_words("denied", "doubted", "bounded")
"""The first words of the phrases of REFUSED in plain letters: a fast check for an ASCII text."""
ASCII_RETRACTIONS = _first_words("retracted", "wrong")
ANSWER_WORDS: tuple[str, ...] = tuple(_TABLE["answer_words"].split())
CLAUSE_ENDS = "。．！？；，、।؛،؟：…"
UNIT_OF_WORD = {word: unit for unit, words in _TABLE["measures"].items() for word in words.split()}
UNIT = re.compile(
    r"(?<=[\d$)}])\s*(" + "|".join(sorted(map(re.escape, UNIT_OF_WORD), key=len, reverse=True)) + ")$", re.IGNORECASE
)
FOREIGN_WORDS, ENGLISH_WORDS = (frozenset(_TABLE[name].split()) for name in ("foreign_words", "english_words"))
