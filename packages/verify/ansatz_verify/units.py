"""Parses the unit after an amount, and compares and converts units."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from ansatz_verify import values as v
from ansatz_verify import words as lexicon
from ansatz_verify.values import Expr, Value

if TYPE_CHECKING:
    from ansatz_verify.lexer import Token

Unit = tuple[tuple[str, int], ...]
"""(canonical name, power) pairs, sorted. Count nouns begin with '#'."""


_FILLERS = frozenset({"of", "a", "an", "the"})
_RAISED_BY = {"squared": 2, "cubed": 3}
_MAX_POWER = 6
_LETTER_RATIOS = {"s": "mLJCWVKAN", "h": "mL", "m": "NVAWK", "K": "JW", "C": "NJ", "g": "J"}
"""Denominators, each with the numerators that form a unit with it even as plain letters: `5 m/s` is an amount, `2 h/g`
a formula."""


class _Reader:
    """Reads the factors of a unit from a place on. words: how many of them are words, and not plain letters, which can
    also be variables."""

    def __init__(self, tokens: list[Token], at: int) -> None:
        self.tokens = tokens
        self.at = at
        self.powers: dict[str, int] = {}
        self.label = ""
        self.words = 0

    def read(self) -> Unit:
        """Read factors up to something else, and return the unit. `degrees Celsius` is one unit."""
        sign = raised = 1
        while True:
            token, following = self.tokens[self.at], self.tokens[self.at + 1]
            low = token.text.lower() if token.kind == "word" else ""
            if low in lexicon.UNIT_RAISERS and (following.kind == "word" or _name(following)):
                raised = lexicon.UNIT_RAISERS[low]
                self.at += 1
            elif low == "per" or (token.kind == "op" and token.text == "/" and self._starts(self.at + 1)):
                sign = -1
                self.at += 1
            elif (low in _FILLERS and following.kind == "word") or (token.text == "*" and self._starts(self.at + 1)):
                self.at += 1
            elif name := _name(token):
                self.at += 1
                self.words += token.kind == "word"
                self._count(name, sign, raised)
                raised = 1
            else:
                break
        if {"C", "F", "K"} & self.powers.keys():
            self.powers.pop("deg", None)
        powers = self.powers or ({self.label: 1} if self.label else {})
        return tuple(sorted((name, power) for name, power in powers.items() if power))

    def _starts(self, at: int) -> bool:
        """Return whether a factor or `square` starts at a place."""
        token = self.tokens[at]
        return _name(token) is not None or (token.kind == "word" and token.text.lower() in lexicon.UNIT_RAISERS)

    def _count(self, name: str, sign: int, raised: int) -> None:
        power = raised
        written = _power(self.tokens, self.at + 1) if self.tokens[self.at].text == "^" else None
        if written:
            power, self.at = written
        elif self.tokens[self.at].text.lower() in _RAISED_BY:
            power = _RAISED_BY[self.tokens[self.at].text.lower()]
            self.at += 1
        if name.startswith("#"):
            self.label = name
        elif name in lexicon.COMPOUND_UNITS:
            self.powers |= dict(lexicon.COMPOUND_UNITS[name])
        else:
            self.powers[name] = self.powers.get(name, 0) + (sign * power if power > 0 else power)


def read_unit(tokens: list[Token], at: int, *, letters: bool = False) -> tuple[Unit, int]:
    """Return the unit at `at` and the place after it; empty if there is none. Unknown words count as a noun.

    Plain letters without \\text{} belong to a unit if a word does, as in `kg m/s`. letters: also if they are such a
    ratio, as in `5 m/s`; the unit must be the end of the answer or of an item.
    """
    token = tokens[at]
    if token.kind != "word" and token.text not in ("/", "*") and _name(token) is None:
        return (), at
    reader = _Reader(tokens, at)
    unit, after = reader.read(), tokens[reader.at]
    complete = reader.words > 0
    if letters:
        ends = after.kind == "end" or (after.kind == "op" and after.text in (",", ";", "and", "or", "~"))
        complete = ends and (complete or _is_ratio_of_letters(unit))
    return (unit, reader.at) if unit and complete else ((), at)


def _is_ratio_of_letters(unit: Unit) -> bool:
    above = [name for name, power in unit if power > 0]
    below = [name for name, power in unit if power < 0]
    return bool(above and below) and all(name in _LETTER_RATIOS.get(below[0], "") for name in above)


def _name(token: Token) -> str | None:
    """Return the canonical name of a unit: of a word, or of a letter that can also be a variable.

    A single letter in a word and an unknown word must be upright, as in \\text{m}.
    """
    text, is_word = token.text, token.kind == "word"
    if len(text) == 1 and text.isascii():
        allowed = token.kind in ("name", "word") and is_word == token.upright and text in lexicon.SINGLE_LETTER_UNITS
        return lexicon.unit_name(text) if allowed else None
    known, low = lexicon.unit_name(text) if is_word else None, text.lower()
    if known or not is_word or not (token.upright or lexicon.is_long_noun(text)):
        return known
    is_noun = not (low in lexicon.CONNECTIVES or low in lexicon.SCALES or low in lexicon.NUMBER_WORDS)
    return f"#{low}" if is_noun and not lexicon.is_altering(low) else None


def _power(tokens: list[Token], at: int) -> tuple[int, int] | None:
    """Return the small integer power at `at` and the place after it."""
    braced = tokens[at].text == "{"
    at += braced
    negative = tokens[at].text == "-"
    at += negative
    token = tokens[at]
    if token.kind != "num" or not token.text.isdigit() or not 0 < int(token.text[:3]) <= _MAX_POWER:
        return None
    if braced and tokens[at + 1].text != "}":
        return None
    return (-1 if negative else 1) * int(token.text), at + 1 + braced


def compatible(gold: Unit, answer: Unit) -> bool:
    """Return whether an answer can carry this unit.

    A unit that is missing on either side is fine, a different one is not.
    """
    names = {name for name, _ in (*gold, *answer)}
    counted = "unit" in names and all(name.startswith("#") or name == "unit" for name in names)
    return not answer or not gold or gold == answer or counted


def conversion(unit: Unit) -> tuple[Fraction, Unit]:
    """Return the factor to base units, and the base units."""
    factor = Fraction(1)
    powers: dict[str, int] = {}
    for name, power in unit:
        bases, size = lexicon.TO_BASE.get(name, (((name, 1),), Fraction(1)))
        factor *= size**power
        for base, raised in bases:
            powers[base] = powers.get(base, 0) + raised * power
    return factor, tuple(sorted((name, power) for name, power in powers.items() if power))


def parted(value: Value) -> tuple[Value, Unit]:
    return (value.amount, value.unit) if isinstance(value, v.Quantity) else (value, ())


def with_letter_unit(value: Value, unit: Unit) -> tuple[Value, Unit]:
    """Read `5 m` as 5 metres, and `3 N m` as 3 newton metres, if the other side has such a unit. Else it stays."""
    if not isinstance(value, v.Product):
        return value, ()
    letters: dict[str, int] = {}
    rest: list[Expr] = []
    for factor in value.factors:
        if letter := _letter_power(factor):
            letters[letter[0]] = letters.get(letter[0], 0) + letter[1]
        else:
            rest.append(factor)
    written = tuple(sorted(letters.items()))
    same = rest and letters and conversion(written)[1] == conversion(unit)[1]
    return (v.multiply(*rest), written) if same else (value, ())


def _letter_power(factor: Expr) -> tuple[str, int] | None:
    """Return the unit of a factor that is a letter, and its power."""
    base, power = (factor.base, factor.exponent) if isinstance(factor, v.Power) else (factor, v.ONE)
    if not isinstance(base, v.Name) or not isinstance(power, v.Num) or power.value.denominator != 1:
        return None
    unit = lexicon.unit_name(base.name) if base.name in lexicon.SINGLE_LETTER_UNITS else None
    return (unit, int(power.value)) if unit else None
