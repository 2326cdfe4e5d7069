"""What a response without an answer phrase ends in: a bare answer, a formula on a line, a concluding sentence, or JSON.

"So she needs 13 eggs." states 13, "So she needs eggs for 13 guests." does not. A sentence is only read if it has one
value, at its end, which nothing denies, doubts, bounds or numbers something else with.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ansatz.rewards.math_answer import foreign
from ansatz.rewards.math_answer.context import read_before, refused
from ansatz.rewards.math_answer.dates import canonical_date
from ansatz.rewards.math_answer.last_sentence import hypothetical, last_sentence, stated_in
from ansatz.rewards.math_answer.letters import asserted_letter
from ansatz.rewards.math_answer.statements import (
    AMOUNT_IN_TWO_UNITS,
    BOLD,
    SPANS,
    doubts,
    is_bare,
    is_currency,
    predicate,
    without_remark,
)
from ansatz.rewards.math_answer.words import ALTERING_WORDS, NEGATIONS, NUMBER_WORDS, words_of_text

MAX_BARE_LENGTH = 200  # characters of a response that is nothing but an answer, or of a last line
_MAX_JSON = 8_000  # characters of a JSON object

_CONCLUSION = re.compile(
    r"(?:(?:therefore|thus|hence|so|consequently|finally|in\s+conclusion|as\s+a\s+result|altogether|overall|in\s+total|in\s+all"
    r"|we\s+conclude\s+that|it\s+follows\s+that|this\s+means\s+that)\b|∴|\\therefore(?![a-z]))[\s,:]*",
    re.IGNORECASE,
)
_THEREFORE = re.compile(r"^\s*(?:∴|\\therefore(?![a-z]))\s*")
_SENTENCE_START = re.compile(r"(?<!\\)(?<!\b[ap]\.m)[.!?](?=\s)|[。！？।؟\n]")
_ENDS = (".", "!", "$", "\\)", "\\]", "*", "。", "।")
_VALUE = (
    rf"(?:{AMOUNT_IN_TWO_UNITS}|(?:\\?\$|[€£¥₹])?\s?[-+]?(?:\d+(?:,\d{{3}})+|\d+)(?:\.\d+)?(?:\s?/\s?\d+)?(?::\d+)*"
    r"(?:\s?\\?%|\s?[ap]\.?m\b\.?)?|\$[^$\n]{1,80}\$|\\\((?:[^\\\n]|\\[a-zA-Z,;{}]){1,80}\\\))"
)
_EQUATION = re.compile(r"(?:\\text\{[^{}]{1,40}\}|[A-Za-z\\{}()|,\s]{1,30}(?:_\{?\w\}?)?)\s?=\s?([^=<>]{1,80})")
_GOT = re.compile(
    r"(?:[^\d$\\?]{0,60}\s)?(?:get|gets|obtain|obtains|find|finds|have|gives|giving|yields|yielding|conclude|deduce|reach)"
    rf"(?:\s+that)?\s+((?:[A-Za-z](?:_\w)?\s?=\s?)?{_VALUE}(?:\s[A-Za-z]+)?)",
    re.IGNORECASE,
)
_OBJECT = re.compile(
    rf"([^\d$\\?=]{{3,120}}?)\s({_VALUE})((?:\s[A-Za-z-]+){{0,2}}?)"
    r"(?:\s(?:in\s+total|altogether|in\s+all|left|left\s+over|remaining|overall|each|per\s+\w+|a\s+(?:day|week|month|year)|now))?",
    re.IGNORECASE,
)
_TOTAL = re.compile(r"\b(?:in\s+total|altogether|in\s+all)\b", re.IGNORECASE)
_NOT_BEFORE = words_of_text(
    """
    for after by with of in on at from to under within before than per until since over against among between step case
    lemma theorem equation problem question part figure page chapter exercise section line item number the these those
    all other first last remaining another only only, each every both any out into onto during about around through
    without and or room row day week year month grade level round times chapter no label point
    """
)
_STEP_NOUNS = words_of_text(
    """
    case cases subcase subcases equation equations step steps unknown unknowns variable variables condition conditions
    constraint constraints part parts method methods terms digits
    """
)
"""What a proof is made of: a number of them is not an answer."""
_NOT_NOUNS = _STEP_NOUNS | words_of_text(
    """
    is are was were be has have had do does did can will as at by for from in into of on or and to with than that which
    when while until before after times more less fewer
    """
)
_NOT_VERBS = words_of_text(
    "let check checks consider examine test try tries divide multiply look suppose assume factor"
)
_OTHER_SUBJECT = re.compile(
    r"\b(?:first|second|third|initial|original|previous|next|other|starting|step|case|lemma|old)\b", re.IGNORECASE
)
_NO_VALUE = re.compile(
    r"(?:[A-Za-z$\\()]+\s){0,7}(?:do(?:es)?\s+not\s+exist|do(?:es)?n['’]t\s+exist|is\s+undefined|is\s+not\s+defined)"
)
_LINE_VALUE = re.compile(r"(?:>\s*)?(?:\*{2,3}|__)((?!\s)[^*_\n]{1,100})(?:\*{2,3}|__)\.?")
_STARTS_WITH_VALUE = re.compile(r"(?:\\?\$|[€£¥₹])?\s?[-+]?[\d.\\]|\$|[A-Za-z](?:_\w)?\s?=")
_LATEX_IN_JSON = re.compile(r"(?<!\\)\\(?=[A-Za-z]{2})")
_KEYS = frozenset({"answer", "final_answer", "final answer", "finalanswer", "correct_answer"})
_FENCE = re.compile(r"(?:```(?:json)?\s*)?(\{.*\})\s*(?:```)?", re.DOTALL)


def last_statement(text: str, *, choice: bool) -> str | None:
    """What the end of a text states. choice: the gold is a choice letter, so a sentence may assert one letter."""
    text = text.strip()
    answer = _only_answer(text, choice=choice) or _of_json(text) or _last_line(text)
    if answer or choice:
        return answer or _concluded(text, choice=choice)
    sentence = last_sentence(text)
    before = text[: len(text) - len(sentence)].rstrip()
    if hypothetical(before) or ("\n" in text and SPANS.fullmatch(sentence.rstrip("."))):
        return None
    in_other_language = foreign.concluded(sentence) or foreign.stated(sentence)
    return in_other_language or (None if foreign.is_foreign(sentence) else stated_in(sentence))


def _only_answer(text: str, *, choice: bool) -> str | None:
    """A response that is nothing but a short answer; None for any other."""
    if not text or len(text) > MAX_BARE_LENGTH:
        return None
    span = SPANS.fullmatch(text.rstrip(". "))
    if span:
        return _THEREFORE.sub("", next(group for group in span.groups() if group is not None).strip()) or None
    if "\n" in text:
        return None
    if choice:
        return None if refused(text) else asserted_letter(text)
    text = _THEREFORE.sub("", BOLD.sub(r"\1", text))
    return text if is_bare(text) else None


def _of_json(text: str) -> str | None:
    """The answer of a JSON object at the end of a text: `{"answer": 7}`. Two such objects or keys are no answer."""
    tail = text[-_MAX_JSON:]
    opening = tail.find("{") if text.startswith(("{", "```")) else tail.rfind("\n{") + 1
    candidate = _FENCE.fullmatch(tail[max(opening, 0) :] if tail.startswith("{", opening) else tail)
    if candidate is None or 'answer"' not in candidate[1] or candidate[1].count('answer"') > 1:
        return None
    if 'answer"' in text[: len(text) - len(candidate[0])]:
        return None
    try:
        pairs: Any = json.loads(
            re.sub(r"(?<!\\)\\(?=[A-Za-z]{2})", r"\\\\", candidate[1]),
            object_pairs_hook=list,
            parse_int=str,
            parse_float=str,
        )
    except (ValueError, RecursionError):
        return None
    values = [pair[1] for pair in pairs if len(pair) == 2 and str(pair[0]).lower() in _KEYS]
    return values[0].strip() or None if len(values) == 1 and isinstance(values[0], str) else None


def _last_line(text: str) -> str | None:
    """The value of a last line that is only a formula or a bold value, if the line before does not deny or list it."""
    start = text.rfind("\n") + 1
    for left, right in (("\\[", "\\]"), ("$$", "$$")):
        if text.endswith((right, right + ".")):
            place = text.rfind(left, 0, text.rfind(right))
            start = place if place >= 0 and len(text) - place <= MAX_BARE_LENGTH else start
    line = without_remark(text[start:].strip().lstrip("> ")) if start else ""
    bold = _LINE_VALUE.fullmatch(text[start:].strip())
    span = SPANS.fullmatch(line.rstrip("."))
    if not start or not (bold or span) or len(line) > MAX_BARE_LENGTH:
        return None
    inner = bold[1] if bold else next(group for group in span.groups() if group is not None) if span else ""
    inner = _THEREFORE.sub("", inner).strip()
    shown = inner.strip("$ ")
    if "=" in shown and not _EQUATION.fullmatch(shown):
        return None
    if not any(char.isdigit() for char in inner) and "\\" not in inner:
        return None
    if bold and (not _STARTS_WITH_VALUE.match(inner) or not is_bare(inner)):
        return None
    before = text[:start].rstrip()
    denied, listed = read_before(text, start)
    previous = before[before.rfind("\n") + 1 :].strip()
    if denied or listed or _LINE_VALUE.fullmatch(previous) or SPANS.fullmatch(previous):
        return None
    return inner


def _concluded(text: str, *, choice: bool) -> str | None:
    """The value of a last sentence such as "Therefore, the length is 5."; with a choice gold, the letter it asserts."""
    line = text.rpartition("\n")[2].strip()
    if choice:
        return asserted_letter(line) if len(line) <= MAX_BARE_LENGTH and not refused(line) else None
    starts = [match.end() for match in _SENTENCE_START.finditer(line[:-1])]
    sentence = line[starts[-1] if starts else 0 :].strip()
    in_other_language = foreign.concluded(sentence)
    if in_other_language:
        return in_other_language
    if len(sentence) > MAX_BARE_LENGTH or (not sentence.endswith(_ENDS) and not _THEREFORE.match(sentence)):
        return None
    is_bold = BOLD.search(sentence) is not None
    opening = _CONCLUSION.match(sentence)
    stated = sentence[opening.end() if opening else 0 :].strip()
    stated = without_remark(
        BOLD.sub(r"\1", stated.rstrip("!") if stated.endswith("!") else stated.removesuffix("."))
    ).strip()
    if opening:
        value = _opened(stated)
        if value is not None:
            return value
    return _stated(stated, opened=opening is not None, stressed=is_bold)


def _opened(stated: str) -> str | None:
    """The value after "Therefore" or the like: a formula, a predicate, or the statement that there is no value."""
    if stated.startswith("$") and is_currency(stated):
        return None
    span = SPANS.fullmatch(stated)
    if span:
        return next(group for group in span.groups() if group is not None).strip()
    if _NO_VALUE.fullmatch(stated) or (_EQUATION.fullmatch(stated) and is_bare(stated)):
        return stated
    return predicate(stated)


def _stated(stated: str, *, opened: bool, stressed: bool) -> str | None:
    """The only value of a sentence that ends in it. opened: after "So"; stressed: a value in bold."""
    words = [word.lower() for word in re.findall(r"(?<![\\A-Za-z])[A-Za-z][A-Za-z'-]*", stated)]
    if doubts(stated) or refused(stated) or not NEGATIONS.isdisjoint(words) or not _NOT_VERBS.isdisjoint(words):
        return None
    got = _GOT.fullmatch(stated)
    if got and is_bare(got[1]) and not _counts_steps(got[1]) and (opened or not _has_noun(got[1])):
        return got[1].strip("$ ") if got[1].startswith("$") and not is_currency(got[1]) else got[1]
    value = predicate(stated)
    if (
        value
        and any(char.isdigit() for char in value)
        and not _counts_steps(value)
        and not _OTHER_SUBJECT.search(stated)
    ):
        return value
    thing = _OBJECT.fullmatch(stated)
    if thing is None or not (opened or stressed or _TOTAL.search(stated)):
        return None
    before, nouns = thing[1].lower().split(), thing[3].lower().split()
    at_time = before[-1] == "at" and ":" in thing[2]
    if ((before[-1].strip(",") in _NOT_BEFORE or canonical_date(f"{before[-1]} 1")) and not at_time) or len(before) < 2:
        return None
    if any(word in _NOT_NOUNS or word in ALTERING_WORDS or word in NUMBER_WORDS for word in nouns):
        return None
    if not ALTERING_WORDS.isdisjoint(words):
        return None
    value = thing[2].strip()
    return value.replace("$", "\\$") if value.startswith("$") and is_currency(value) else value + _unit(nouns)


def _unit(nouns: list[str]) -> str:
    return f" \\text{{{nouns[0]}}}" if nouns and is_bare(f"1 {nouns[0]}") else ""


def _counts_steps(value: str) -> bool:
    """Whether a value counts what a proof is made of, as in "7 equations"."""
    return not _STEP_NOUNS.isdisjoint(value.lower().split())


def _has_noun(value: str) -> bool:
    return bool(re.search(r"\d\s[A-Za-z]{2,}$", value))
