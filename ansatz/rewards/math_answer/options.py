"""What a grading may be told. Each option is a point on which graders in the field differ by choice."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from ansatz.errors import ConfigError
from ansatz.registry import suggest


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Meaning of answers. The defaults are what mathematics says, and where it is silent, what a careful reader says.

    ordered: bare lists must be in the gold's order.
    reduced: a fraction of integers must be in lowest terms, with no division left to do.
    same_form: a product for a product, a sum for a sum: factored is not expanded.
    percent_as_number: `10\\%` also equals 10. (Where the gold carries the sign, a bare 10 is right anyway.)
    digits: least significant digits, correctly rounded, of a decimal for an exact value.
    rounded_decimals: of two decimals, the shorter may be the rounding of the longer, to at least `digits` digits.
    based_values: `204_5` also equals its value in base ten.
    decimal_comma: `3,14` is 3.14, and a point groups thousands.
    locale_thousands: digits may be grouped by blanks, apostrophes, or as 12,34,567.
    units: "same" refuses another unit, "convert" also accepts an equal amount in another, "ignore" reads none.
    assignments: `x=1, y=2` also equals `1, 2` and `(1, 2)`: names are dropped and the order kept.
    number_words: `forty-two` is 42.
    case_sensitive: choice letters and texts must agree in case.
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
    units: Literal["same", "convert", "ignore"] = "same"
    assignments: bool = False
    number_words: bool = False
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        if self.digits < 1:
            raise ConfigError(f"math_answer.digits = {self.digits}: must be 1 or more.")
        if self.units not in ("same", "convert", "ignore"):
            raise ConfigError(f"math_answer.units = {self.units!r}: must be same, convert or ignore.")


DEFAULT = Options()


def options_from(settings: dict[str, Any]) -> Options:
    """Options of keyword settings; an unknown name is a ConfigError that names a near one."""
    return _build(tuple(sorted(settings.items()))) if settings else DEFAULT


@lru_cache(maxsize=256)
def _build(items: tuple[tuple[str, Any], ...]) -> Options:
    known = {field.name for field in dataclasses.fields(Options)}
    for name, _ in items:
        if name not in known:
            raise ConfigError(f"math_answer has no option {name!r}.{suggest(name, known)}")
    return Options(**dict(items))
