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
from ansatz.rewards.math_answer.letters import asserted_letter
from ansatz.rewards.math_answer.phrases import phrases_of
from ansatz.rewards.math_answer.sentence_words import PHRASE, REFUSING
from ansatz.rewards.math_answer.sentences import hypothetical, last_sentence, stated_in
from ansatz.rewards.math_answer.statements import BOLD, SPANS, is_bare, without_remark

MAX_BARE_LENGTH = 200  # characters of a response that is nothing but an answer, or of a last line
_MAX_JSON = 8_000  # characters of a JSON object

_PHRASE = phrases_of("conclusions")
_MAX_MARKS = 60  # characters at the end of a text that can be end marks
_KEYS = frozenset({"answer", "final_answer", "final answer", "finalanswer", "correct_answer"})
_FENCE = re.compile(r"(?:```(?:json)?\s*)?(\{.*\})\s*(?:```)?", re.DOTALL)


def last_statement(text: str, *, choice: bool) -> str | None:
    """Return what the end of a text states.

    choice: the gold is a choice letter, so a sentence may assert one letter.
    """
    text = text.strip()
    text = without_politeness(text)
    answer = _only_answer(text, choice=choice) or _of_json(text) or _last_line(text)
    if answer:
        return answer
    if choice:
        line = text.rpartition("\n")[2].strip()
        return asserted_letter(line) if len(line) <= MAX_BARE_LENGTH and not refused(line) else None
    sentence = last_sentence(text)
    before = text[: len(text) - len(sentence)].rstrip()
    if hypothetical(before) or ("\n" in text and SPANS.fullmatch(sentence.rstrip("."))):
        return None
    in_other_language = foreign.concluded(sentence) or foreign.stated(sentence)
    if in_other_language or foreign.is_foreign(sentence):
        return in_other_language
    return stated_in(sentence)


def without_politeness(text: str) -> str:
    """Return a text without the wishes, offers and marks that can follow its last statement."""
    for _ in range(4):
        shorter = text[:-_MAX_MARKS] + PHRASE["end_marks"].sub("", text[-_MAX_MARKS:]).rstrip()
        sentence = last_sentence(shorter)
        if PHRASE["chat"].fullmatch(sentence) and len(sentence) < len(shorter):
            shorter = shorter[: len(shorter) - len(sentence)].rstrip()
        if shorter == text:
            break
        text = shorter
    return text


def _only_answer(text: str, *, choice: bool) -> str | None:
    """Return a response that is nothing but a short answer; None for any other."""
    if not text or len(text) > MAX_BARE_LENGTH:
        return None
    span = SPANS.fullmatch(text.rstrip(". "))
    if span:
        return _PHRASE["therefore"].sub("", next(group for group in span.groups() if group is not None).strip()) or None
    if "\n" in text:
        return None
    if choice:
        return None if refused(text) else asserted_letter(text)
    text = _PHRASE["arrow"].split(_PHRASE["therefore"].sub("", BOLD.sub(r"\1", text)))[-1]
    return text if is_bare(text) else None


def _of_json(text: str) -> str | None:
    """Return the answer of a JSON object at the end of a text: `{"answer": 7}`.

    Two such objects or keys are no answer.
    """
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
    """Return the value of a last line that is only a formula or a bold value, if the line before does not deny or
    list it.
    """
    start = text.rfind("\n") + 1
    for left, right in (("\\[", "\\]"), ("$$", "$$")):
        if text.endswith((right, right + ".")):
            place = text.rfind(left, 0, text.rfind(right))
            start = place if place >= 0 and len(text) - place <= MAX_BARE_LENGTH else start
    line = without_remark(text[start:].strip().lstrip("> ")) if start else ""
    previous = text[:start].rstrip().rpartition("\n")[2].strip()
    if _PHRASE["number"].fullmatch(line) and _PHRASE["sum"].fullmatch(previous):
        denied = read_before(text, text.rfind(previous, 0, start))[0]
        return None if denied else f"{previous} = {line}".replace("×", "\\times ")
    bold = _PHRASE["line_value"].fullmatch(text[start:].strip())
    span = SPANS.fullmatch(line.rstrip("."))
    alone = _PHRASE["line"].fullmatch(line.rstrip(".")) if text[:start].endswith("\n\n") else None
    if not start or not (bold or span or alone) or len(line) > MAX_BARE_LENGTH:
        return None
    inner = bold[1] if bold else next(group for group in span.groups() if group is not None) if span else line
    inner = _PHRASE["therefore"].sub("", inner).strip()
    shown = _PHRASE["aligned"].sub(" ", inner).strip("$ \n")
    if "=" in shown and not _PHRASE["equation"].fullmatch(shown) and not (span and _PHRASE["chain"].fullmatch(shown)):
        return None
    word = inner.rstrip(".")
    plain = REFUSING.isdisjoint(word.lower().split()) or (word.lower() == "no" and not previous.endswith("?"))
    if bold and plain and _PHRASE["name"].fullmatch(word):
        return inner
    if not any(char.isdigit() for char in inner) and "\\" not in inner:
        return None
    if bold and (not _PHRASE["starts_with_value"].match(inner) or not is_bare(inner)):
        return None
    denied, listed = read_before(text, start)
    if denied or listed or _PHRASE["line_value"].fullmatch(previous) or SPANS.fullmatch(previous):
        return None
    return inner
