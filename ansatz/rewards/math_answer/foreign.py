"""Answers announced in other languages: "La réponse est 5", "答案是5", "따라서 넓이는 5이다."

After a phrase that is not English only a bare value may follow, because a denial, a doubt or a bound can take any form:
a number with its unit, a formula, a letter or a name. Anything else is not an answer, and so is a value with more
numbers, a denial or a retraction behind it.
"""

from __future__ import annotations

import re

from ansatz.rewards.math_answer import languages
from ansatz.rewards.math_answer.phrases import phrases_of
from ansatz.rewards.math_answer.statements import BOLD, SPANS, is_bare

_PHRASE = phrases_of("foreign")

_ANSWER = re.compile(languages.ANSWER, re.IGNORECASE)
_RESULT = re.compile(languages.RESULT, re.IGNORECASE)
_REFUSED = re.compile(f"{languages.REFUSED}|{languages.CHANGED}", re.IGNORECASE)
_BEHIND = re.compile(f"\\d|[$\\\\]|{languages.REFUSED}|{languages.RETRACTED}|{languages.WRONG}", re.IGNORECASE)
_END = re.compile(r"(?<!\\)[.!](?=[\s*\"')\]]|$)|[。！।\n]|<\||```")
_AFTER = re.compile(rf"\s*(?:{languages.AFTER})$")
_CONCLUSION = re.compile(languages.CONCLUSION, re.IGNORECASE)
_COPULA = re.compile(languages.COPULA, re.IGNORECASE)
MAX_CONCLUSION = 300  # characters of a concluding sentence
_MAX_WORDS = 4  # of an answer in words


def phrased(text: str) -> tuple[int, str | None] | None:
    """Return where the last answer phrase ends, and the bare value after it or None; None if there is no phrase."""
    if text.isascii() and not any(map(text.lower().__contains__, languages.ANSWER_WORDS)):
        return None
    for pattern in (_ANSWER, _RESULT):
        phrase = None
        for match in pattern.finditer(text):
            phrase = match
        if phrase is None:
            continue
        value = _value_of(text, phrase)
        if value is not None or pattern is _ANSWER:
            return phrase.end(), value
    return None


def _value_of(text: str, phrase: re.Match[str]) -> str | None:
    """Return the value after an answer phrase that does not speak of another answer or of one of several."""
    opening = _PHRASE["opening"].search(text, max(0, phrase.start() - _NEAR), phrase.start())
    subject = opening[0].strip() if opening else ""
    if subject and (_OTHER_QUANTITY.search(subject) or _PHRASE["indefinite"].match(subject + " ")):
        return None
    start = phrase.start() + len(phrase[0]) - len(phrase[0].lstrip())
    before = _PHRASE["clause_break"].split(text[max(0, start - _NEAR) : start + 1])[-1]
    if _REFUSED.search(before[:-1]):
        return None
    value = _localized(value_after(text, phrase.end()), phrase)
    if value is None and phrase[0].endswith((":", "：", "は", "은", "는", "是")):
        rest = text[phrase.end() :].strip()
        end = _END.search(rest)
        if end is None or not _BEHIND.search(rest, end.end()):
            sentence = rest[: end.start()] if end else rest
            value = stated(sentence, answered=True)
    return value


def _localized(value: str | None, phrase: re.Match[str]) -> str | None:
    """Return the value after a phrase, with a decimal point if the language of the phrase writes a comma."""
    european = not _UNSPACED.search(phrase[0]) and not phrase[0].isascii()
    european = european or not phrase[0].strip("#* \n").lower().startswith(("the", "final", "result", "solution"))
    return with_point(value) if value is not None and european and "," in value else value


def value_after(text: str, start: int) -> str | None:
    """Return the bare value at a place, if nothing behind it takes it back."""
    match = _PHRASE["lead"].match(text, start)
    text = text[match.end() if match else start :]
    span = SPANS.match(text)
    end = _END.search(text, span.end() if span else 0)
    value = bare_value(text[: end.start()] if end else text)
    if value is None or (end and _BEHIND.search(text, end.end())):
        return None
    return value


def bare_value(text: str) -> str | None:
    """Return the value that a text consists of, with its unit in the parser's spelling; None if it says more."""
    text = _AFTER.sub("", BOLD.sub(r"\1", text.strip().strip("*` "))).strip().strip("*` ")
    unit = languages.UNIT.search(text)
    written = languages.UNIT_OF_WORD[unit[1].lower()] if unit else ""
    text = text[: unit.start()] if unit else text
    if not text or len(text) > MAX_CONCLUSION or _REFUSED.search(text):
        return None
    if not _PHRASE["number_or_formula"].search(text):
        return text if len(text.split()) <= _MAX_WORDS else None
    outside = SPANS.sub("", text)
    if any(not char.isascii() and char.isalpha() for char in outside) or _PHRASE["one_letter_join"].search(text):
        return None
    if not is_bare(text) or len(SPANS.findall(text)) > 1:
        return None
    return f"{text} \\text{{{written}}}" if written else text


