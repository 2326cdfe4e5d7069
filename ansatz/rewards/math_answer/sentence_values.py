"""The value after the verb of a last sentence: a formula, an amount with its unit, a list, or a few words."""

from __future__ import annotations

import re

from ansatz.rewards.math_answer.dates import is_time
from ansatz.rewards.math_answer.sentence_words import NOUN_STOPS, REFUSING
from ansatz.rewards.math_answer.statements import AMOUNT_IN_TWO_UNITS, SPANS, is_currency, without_remark
from ansatz.rewards.math_answer.words import ALTERING_WORDS, NUMBER_WORDS, UNIT_RAISERS, unit_name, word_set

_MAX_WORDS = 4  # of a value in words
_MAX_ITEMS = 12  # of a value that is a list
_NUMBER = r"[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s?/\s?\d+)?(?::\d+)*(?:\s?\\?%|\s?[ap]\.?m\b\.?)?"
_MONEY = r"(?:\\?\$|[€£¥₹])\s?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
_POWER_OF_TEN = r"\s?(?:×|\\times|x|\*|\\cdot)\s?10\s?\^\s?\{?-?\d+\}?"
_AMOUNT = re.compile(
    rf"({_MONEY}|{_NUMBER}(?:{_POWER_OF_TEN})?)((?:\s?[°A-Za-z][A-Za-z°²³^\d/.·-]*(?:\s[A-Za-z]+){{0,5}})?)"
)
_PLAIN_FORMULA = re.compile(
    r"(?=.*[-+*/^=()√])(?:(?:sqrt|sin|cos|tan|cot|sec|csc|ln|log|exp|pi)(?![A-Za-z])|(?<![A-Za-z])[A-Za-zΘΩπθ](?![A-Za-z])"
    r"|(?<=\d)[a-z](?![A-Za-z])|[-\d+*/^=()√_.\s{}])+"
)
_SOLUTIONS = re.compile(
    rf"(?:\([a-z](?:,\s?[a-z])+\)\s?=\s?)?\({_NUMBER}(?:,\s?{_NUMBER})+\)"
    rf"|([a-z])\s?=\s?{_NUMBER}(?:(?:,\s|,?\s+(?:and|or)\s+)(?:\1\s?=\s?)?{_NUMBER})+"
)
_UNIT_WORD = re.compile(r"[A-Za-z°²³]+")
_TIMELESS = frozenset(["old", "long", "wide", "high", "tall", "deep", "away", "large", "apart"])
_NOT_VALUES = word_set("not_values")
_GERUND = re.compile(r"[a-z]{2,}(?:ing|ed)", re.IGNORECASE)
_CHECKED = word_set("checked")


def inside(span: re.Match[str]) -> str:
    return next(group for group in span.groups() if group is not None).strip()


def listed(text: str, spans: list[re.Match[str]]) -> str:
    link = " or " if re.search(r"\bor\b", SPANS.sub(" ", text)) else ", "
    return link.join(inside(span) for span in spans)


def value_of(rest: str, subject: str) -> str | None:
    """Return the value after a copula: a formula, formulas, an amount with its unit, a list, or a few words."""
    rest = rest.strip().rstrip(",")
    if _SOLUTIONS.fullmatch(rest):
        return re.sub(r",?\s+(?:and|or)\s+", ", ", rest)
    if " (" in rest or "," in rest:
        rest = without_remark(rest)
    if rest.startswith("$") and is_currency(rest):
        return amount_of(rest)
    spans = list(SPANS.finditer(rest))
    if spans:
        outside = SPANS.sub("\x00", rest).strip()
        if outside == "\x00":
            return inside(spans[0])
        if re.fullmatch(r"\x00(?:(?:,?\s+(?:and|or)\s+|,\s+)\x00)+", outside) and len(spans) <= _MAX_ITEMS:
            return listed(rest, spans)
        unit = re.fullmatch(r"\x00\s?([A-Za-z°²³ ]{1,40}|\\?%)", outside)
        if unit and (unit[1].strip("\\") == "%" or is_unit(unit[1].split())):
            return inside(spans[0]) + ("\\%" if "%" in unit[1] else f" \\text{{ {unit[1].strip()}}}")
        noun = re.fullmatch(r"\x00\s([a-z]{3,20})", outside)
        if noun and noun[1] not in NOUN_STOPS | ALTERING_WORDS | REFUSING:
            return inside(spans[0])
        return None
    if _PLAIN_FORMULA.fullmatch(rest) and not any(map(unit_name, _UNIT_WORD.findall(rest))):
        return rest
    if re.fullmatch(rf"{_NUMBER}(?:(?:,\s|,?\s+and\s+){_NUMBER})+", rest):
        return re.sub(r",?\s+and\s+", ", ", rest)
    if any(char.isdigit() for char in rest):
        equal = re.fullmatch(rf"({_NUMBER}) = ({_NUMBER})", rest)
        return rest if equal else amount_of(rest)
    return _words(rest, subject)


