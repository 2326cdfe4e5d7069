"""Dates and times in words, which are equal in any usual order: "May 5", "5th of May", "9:10 p.m. on 3 May"."""

from __future__ import annotations

import re

MAX_LENGTH = 60  # characters of a date
_MONTH = (
    r"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?"
)
_MONTHS = "janfebmaraprmayjunjulaugsepoctnovdec"
_ISO = re.compile(r"((?:1[5-9]|20)\d\d)-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_DAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_CLOCK = r"\d{1,2}(?:[:.]\d{2})?\s?(?:[ap]\.?\s?m\.?)|\d{1,2}:\d{2}"
_ORDINAL = r"(?:st|nd|rd|th)?"
_DATE = re.compile(
    rf"(?:the\s+)?(?:(?:at\s+)?(?P<before>{_CLOCK})\s?,?\s*(?:on\s+)?(?:the\s+)?)?(?:(?P<weekday>{_DAY})\s?,?\s*(?:the\s+)?)?"
    rf"(?:(?P<month>{_MONTH})\.?\s+(?:the\s+)?(?P<day>\d{{1,2}}){_ORDINAL}"
    rf"|(?P<first>\d{{1,2}}){_ORDINAL}\s+(?:of\s+)?(?P<second>{_MONTH}))"
    rf"(?:\s?,?\s*(?P<year>\d{{4}}))?(?:\s?,?\s*(?:at\s+)?(?P<after>{_CLOCK}))?",
    re.IGNORECASE,
)


def canonical_date(text: str) -> str | None:
    """Return a date in one spelling, such as "5 may 2021 9:10pm"; None if the text is not a date."""
    if iso := _ISO.fullmatch(text):
        return f"{int(iso[3])} {_MONTHS[3 * int(iso[2]) - 3 :][:3]} {iso[1]}"
    if " " not in text or "\\" in text or len(text) > MAX_LENGTH:
        return None
    match = _DATE.fullmatch(text.strip())
    if match is None:
        return None
    month = (match["month"] or match["second"]).lower()[:3]
    clock = re.sub(r"[\s.]", "", match["before"] or match["after"] or "").lower()
    parts = (match["weekday"], str(int(match["day"] or match["first"])), month, match["year"], clock)
    return " ".join(part.lower() for part in parts if part)


def is_time(text: str) -> bool:
    """Return whether a text is a time of day with a.m. or p.m., or with minutes."""
    return re.fullmatch(_CLOCK, text, re.IGNORECASE) is not None
