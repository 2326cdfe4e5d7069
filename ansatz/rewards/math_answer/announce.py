"""Answers announced in words: "#### 5", "The answer is 5", "Final Answer: the largest n is 5", "5 is our answer".

Every scan is linear in the length of the text. The last announcement wins. What follows it is read as one formula, as a
short bare answer, or as a sentence with exactly one value in it. A sentence that hedges, or that names several values,
is returned whole, and the later stages refuse it.
"""

from __future__ import annotations

import re

from ansatz.rewards.math_answer import foreign
from ansatz.rewards.math_answer.clean import UNREADABLE, mark_unseen
from ansatz.rewards.math_answer.conclusions import last_statement
from ansatz.rewards.math_answer.context import read_before, taken_back
from ansatz.rewards.math_answer.letters import asserted_letter
from ansatz.rewards.math_answer.phrases import phrases_of
from ansatz.rewards.math_answer.statements import BOLD, is_currency, unit_after, value_said

_PHRASE = phrases_of("announce")

_NEAR = 80  # characters before an answer phrase that can govern it
_TAIL = 4_000  # characters that are searched for a last number

_ANSWER_WORDS = ("answer", "option", "choice", "ans:", "ans.", "ans ", "ans=")
_PHRASES = (_PHRASE["phrase"], _PHRASE["closing_phrase"], _PHRASE["bare_phrase"])
_ASKED = "?？؟"
_NUMBER = re.compile(
    rf"(?<![\d.,])[\d.,]*(?:{UNREADABLE}[\d.,]*)+|"
    r"\\[dt]?frac\s?\{[^{}]{1,40}\}\s?\{[^{}]{1,40}\}|(?<![\d.])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:\s?/\s?\d+)?"
)


def announced(text: str, *, choice: bool = False) -> str | None:
    """Return the announced answer, or None. choice: the gold is a choice letter, so a sentence may assert one letter.

    A text without an announcement may end in one, see `conclusions`.
    """
    text = until_stop(text)
    hashes = text.rfind("####")
    if hashes >= 0:
        line, _, rest = text[hashes + 4 :].lstrip(": \t\r\n").partition("\n")
        return None if rest and taken_back(rest, 0, "") is not None else BOLD.sub(r"\1", line.strip()) or None
    in_other_language = foreign.phrased(text)
    if in_other_language:
        place, value = in_other_language
        opening = _last(_PHRASE["phrase"], text) if _may_announce(text) else None
        if opening is None or opening.end() < place:
            return value
    phrases = [_last(pattern, text) for pattern in _PHRASES] if _may_announce(text) else []
    return _phrased(text, phrases, choice=choice) if any(phrases) else last_statement(text, choice=choice)


def restated(text: str) -> str | None:
    """Return what the text after an answer announces by `####` or an answer phrase; None if it announces nothing."""
    answer = announced(text) if has_announcement(text) else None
    return answer if answer and any(char.isalnum() for char in answer) else None


def has_announcement(text: str) -> bool:
    """Return whether a text contains `####` or an answer phrase."""
    if "####" in text:
        return True
    if _may_announce(text) and any(pattern.search(text) for pattern in _PHRASES):
        return True
    return foreign.phrased(text) is not None


def _may_announce(text: str) -> bool:
    """Return a fast check that rules out most texts: every answer phrase contains one of a few words."""
    return any(map(text.lower().__contains__, _ANSWER_WORDS))


def until_stop(text: str) -> str:
    """Return the text up to the first chat or stop marker, without markers at its start."""
    opening = _PHRASE["opening_stop"].match(text)
    if opening:
        text = text[opening.end() :]
    stop = _PHRASE["stop"].search(text) if "<" in text or "[" in text else None
    return text[: stop.start()] if stop else text


def last_number(text: str) -> str | None:
    """Return the last number of a text, or None. For evaluation only: it pays for guesses."""
    numbers = _NUMBER.findall(mark_unseen(text[-_TAIL:]))
    return numbers[-1] if numbers else None


def _phrased(text: str, phrases: list[re.Match[str] | None], *, choice: bool) -> str | None:
    """Return the answer at the last answer phrase: before it in "5 is our answer", after it in "the answer is 5"."""
    opening, closing, bare = phrases
    bare_is_last = bare and all(other is None or bare.end() > other.end() for other in (opening, closing))
    formula = _formula(text[bare.end() :]) if bare and bare_is_last else None
    if formula is not None:
        return formula or None
    if closing and (opening is None or closing.start() > opening.end()):
        before = text[: closing.start()]
        start = _last(_PHRASE["sentence_start"], before)
        sentence = before[start.end() if start else 0 :]
        sentence = sentence[_matched(_PHRASE["opening_words"], sentence, 0) :]
        if sentence:
            return _statement(sentence, choice=choice)
    near = max(0, opening.start() - _NEAR) if opening else 0
    if opening and (
        _PHRASE["anothers"].search(text, near, opening.start())
        or _PHRASE["said_of"].search(text, near, opening.start())
    ):
        return None
    if opening is None or (opening[0].strip("#* \n")[:1].islower() and read_before(text, opening.start())[0]):
        return None
    return _statement(text[_matched(_PHRASE["lead"], text, opening.end()) :], choice=choice)


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    last = None
    for match in pattern.finditer(text):
        last = match
    return last


def _matched(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Return where the match of a pattern that can be empty ends."""
    match = pattern.match(text, start)
    return match.end() if match else start


def _statement(text: str, *, choice: bool) -> str | None:
    """Return the answer at the head of a text: one formula with at most a harmless remark, or the first
    sentence's value.
    """
    fenced = _PHRASE["fenced"].match(text)
    if fenced:
        return None if taken_back(text, fenced.end(), "") is not None else value_said(fenced[1].strip())
    formula = _formula(text)
    if formula is not None:
        return formula or None
    end = _PHRASE["sentence_end"].search(text)
    if end and _disowned(text, end):
        return None
    if choice and (letter := asserted_letter(text[: end.start()] if end else text)):
        return letter
    sentence = (text[: end.start()] if end else text).strip(" \t\r*,")
    return value_said(sentence) or None


def _disowned(text: str, end: re.Match[str]) -> bool:
    """Return whether the end of a sentence, or what follows it, asks for the answer in it, denies it or takes it
    back.
    """
    is_denied = end[0] in _ASKED or _PHRASE["disowned"].match(text, end.start()) is not None
    return is_denied or taken_back(text, end.end(), "") is not None


def _formula(text: str) -> str | None:
    """Return the formula at the head of a text with its unit, "" if it cannot be an answer; None if the sentence
    has more.
    """
    for left, right in (("\\[", "\\]"), ("\\(", "\\)"), ("$$", "$$"), ("$", "$")):
        if not text.startswith(left) or (left == "$" and is_currency(text)):
            continue
        inner, closed, rest = text[len(left) :].partition(right)
        if closed and left in ("$", "\\(") and "\n" in inner:
            return ""  # inline math does not span lines: these are two stray marks
        end = _PHRASE["sentence_end"].search(rest)
        remark = rest[: end.start()] if end else rest
        if end and _disowned(rest, end):
            return ""
        if closed and _PHRASE["remark"].fullmatch(remark) and not _PHRASE["remark_hedge"].search(remark):
            return inner.strip() + unit_after(remark)
        break
    return None