def amount_of(text: str) -> str | None:
    """Return an amount with its unit in the parser's spelling; a counted noun is left out. None for anything else."""
    text = text.strip()
    match = _AMOUNT.fullmatch(text)
    if re.fullmatch(AMOUNT_IN_TWO_UNITS, text):
        return text
    if is_time(text.strip()):
        return text.strip()
    if match is None:
        return None
    number, words = match[1], re.sub(r"\s+of\s+[a-z]+(?:\s[a-z]+)?$", "", match[2]).split()
    if number.startswith("$"):
        number = "\\" + number
    if words == ["per"] or (words and words[0] == "per"):
        return f"{number} \\text{{ {' '.join(words)}}}" if is_unit(words) else None
    if words == ["in"]:
        return f"{number} \\text{{ in}}"
    if words and words[-1] in _TIMELESS:
        words = words[:-1]
    number = number.replace("×", "\\times").replace("−", "-")
    if not words:
        return number
    if is_unit(words) or (len(words) == 1 and re.search(r"[/²³^°]", words[0])):
        return f"{number} {words[0]}" if re.search(r"[/²³^°]", words[0]) else f"{number} \\text{{ {' '.join(words)}}}"
    low = [word.lower() for word in words]
    if len(words) > 3 or not NOUN_STOPS.isdisjoint(low) or not ALTERING_WORDS.isdisjoint(low):
        return None
    nouns = match[2].startswith(" ") and all(word.isalpha() and len(word) > 2 for word in words)
    return number if nouns and not REFUSING & set(low) else None


def is_unit(words: list[str]) -> bool:
    """Return whether words are a unit of measurement, such as "meters per second" or "cubic inches"."""
    if not words:
        return False
    known = [word for word in words if word.lower() not in (*UNIT_RAISERS, "per", "squared", "cubed", "degrees")]
    measures = [unit_name(word) for word in known]
    return (
        bool(known or words == ["degrees"])
        and words[0].lower() not in ("squared", "cubed")
        and all(
            name is not None
            and not name.startswith("#")
            and name not in ("th", "%")
            and (len(word) > 1)
            and word != "in"
            for name, word in zip(measures, known, strict=True)
        )
    )


def _words(rest: str, subject: str) -> str | None:
    """Return a value of a few words, such as a name, a color or a weekday."""
    said = rest.split()
    low = [word.lower().strip(",") for word in said if word != "and"]
    if not 0 < len(said) <= _MAX_WORDS or not re.fullmatch(r"[A-Za-z][A-Za-z ,-]*", rest):
        return None
    if not set(low).isdisjoint(_NOT_VALUES | NOUN_STOPS | REFUSING | ALTERING_WORDS | NUMBER_WORDS.keys()):
        right = low == ["right"] and re.fullmatch(r"(?:the|this)\s+triangle(?:\s[A-Z]{3})?", subject, re.IGNORECASE)
        return rest if right else None
    if (
        subject[:1].isdigit()
        or subject.lower() in ("this", "that", "it", "which", "here", "there", "what")
        or "before" in subject
    ):
        return None
    if _GERUND.fullmatch(said[0]) or not _CHECKED.isdisjoint(subject.lower().split()):
        return None
    return rest
