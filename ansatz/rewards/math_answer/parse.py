"""Layer 2: from an answer string to a value."""

from __future__ import annotations

import re
from fractions import Fraction

_PLAIN = re.compile(r"[-+]?\d{1,1000}(?:\.\d{0,1000})?")
_FRACTION = re.compile(r"(-?)\\?[dt]?frac\{(-?\d{1,1000})\}\{(\d{1,1000})\}|(-?)(\d{1,1000})/(\d{1,1000})")


def is_choice(text: str) -> bool:
    return re.fullmatch(r"\(?[A-J]\)?", text.strip()) is not None


def parse_number(text: str) -> Fraction | None:
    text = text.strip().strip("$").replace("{,}", "").replace("\\!", "")
    if re.fullmatch(r"\d{1,3}(,\d{3})+", text):
        text = text.replace(",", "")
    if _PLAIN.fullmatch(text):
        return Fraction(text.rstrip("."))
    match = _FRACTION.fullmatch(text)
    if match is None:
        return None
    top, bottom = int(match[2] or match[5]), int(match[3] or match[6])
    sign = -1 if match[1] or match[4] else 1
    return Fraction(sign * top, bottom) if bottom else None
