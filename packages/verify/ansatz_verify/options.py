"""The options of a comparison. Graders in the field differ on each of these points by choice."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How answers are understood. The defaults follow mathematics, and a careful reader where mathematics is silent.

    ordered: bare lists must be in the order of the gold.
    reduced: a fraction of integers must be in lowest terms.
    same_form: a factored answer does not equal an expanded one.
    percent_as_number: `10\\%` also equals 10. If the gold has the percent sign, a bare 10 is always correct. By
        default, in all modes of `verify` but strict.
    digits: the fewest significant digits of a decimal that stands for an exact rational value by rounding.
    rounded_decimals: a decimal also equals an irrational gold, or a longer decimal, as its rounding to `digits` digits.
    based_values: `204_5` also equals its value in base ten.
    decimal_comma: `3,14` is 3.14, and a point groups thousands.
    locale_thousands: apostrophes can group digits, and so can commas as in 12,34,567. Spaces always can.
    units: "convert" accepts an equal amount in another unit, "same" refuses any other unit, "ignore" ignores units.
    worked_out: `\\int_0^1 x dx`, `\\gcd(4, 6)` and `17 \\cdot 23` only equal a gold that has the operator too. By
        default, in the mode strict of `verify`.
    number_words: `\\text{forty-two}` is 42 too. Without the command, `forty-two` always is.
    case_sensitive: texts must agree in case. Choice letters always must.
    """

    ordered: bool = False
    reduced: bool = False
    same_form: bool = False
    percent_as_number: bool | None = None
    digits: int = 6
    rounded_decimals: bool = False
    based_values: bool = False
    decimal_comma: bool = False
    locale_thousands: bool = False
    units: Literal["same", "convert", "ignore"] = "convert"
    worked_out: bool | None = None
    number_words: bool = False
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        for name in _SWITCHES:
            value = getattr(self, name)
            if not isinstance(value, bool) and (value is not None or name not in _BY_MODE):
                raise ValueError(f"{name} = {value!r:.60}: it must be true or false.")
        digits: Any = self.digits
        if isinstance(digits, bool) or not isinstance(digits, int) or digits < 1:
            raise ValueError(f"digits = {self.digits!r:.60}: it must be a whole number of 1 or more.")
        if self.units not in ("same", "convert", "ignore"):
            raise ValueError(f"units = {self.units!r:.60}: it must be same, convert or ignore.")


_BY_MODE = ("percent_as_number", "worked_out")
"""Switches that depend on the mode of `verify` where they are None."""
_SWITCHES = tuple(field.name for field in dataclasses.fields(Options) if field.name not in ("digits", "units"))
DEFAULT = Options()


def options_from(settings: dict[str, Any]) -> Options:
    """Build options from keyword settings. An unknown name raises a ValueError that suggests a similar one, and so does
    a value of another type."""
    for name, value in settings.items():
        if isinstance(value, list | dict | set):  # which the cache could not take
            raise ValueError(f"{name} = {value!r:.60}: it must be a single value.")
    return _build(tuple(sorted(settings.items()))) if settings else DEFAULT


@lru_cache(maxsize=256)
def _build(items: tuple[tuple[str, Any], ...]) -> Options:
    known = {field.name for field in dataclasses.fields(Options)}
    for name, _ in items:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            advice = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(sorted(known))}."
            raise ValueError(f"there is no option {name!r}. {advice}")
    return Options(**dict(items))
