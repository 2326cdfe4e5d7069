"""The words that the parser and the extractor know, from `tables.py`."""

from __future__ import annotations

import re
from fractions import Fraction

from ansatz_verify.tables import NOTATION, WORDS


def word_set(name: str) -> frozenset[str]:
    """Return the words of a list of `tables.py`."""
    return frozenset(WORDS[name].split())


UNIT_OF: dict[str, str] = {
    spelling: unit for unit, spellings in WORDS["units"].items() for spelling in (unit, *spellings.split())
}
"""The canonical unit of each spelling."""
_POWER = re.compile(r"([A-Za-z]+)(-?\d*)")
TO_BASE: dict[str, tuple[tuple[tuple[str, int], ...], Fraction]] = {
    unit: (tuple((name, int(power or 1)) for name, power in _POWER.findall(base)), Fraction(size))
    for unit, (base, _, size) in ((unit, text.rpartition(" ")) for unit, text in WORDS["conversions"].items())
}
"""unit -> (base units with their powers, how many of them it is)."""
LONG_UNITS = frozenset(name for name in UNIT_OF if len(name) > 1) - frozenset(["in", "pt", "rs", "st", "min"])
"""Spellings that are units even without \\text{}; a single letter is a unit only inside it."""
SINGLE_LETTER_UNITS = frozenset("mgshLNJWVAKCFlT")
CURRENCIES = {"$": "dollar", "€": "euro", "£": "gbp", "¥": "yen", "₹": "rupee"}
COMPOUND_UNITS = {"mph": (("mi", 1), ("h", -1)), "kph": (("km", 1), ("h", -1)), "kmh": (("km", 1), ("h", -1))}
UNIT_RAISERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
SCALES = {"hundred": 2, "thousand": 3, "million": 6, "millions": 6, "billion": 9, "billions": 9, "trillion": 12}

FUNCTIONS: dict[str, str] = {**{name: name for name in NOTATION["functions"].split()}, **NOTATION["other_functions"]}
"""The canonical function of each name."""
_FOLDED = "factorial factorial2 binomial sum prod int"
KNOWN_FUNCTIONS = frozenset({*FUNCTIONS.values(), *_FOLDED.split()})
"""Functions with a meaning of their own. Any other name of an `Apply` is a function of the problem, such as f or x."""
INVERSES = {name: f"arc{name}" for name in ("sin", "cos", "tan", "cot", "sinh", "cosh", "tanh")}
GREEK = frozenset(NOTATION["greek"].split())

NOUNS = word_set("nouns")
NUMBER_WORDS = {word: n for n, word in enumerate(WORDS["small_numbers"].split())} | {
    word: 10 * n for n, word in enumerate(WORDS["tens"].split(), start=2)
}
FRACTION_WORDS = {word: n for n, words in enumerate(WORDS["fractions"].split(), start=2) for word in words.split("/")}
HEDGES = word_set("hedges")
ALTERING_WORDS = word_set("altering")
_ALTERING_SIGNS = "十百千万亿億兆半倍割成打"
NEGATIONS = word_set("negations")
CONDITION_WORDS = word_set("conditions")
CONNECTIVES = HEDGES | word_set("connectives")
GRAMMAR_WORDS = CONNECTIVES | {*UNIT_RAISERS, "per", *SCALES, *NUMBER_WORDS}
KEPT_WORDS = {"or", "to", "no", "if", "of"} | {
    word for word in GRAMMAR_WORDS | NEGATIONS | ALTERING_WORDS if len(word) > 2
}
"""Words that are never the letters of a product. The other short words are, as in `e^{it}` and `ax + by`."""
EMPTY_PHRASES, UNDEFINED_PHRASES, INFINITE_PHRASES, REAL_PHRASES = (
    frozenset(WORDS[name].split(" | ")) for name in ("empty", "undefined", "infinite", "reals")
)


def is_altering(word: str) -> bool:
    """Return whether a word next to a number changes its value.

    >>> is_altering("dozen"), is_altering("万元"), is_altering("千克")
    (True, True, False)
    """
    return word.lower() in ALTERING_WORDS or (word[0] in _ALTERING_SIGNS and word[1:2] not in ("克", "米"))


def number_from_words(text: str) -> Fraction | None:
    """Return 42 for `forty-two` and 3/4 for `three quarters`, up to the trillions; None for other words."""
    words = text.lower().replace("-", " ").split()
    if words[:1] in (["minus"], ["negative"]):
        number = number_from_words(" ".join(words[1:])) if words[1:2] not in (["minus"], ["negative"]) else None
        return -number if number is not None else None
    below = FRACTION_WORDS.get(words[-1].removesuffix("s").replace("halve", "half")) if words else None
    if below is None:
        return _read_whole(words)
    head = " ".join(words[:-1]).removesuffix("a").split(" and ")
    whole, top = (_read_whole(part.split()) for part in ("zero", *head)[-2:])
    if not head[-1].strip() and words[-1] in ("half", "quarter") and (len(head) > 1 or words == ["half"]):
        top = Fraction(1)  # half, two and a half
    if whole is None or not top or (top == 1) == words[-1].endswith("s") or len(head) > 2:
        return None  # a twenty-third is an ordinal
    return whole + top / below


def _read_whole(words: list[str]) -> Fraction | None:
    total, current, scale = 0, 0, 15
    for place, word in enumerate(words):
        number = NUMBER_WORDS.get(word)
        if number is not None:
            if current % (100 if number > 9 else 10) or current % 100 == 10 or (not number and len(words) > 1):
                return None  # two three
            current += number
        elif word == "hundred" and 0 < (current or not place) < 100:
            current = max(current, 1) * 100
        elif word in SCALES and SCALES[word] < scale and (current or not place):
            total, current, scale = total + max(current, 1) * 10 ** SCALES[word], 0, SCALES[word]
        elif word != "and" or not 0 < place < len(words) - 1:
            return None
    return Fraction(total + current) if words else None


def is_long_noun(word: str) -> bool:
    """Return whether a word can only be a counted thing, such as `apples`, also without \\text{}."""
    return len(word) > 4 and word.islower() and not is_altering(word)


def unit_name(word: str) -> str | None:
    """Return the canonical unit or noun of a word; None for any other word."""
    for form in (word, word.lower()):
        if form in UNIT_OF:
            return UNIT_OF[form]
    low = word.lower()
    if low in NOUNS:
        return "#" + (low[:-1] if low.endswith("s") and low[:-1] in NOUNS else low)
    return None