def concluded(sentence: str) -> str | None:
    """Return the value of a concluding sentence in another language, or None."""
    opening = _CONCLUSION.match(sentence) or _PHRASE["inner_conclusion"].search(sentence[:MAX_CONCLUSION])
    if opening is None or len(sentence) > MAX_CONCLUSION:
        return None
    rest = sentence[opening.end() if opening.start() == 0 else 0 :].strip().rstrip(".。।!！ ")
    if _REFUSED.search(rest) or _OTHER_QUANTITY.search(rest):
        return None
    stated = _AFTER.sub("", rest)
    if _PHRASE["assigned"].fullmatch(stated.strip("$ ")):
        return bare_value(stated)
    for copula in reversed(list(_COPULA.finditer(rest))):
        value = _PHRASE["lead"].sub("", rest[copula.end() :], count=1)
        subject = rest[: copula.start()]
        if any(char.isdigit() for char in SPANS.sub("", subject)):
            continue
        unchanged = _UNSPACED.search(rest) or _PHRASE["plural"].search(copula[0])
        found = bare_value(with_point(value, plural=unchanged is not None))
        if found is not None and any(char.isdigit() or char in "\\$" for char in found):
            return found
    return _verb_second(rest)


def _verb_second(rest: str) -> str | None:
    """Return the value of "Daher ist die Fläche 5": the verb comes before the subject."""
    match = re.match(
        r"(?:ist|sind|beträgt|betragen|ergibt|lautet)\s+([^\d$\\]{1,80}?)\s+(?:gleich\s+)?(\**(?:[$\\]|[-+]?\d).*)",
        rest,
    )
    return bare_value(with_point(match[2])) if match and not _PHRASE["label_before"].search(match[1]) else None


_NEAR = 80  # characters before a phrase that can qualify it
_OTHER_QUANTITY = re.compile(languages.OTHER_QUANTITY, re.IGNORECASE)
_NOT_BEFORE_VALUE = re.compile(rf"(?:{languages.NOT_BEFORE_VALUE})\s*$", re.IGNORECASE)
_VALUE_OF = re.compile(rf"(?:{languages.VALUE_OF})\s*$", re.IGNORECASE)
_TOTALS = re.compile(rf"\s*(?:(?<!\w){languages.TOTALS}|['’][dt][ıiuü]r)$", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"([-−]?\d+),(\d{1,2}|\d{4,})(?!\d)")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af\u0900-\u097f]")
_OPERATION = re.compile(languages.OPERATION, re.IGNORECASE)
_MAX_WORDS_BEHIND = 6


def stated(sentence: str, *, answered: bool = False) -> str | None:
    """Return the value that a sentence in another language states, read by its structure.

    The value is the only number or formula of the last clause and stands at its end or before its last words, after no
    preposition. Nothing in the sentence denies, doubts, bounds, supposes or rounds it, or speaks of each, another or an
    earlier quantity. answered: after a phrase such as "Antwort:".
    """
    sentence = BOLD.sub(r"\1", sentence).strip().rstrip(".。।!！ ")
    if len(sentence) > MAX_CONCLUSION or not is_foreign(sentence):
        return None
    hidden = SPANS.sub(lambda span: "\x00" * len(span[0]), sentence)
    if _REFUSED.search(hidden) or _OTHER_QUANTITY.search(hidden) or "?" in sentence or "？" in sentence:
        return None
    start = max((cut.end() for cut in _PHRASE["clause_start"].finditer(hidden)), default=0)
    clause = _PHRASE["per"].sub("", sentence[start:].strip())
    match = _PHRASE["equation_at_end"].fullmatch(clause) or _PHRASE["value_at_end"].fullmatch(clause)
    if match is None or _PHRASE["indefinite"].match(clause) or _PHRASE["indefinite"].match(sentence):
        return None
    before, after = match["before"].rstrip(" *:"), match["after"].rstrip("* ")
    value = match["value"].strip("* ").removeprefix("R")
    plural = _PHRASE["plural"].search(before) is not None
    if len(after.split()) > _MAX_WORDS_BEHIND or _OPERATION.search(clause):
        return None
    if _UNSPACED.search(clause):
        return value + _unit_behind(after)
    if _NOT_BEFORE_VALUE.search(before) and not _VALUE_OF.search(before):
        return None
    if not before and not answered and start == 0:
        return None
    return _with_unit(value, _TOTALS.sub("", after), plural=plural)


def _unit_behind(after: str) -> str:
    unit = _PHRASE["unit_first"].match(after)
    written = languages.UNIT_OF_WORD[unit[1].lower()] if unit else ""
    return f" \\text{{{written}}}" if written else ""


def is_foreign(sentence: str) -> bool:
    """Return whether a sentence has a word of another language, or a letter that English lacks, and no common
    English word.
    """
    words = re.findall(r"[^\W\d_]{2,}", sentence.lower())
    if not languages.ENGLISH_WORDS.isdisjoint(words):
        return False
    letters = any(not char.isascii() and char.isalpha() for char in SPANS.sub("", sentence))
    return letters or not languages.FOREIGN_WORDS.isdisjoint(words)


def _with_unit(value: str, after: str, *, plural: bool) -> str | None:
    """Return a value with the unit behind it, or without the counted noun behind it."""
    bare = bare_value(with_point(value, plural=plural) + after)
    if bare is not None:
        return bare
    return with_point(value, plural=plural) if not after or _PHRASE["nouns"].fullmatch(after) else None


def with_point(value: str, *, plural: bool = False) -> str:
    """Return a number with a decimal comma, as European languages write it, with a point. plural: it can be a list."""
    return value if plural else _DECIMAL_COMMA.sub(r"\1.\2", value)
