"""Parses the unit after an amount, and compares and converts units."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from ansatz.rewards.math_answer import words as lexicon

if TYPE_CHECKING:
    from ansatz.rewards.math_answer.lexer import Token

Unit = tuple[tuple[str, int], ...]
"""(canonical name, power) pairs, sorted. Count nouns begin with '#'."""


_FILLERS = frozenset({"of", "a", "an", "the"})
_RAISED_BY = {"squared": 2, "cubed": 3}
_MAX_POWER = 6
_PREFIXED_OHM = {"k": "kohm", "M": "megaohm"}
_LETTER_RATIOS = {"s": "mLJCWVKAN", "h": "mL", "m": "NVAWK", "K": "JW", "C": "NJ", "g": "J"}
"""Denominators, and the numerators over which they are a unit also as plain letters: `5 m/s` is an amount, `2 h/g` a
formula."""


class _Reader:
    """Reads the factors of a unit. letters: how many of them are plain letters, which can also be variables."""

    def __init__(self, tokens: list[Token], at: int) -> None:
        self.tokens = tokens
        self.at = at
        self.powers: dict[str, int] = {}
        self.label = ""
        self.letters = 0
        self.words = 0

    def read(self, sign: int = 1, closing: str = "") -> None:
        """Read factors up to something else. sign: -1 in a denominator. closing: of the group that is read."""
        raised = 1
        while True:
            token, following = self.tokens[self.at], self.tokens[self.at + 1]
            low = token.text.lower() if token.kind == "word" else ""
            if low in lexicon.UNIT_RAISERS and (following.kind == "word" or _letter(following)):
                raised = lexicon.UNIT_RAISERS[low]
                self.at += 1
            elif low == "per" or (token.kind == "op" and token.text == "/" and self._starts(self.at + 1)):
                sign = -1
                self.at += 1
            elif (low in _FILLERS and following.kind == "word") or (token.text == "*" and self._starts(self.at + 1)):
                self.at += 1
            elif token.kind == "cmd" and token.text == "frac" and following.text == "{" and self._starts(self.at + 2):
                self.at += 1
                for part in (sign, -sign):
                    if self.tokens[self.at].text != "{":
                        return
                    self._group(part, "}")
            elif token.text == "(" and sign < 0 and self._starts(self.at + 1):
                self._group(sign, ")")
            elif name := self._factor():
                self._count(name, sign, raised)
                raised = 1
            else:
                return
            if closing and self.tokens[self.at].text == closing:
                return

    def _group(self, sign: int, closing: str) -> None:
        self.at += 1
        self.read(sign, closing)
        if self.tokens[self.at].text == closing:
            self.at += 1
        else:
            self.powers, self.label = {}, ""

    def _starts(self, at: int) -> bool:
        """Return whether a factor, a group or `square` starts at a place."""
        token = self.tokens[at]
        known = token.kind == "word" and (token.text.lower() in lexicon.UNIT_RAISERS or _name(token) is not None)
        return known or _letter(token) is not None or token.text in ("(", "mu", "Omega", "frac")

    def _factor(self) -> str | None:
        """Return the canonical name of the unit at the place, which moves behind it."""
        token, following = self.tokens[self.at], self.tokens[self.at + 1]
        if token.text in _PREFIXED_OHM and following.text == "Omega":
            self.at += 2
            self.words += 1
            return _PREFIXED_OHM[token.text]
        if (
            token.kind == "name"
            and token.text == "mu"
            and f"u{following.text}" in lexicon.UNIT_OF
            and len(following.text) == 1
        ):
            self.at += 2
            self.words += following.upright
            self.letters += not following.upright
            return lexicon.UNIT_OF[f"u{following.text}"]
        letter = "ohm" if token.kind == "name" and token.text == "Omega" else _letter(token)
        name = letter or (_name(token) if token.kind == "word" else None)
        if name:
            self.at += 1
            self.letters += letter is not None
            self.words += letter is None
        return name

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

    def unit(self) -> Unit:
        """Return what was read. `degrees Celsius` is one unit."""
        if {"C", "F", "K"} & self.powers.keys():
            self.powers.pop("deg", None)
        if not self.powers and self.label:
            return ((self.label, 1),)
        return tuple(sorted((name, power) for name, power in self.powers.items() if power))


def read_unit(tokens: list[Token], at: int) -> tuple[Unit, int]:
    """Return the unit at `at` and the place after it; empty if there is none. Unknown words count as a noun.

    Plain letters without \\text{} belong to a unit if a word does, as in `kg m/s`.
    """
    if not _can_start(tokens[at]):
        return (), at
    reader = _Reader(tokens, at)
    reader.read()
    unit = reader.unit()
    return (unit, reader.at) if unit and reader.words else ((), at)


def letter_unit(tokens: list[Token], at: int) -> tuple[Unit, int]:
    """Return the unit at `at` if it is written in plain letters and ends there, as in `5 m/s`; empty for other
    letters.
    """
    if not _can_start(tokens[at]):
        return (), at
    reader = _Reader(tokens, at)
    reader.read()
    unit, after = reader.unit(), tokens[reader.at]
    ends = after.kind == "end" or (after.kind == "op" and after.text in (",", ";", "and", "or", "~"))
    if not unit or not ends or (not reader.words and not _is_ratio_of_letters(unit)):
        return (), at
    return unit, reader.at


def _can_start(token: Token) -> bool:
    """Return a fast check that rules out most tokens after a value: a unit can start with any other."""
    if token.kind == "name":
        return _letter(token) is not None or token.text in ("mu", "Omega") or token.text in _PREFIXED_OHM
    return token.kind == "word" or token.text in ("/", "*", "frac")


def _is_ratio_of_letters(unit: Unit) -> bool:
    above = [name for name, power in unit if power > 0]
    below = [name for name, power in unit if power < 0]
    return bool(above and below) and all(name in _LETTER_RATIOS.get(below[0], "") for name in above)


def _letter(token: Token) -> str | None:
    """Return the unit of a letter outside \\text{}, which can also be a variable."""
    plain = token.kind == "name" and len(token.text) == 1 and not token.upright
    return lexicon.unit_name(token.text) if plain and lexicon.is_single_letter_unit(token.text) else None


def _name(token: Token) -> str | None:
    """Return the canonical name of a unit word. Single letters and unknown words must be upright, as in \\text{m}."""
    if len(token.text) == 1:
        return lexicon.unit_name(token.text) if token.upright and lexicon.is_single_letter_unit(token.text) else None
    known = lexicon.unit_name(token.text)
    low = token.text.lower()
    if (
        known
        or not token.upright
        or low in lexicon.CONNECTIVES
        or low in lexicon.SCALES
        or low in lexicon.ALTERING_WORDS
        or low in lexicon.NUMBER_WORDS
    ):
        return known
    return "#" + token.text.lower()


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
    if not answer or not gold or gold == answer:
        return True
    if _counts(gold) and _counts(answer):
        return {"unit"} & {name for name, _ in (*gold, *answer)} != set()
    return False


def _counts(unit: Unit) -> bool:
    return all(name.startswith("#") or name == "unit" for name, _ in unit)


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
