"""The options of a comparison. Each is a point on which graders in the field differ by choice."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from ansatz.errors import ConfigError
from ansatz.registry import suggest


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How answers are understood. The defaults follow mathematics, and a careful reader where mathematics is silent.

    ordered: bare lists must be in the order of the gold.
    reduced: a fraction of integers must be in lowest terms.
    same_form: a factored answer does not equal an expanded one.
    percent_as_number: `10\\%` also equals 10. If the gold has the percent sign, a bare 10 is always correct.
    digits: the fewest significant digits of a decimal that stands for an exact rational value by rounding.
    rounded_decimals: a decimal also equals an irrational gold, or a longer decimal, as its rounding to `digits` digits.
    based_values: `204_5` also equals its value in base ten.
    decimal_comma: `3,14` is 3.14, and a point groups thousands.
    locale_thousands: apostrophes can group digits, and so can commas as in 12,34,567. Spaces always can.
    units: "convert" accepts an equal amount in another unit, "same" refuses any other unit, "ignore" ignores units.
    assignments: `x=1, y=2` also equals `1, 2`, in this order. It always equals the point `(1, 2)`.
    number_words: `\\text{forty-two}` is 42 too. Without the command, `forty-two` always is.
    case_sensitive: texts must agree in case. Choice letters always must.
    """

    ordered: bool = False
    reduced: bool = False
    same_form: bool = False
    percent_as_number: bool = False
    digits: int = 6
    rounded_decimals: bool = False
    based_values: bool = False
    decimal_comma: bool = False
    locale_thousands: bool = False
    units: Literal["same", "convert", "ignore"] = "convert"
    assignments: bool = False
    number_words: bool = False
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        if self.digits < 1:
            raise ConfigError(f"math_answer.digits = {self.digits}: it must be 1 or more.")
        if self.units not in ("same", "convert", "ignore"):
            raise ConfigError(f"math_answer.units = {self.units!r}: it must be same, convert or ignore.")


DEFAULT = Options()


def options_from(settings: dict[str, Any]) -> Options:
    """Build options from keyword settings. An unknown name raises a ConfigError that suggests a similar one."""
    return _build(tuple(sorted(settings.items()))) if settings else DEFAULT


@lru_cache(maxsize=256)
def _build(items: tuple[tuple[str, Any], ...]) -> Options:
    known = {field.name for field in dataclasses.fields(Options)}
    for name, _ in items:
        if name not in known:
            raise ConfigError(f"math_answer has no option {name!r}.{suggest(name, known)}")
    return Options(**dict(items))
