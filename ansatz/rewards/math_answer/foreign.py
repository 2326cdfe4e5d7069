"""Answers announced in other languages: "La réponse est 5", "答案是5", "따라서 넓이는 5이다."

After a phrase that is not English only a bare value may follow, because a denial, a doubt or a bound can take any form:
a number with its unit, a formula, a letter or a name. Anything else is not an answer, and so is a value with more
numbers, a denial or a retraction behind it.
"""

from __future__ import annotations

import re

from ansatz.rewards.math_answer import languages
from ansatz.rewards.math_answer.statements import BOLD, SPANS, is_bare

_PHRASE = re.compile(languages.ANSWER, re.IGNORECASE)
_RESULT = re.compile(languages.RESULT, re.IGNORECASE)
_REFUSED = re.compile(f"{languages.REFUSED}|{languages.CHANGED}", re.IGNORECASE)
_BEHIND = re.compile(f"\\d|[$\\\\]|{languages.REFUSED}|{languages.RETRACTED}|{languages.WRONG}", re.IGNORECASE)
_LEAD = re.compile(r"[\s:：*=`]{0,12}")
_END = re.compile(r"(?<!\\)[.!](?=[\s*\"')\]]|$)|[。！।\n]|<\||```")
_AFTER = re.compile(rf"\s*(?:{languages.AFTER})$")
_UNIT = re.compile(
    r"(?<=[\d$)}])\s*(" + "|".join(sorted(map(re.escape, languages.UNIT_OF_WORD), key=len, reverse=True)) + ")$",
    re.IGNORECASE,
)
_NUMBER_OR_FORMULA = re.compile(r"[\d\\$^_=+]")
_ONE_LETTER_JOIN = re.compile(r"[\d$)}]\s+[eyouóиà]\s+[\d$({\\]")
_CONCLUSION = re.compile(languages.CONCLUSION, re.IGNORECASE)
_INNER_CONCLUSION = re.compile(
    r"\s(?:est\s+donc|vaut\s+donc|ist\s+(?:also|daher|somit)|beträgt\s+(?:also|daher|somit)|es\s+(?:entonces|por\s+(?:lo\s+)?tanto)"
    r"|è\s+(?:quindi|dunque)|é\s+(?:portanto|então))\s",
    re.IGNORECASE,
)
_COPULA = re.compile(languages.COPULA, re.IGNORECASE)
_LABEL_BEFORE = re.compile(
    r"(?:cas|étape|partie|question|fall|schritt|teil|aufgabe|gleichung|caso|paso|passo|parte|passaggio|шаг|случай|第)\s*$",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(r"[A-Za-z](?:_\w)?\s?=\s?[^=]{1,60}")
MAX_CONCLUSION = 300  # characters of a concluding sentence
_MAX_WORDS = 4  # of an answer in words


def phrased(text: str) -> tuple[int, str | None] | None:
    """Where the last answer phrase ends, and the bare value after it or None; None if there is no phrase."""
    if text.isascii() and not any(map(text.lower().__contains__, languages.ANSWER_WORDS)):
        return None
    places = [match.end() for match in _PHRASE.finditer(text)]
    if places:
        return places[-1], value_after(text, places[-1])
    places = [match.end() for match in _RESULT.finditer(text)]
    value = value_after(text, places[-1]) if places else None
    return (places[-1], value) if value is not None else None


def value_after(text: str, start: int) -> str | None:
    """The bare value at a place, if nothing behind it takes it back."""
    match = _LEAD.match(text, start)
    text = text[match.end() if match else start :]
    span = SPANS.match(text)
    end = _END.search(text, span.end() if span else 0)
    value = bare_value(text[: end.start()] if end else text)
    if value is None or (end and _BEHIND.search(text, end.end())):
        return None
    return value


def bare_value(text: str) -> str | None:
    """The value that a text consists of, with its unit in the parser's spelling; None if it says more."""
    text = _AFTER.sub("", BOLD.sub(r"\1", text.strip().strip("*` "))).strip().strip("*` ")
    unit = _UNIT.search(text)
    written = languages.UNIT_OF_WORD[unit[1].lower()] if unit else ""
    text = text[: unit.start()] if unit else text
    if not text or len(text) > MAX_CONCLUSION or _REFUSED.search(text):
        return None
    if not _NUMBER_OR_FORMULA.search(text):
        return text if len(text.split()) <= _MAX_WORDS else None
    outside = SPANS.sub("", text)
    if any(not char.isascii() and char.isalpha() for char in outside) or _ONE_LETTER_JOIN.search(text):
        return None
    if not is_bare(text) or len(SPANS.findall(text)) > 1:
        return None
    return f"{text} \\text{{{written}}}" if written else text


def concluded(sentence: str) -> str | None:
    """The value of a concluding sentence in another language, or None."""
    opening = _CONCLUSION.match(sentence) or _INNER_CONCLUSION.search(sentence[:MAX_CONCLUSION])
    if opening is None or len(sentence) > MAX_CONCLUSION:
        return None
    rest = sentence[opening.end() if opening.start() == 0 else 0 :].strip().rstrip(".。।!！ ")
    if _REFUSED.search(rest):
        return None
    stated = _AFTER.sub("", rest)
    if _ASSIGNED.fullmatch(stated.strip("$ ")):
        return bare_value(stated)
    for copula in reversed(list(_COPULA.finditer(rest))):
        value = _LEAD.sub("", rest[copula.end() :], count=1)
        subject = rest[: copula.start()]
        if any(char.isdigit() for char in SPANS.sub("", subject)):
            continue
        found = bare_value(value)
        if found is not None and any(char.isdigit() or char in "\\$" for char in found):
            return found
    return _verb_second(rest) or _verb_last(rest)


def _verb_second(rest: str) -> str | None:
    """The value of "Daher ist die Fläche 5": the verb comes before the subject."""
    match = re.match(
        r"(?:ist|sind|beträgt|betragen|ergibt|lautet)\s+([^\d$\\]{1,80}?)\s+(?:gleich\s+)?(\**(?:[$\\]|[-+]?\d).*)",
        rest,
    )
    return bare_value(match[2]) if match and not _LABEL_BEFORE.search(match[1]) else None


def _verb_last(rest: str) -> str | None:
    """The value of a Hindi sentence, whose verb is at its end."""
    match = re.fullmatch(r"([^\d$\\]{1,80}?)\s+(\**(?:[$\\]|[-+]?\d).*?)\s*(?:है|हैं|होगा|होगी)", rest)
    return bare_value(match[2]) if match else None
