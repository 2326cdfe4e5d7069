"""Parses the unit after an amount, and compares and converts units."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from ansatz.rewards.math_answer.words import (
    ALTERING_WORDS,
    COMPOUND_UNITS,
    CONNECTIVES,
    NUMBER_WORDS,
    SCALES,
    TO_BASE,
    UNIT_RAISERS,
    is_single_letter_unit,
    unit_name,
)

if TYPE_CHECKING:
    from ansatz.rewards.math_answer.lexer import Token

Unit = tuple[tuple[str, int], ...]
"""(canonical name, power) pairs, sorted. Count nouns begin with '#'."""


_FILLERS = frozenset({"of", "a", "an", "the"})


def read_unit(tokens: list[Token], at: int) -> tuple[Unit, int]:
    """The unit at `at` and the place after it; empty if there is none. Unknown words count as a noun."""
    fraction = _fraction(tokens, at)
    if fraction is not None:
        return fraction
    powers: dict[str, int] = {}
    sign, raised, label = 1, 1, ""
    start = at
    while True:
        token = tokens[at]
        word = token.text
        if token.kind == "word" and word.lower() in UNIT_RAISERS and tokens[at + 1].kind == "word":
            raised = UNIT_RAISERS[word.lower()]
        elif token.kind == "word" and word.lower() == "per":
            sign = -1
        elif token.kind == "word" and word.lower() in _FILLERS and tokens[at + 1].kind == "word":
            pass
        elif token.kind == "word" and (name := _name(token)):
            power = raised
            if tokens[at + 1].text == "^" and (written := _power(tokens, at + 2)):
                power, at = written
            if name.startswith("#"):
                label = name
            elif name in COMPOUND_UNITS:
                powers |= dict(COMPOUND_UNITS[name])
            else:
                powers[name] = powers.get(name, 0) + sign * power
            raised = 1
        elif token.kind == "op" and word in ("/", "*") and powers and tokens[at + 1].kind == "word":
            sign = -1 if word == "/" else sign
        else:
            break
        at += 1
    if not powers and label:
        powers[label] = 1
    if not powers:
        return (), start
    return tuple(sorted((name, power) for name, power in powers.items() if power)), at


def _name(token: Token) -> str | None:
    """The canonical name of a unit word. Single letters and unknown words must be upright, as in \\text{m}."""
    if len(token.text) == 1:
        return unit_name(token.text) if token.upright and is_single_letter_unit(token.text) else None
    known = unit_name(token.text)
    low = token.text.lower()
    if (
        known
        or not token.upright
        or low in CONNECTIVES
        or low in SCALES
        or low in ALTERING_WORDS
        or low in NUMBER_WORDS
    ):
        return known
    return "#" + token.text.lower()


def _fraction(tokens: list[Token], at: int) -> tuple[Unit, int] | None:
    """`\\frac{\\text{m}}{\\text{s}}` as a unit, and the place after it."""
    if tokens[at].text != "frac":
        return None
    ahead = tokens[at : at + 7]
    if len(ahead) < 7 or [token.text for token in ahead[:2]] != ["frac", "{"] or ahead[2].kind != "word":
        return None
    if [token.text for token in ahead[3:5]] != ["}", "{"] or ahead[6].text != "}":
        return None
    top, bottom = _name(ahead[2]), _name(ahead[5])
    return (tuple(sorted(((top, 1), (bottom, -1)))), at + 7) if top and bottom else None


def _power(tokens: list[Token], at: int) -> tuple[int, int] | None:
    """The small integer power at `at` and the index of its last token."""
    if tokens[at].kind == "num" and tokens[at].text in ("2", "3"):
        return int(tokens[at].text), at
    if tokens[at].text == "{" and tokens[at + 1].text in ("2", "3") and tokens[at + 2].text == "}":
        return int(tokens[at + 1].text), at + 2
    return None


def compatible(gold: Unit, answer: Unit) -> bool:
    """Whether an answer can carry this unit. A unit that is missing on either side is fine, a different one is not."""
    if not answer or not gold or gold == answer:
        return True
    if _counts(gold) and _counts(answer):
        return {"unit"} & {name for name, _ in (*gold, *answer)} != set()
    return False


def _counts(unit: Unit) -> bool:
    return all(name.startswith("#") or name == "unit" for name, _ in unit)


def conversion(unit: Unit) -> tuple[Fraction, Unit]:
    """The factor to base units, and the base units."""
    factor = Fraction(1)
    powers: dict[str, int] = {}
    for name, power in unit:
        base, top, bottom = TO_BASE.get(name, (name, 1, 1))
        factor *= Fraction(top, bottom) ** power
        powers[base] = powers.get(base, 0) + power
    return factor, tuple(sorted((name, power) for name, power in powers.items() if power))
