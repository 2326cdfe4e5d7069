"""The value that a sentence states: "the largest n is 34", "she paid $12 in total", "they need 18 days to finish"."""

from __future__ import annotations

import re
from unicodedata import category

from ansatz.rewards.math_answer import words as lexicon
from ansatz.rewards.math_answer.context import without_amount
from ansatz.rewards.math_answer.dates import canonical_date, is_time
from ansatz.rewards.math_answer.phrases import phrases_of

_PHRASE = phrases_of("statements")

MAX_SENTENCE_LENGTH = 1_000  # characters of a sentence that is searched for its value
_MAX_TEXT_WORDS = 4  # of an answer in words, such as a name or a city

_BAD_MARKS = frozenset("❌✗✘❎❓❔🤔👎⛔🚫✖🙅🤷")
_BAD_WORDS = lexicon.HEDGES | lexicon.ALTERING_WORDS | lexicon.word_set("bad_remarks")
AMOUNT_IN_TWO_UNITS = (
    r"\d+(?:\.\d+)?\s(?:hour|minute|day|week|year|month|feet|foot|yard|dollar|pound|meter|kilometer|h|hr|min)s?,?(?:\s+and)?"
    r"\s+\d+(?:\.\d+)?\s(?:hour|minute|second|day|month|inche|inch|feet|cent|ounce|centimeter|meter|min|sec)s?"
)
_VERBS = frozenset({"is", "are", "was", "were", "be", "equals", "has", "have"})
BOLD = re.compile(r"(?<![^\s(])\*\*([^*\s](?:[^*]*[^*\s])?)\*\*(?![^\s).,;:!?])")
SPANS = re.compile(r"\\\[(.*?)\\\]|\$\$(.*?)\$\$|\\\(([^\n]*?)\\\)|(?<!\\)\$([^$\n]*)(?<!\\)\$", re.DOTALL)
_RAISED = frozenset({"squared", "cubed"})
_UNIT_WORDS = _RAISED | lexicon.UNIT_GRAMMAR


def value_said(sentence: str) -> str:
    """Return the value that a sentence states: the sentence itself if it is bare, its predicate, or its only value."""
    if len(sentence) > MAX_SENTENCE_LENGTH:
        return sentence
    sentence = without_remark(BOLD.sub(r"\1", sentence))
    remark = _PHRASE["remark"].fullmatch(sentence) if sentence.endswith(")") else None
    if is_bare(sentence) or _PHRASE["yes_no"].match(sentence) or (remark and is_bare(remark[1])):
        return sentence
    stated = predicate(sentence)
    if stated:
        return stated
    if (
        _hedges(sentence)
        or _PHRASE["doubt"].search(sentence)
        or _PHRASE["range"].search(sentence)
        or _PHRASE["about"].search(sentence)
    ):
        return sentence
    if any(without_amount(sentence[: of.end()]) is None for of in _PHRASE["of_value"].finditer(sentence)):
        return sentence
    words = {word.lower() for word in _PHRASE["word"].findall(sentence)}
    if not words.isdisjoint(lexicon.ALTERING_WORDS | lexicon.NEGATIONS | lexicon.NUMBER_WORDS.keys()):
        return sentence
    values = _values_in(sentence)
    return values[0] if len(values) == 1 else sentence


def without_remark(sentence: str) -> str:
    """Return a sentence without marks such as a tick at its end, and without a remark that changes nothing.

    "7 (since x > 0)", "7 (we reject -1)" and "7, not 8" are 7. "1/2 (50%)" becomes 1/2 = 50%, whose sides must agree.
    Any other remark stays, so that the sentence is not read.
    """
    if "~~" in sentence:
        sentence = _PHRASE["deleted"].sub("", sentence).strip()
    sentence = _PHRASE["smile"].sub("", sentence)
    if not sentence.isascii():
        end = len(sentence)
        while end and (category(sentence[end - 1]) in ("So", "Mn", "Sk") or sentence[end - 1] in " *\u200d"):
            end -= 1
        if _BAD_MARKS.isdisjoint(sentence[end:]) and end and sentence[end - 1] not in "°":
            sentence = sentence[:end]
    sentence = BOLD.sub(r"\1", sentence.strip(" *"))
    corrected = _PHRASE["corrected"].fullmatch(sentence)
    if corrected and corrected[1] != corrected[2]:
        return corrected[2]
    contrast = _PHRASE["contrast"].fullmatch(sentence)
    if contrast and contrast[1] != contrast[2]:
        return contrast[1]
    remark = _PHRASE["remark"].fullmatch(sentence) if sentence.endswith(")") and sentence[-2:] != "\\)" else None
    if remark is None or remark[1].endswith("=") or not is_bare(remark[1]):
        return sentence
    head, said = remark[1], remark[2].strip()
    if (number := lexicon.number_from_words(said)) is not None:
        return head if head.replace(",", "") == str(number) else sentence
    words = {word.lower() for word in _PHRASE["word"].findall(said)}
    if _PHRASE["rejected_other"].match(said) or _PHRASE["good_remark"].match(said):
        denies = not words.isdisjoint(
            {"reject", "rejecting", "discard", "discarding", "exclude", "excluding", "not", "extraneous"}
        )
        repeats = not set(_PHRASE["numbers"].findall(head)).isdisjoint(_PHRASE["numbers"].findall(said))
        doubts = not words.isdisjoint({"maybe", "perhaps", "guess", "unsure", "otherwise", "else"})
        return sentence if doubts or (denies and repeats) else head
    same = _PHRASE["same"].match(said)
    value = said[same.end() :] if same else said
    if any(char.isdigit() or char == "\\" for char in value):
        return f"{head} = {value}" if is_bare(value) else sentence
    return head if words.isdisjoint(_BAD_WORDS) and not _PHRASE["doubt"].search(said) else sentence


def predicate(sentence: str) -> str | None:
    """Return the bare value after the main verb of a sentence that does not doubt it; None if there is no such
    value.
    """
    verbs = list(_PHRASE["verb"].finditer(sentence[:MAX_SENTENCE_LENGTH]))
    if not verbs or _PHRASE["doubt"].search(sentence, 0, verbs[-1].end()):
        return None
    condition = max((match.end() for match in _PHRASE["condition"].finditer(sentence)), default=0)
    if condition and sum(verb.start() >= condition - 1 for verb in verbs) == 1:
        return None  # "the smallest n such that n^2 is 36" does not state 36
    tail = without_remark(sentence[verbs[-1].end() :].strip())
    return tail if is_bare(tail) and not _hedges(tail) else None


def _hedges(text: str) -> bool:
    return any(word.lower() in lexicon.HEDGES for word in _PHRASE["word"].findall(text))


def doubts(sentence: str) -> bool:
    """Return whether a sentence doubts, denies, bounds or rounds what it says."""
    patterns = (_PHRASE["doubt"], _PHRASE["range"], _PHRASE["about"], _PHRASE["condition"], _PHRASE["contracted"])
    return _hedges(sentence) or any(pattern.search(sentence) for pattern in patterns)


def is_bare(text: str) -> bool:
    """Return whether a text is an answer without a sentence around it: a formula, an amount with its unit, a name."""
    outside = _PHRASE["text_group"].sub("", SPANS.sub(" 0 ", _PHRASE["environment"].sub("", text)))
    if not outside.strip(" .") and text:
        return True
    if text.startswith("$") and is_currency(text):
        outside = text[1:]
    words = _PHRASE["english"].findall(outside)
    if not outside.isascii() and _PHRASE["other_letters"].search(outside) and any(char.isdigit() for char in outside):
        return False
    if ":" in text and is_time(text):
        return True
    if _PHRASE["month"].search(text) and canonical_date(text) is not None:
        return True
    compound = _PHRASE["compound"].fullmatch(outside)
    if compound:
        words = [word for word in words if word != "and"]
    if not any(char.isdigit() for char in outside):
        return 0 < len(outside.split()) <= _MAX_TEXT_WORDS and not any(word.lower() in _VERBS for word in words)
    measures = [word for word in words if word.lower() not in _UNIT_WORDS]
    if len(measures) < len(words) and (not measures or words[0].lower() in _RAISED):
        return False  # "24 squared", "7 per"
    return all(lexicon.unit_name(word) is not None for word in measures)


def _values_in(sentence: str) -> list[str]:
    """Return the formulas and amounts of a sentence, each once; formulas that only name a variable do not count."""
    values: list[str] = []
    rest: list[str] = []
    position = 0
    for span in SPANS.finditer(sentence):
        if span.start() < position or is_currency(sentence[span.start() :]):
            continue
        rest.append(sentence[position : span.start()])
        position = span.end()
        inner = next(group for group in span.groups() if group is not None)
        if not _PHRASE["bare_variable"].fullmatch(inner):
            values.append(inner.strip() + unit_after(sentence[position:]))
        rest.append(" ")
    rest.append(sentence[position:])
    for amount in _PHRASE["amount"].finditer("".join(rest)):
        number, space, word = amount[0].strip().rpartition(" ")
        is_money = amount[0].lstrip(" \\")[:1] in lexicon.CURRENCIES
        bare = space and word.isalpha() and (is_money or word == "in" or lexicon.unit_name(word) is None)
        values.append(number if bare else amount[0].strip())
    return [value.replace("$", "\\$") if value.startswith("$") else value for value in dict.fromkeys(values)]


def is_currency(text: str) -> bool:
    """Return whether the dollar sign at the start of a text means money: an amount follows, then words or no
    second dollar.
    """
    inner, closed, _ = text[1:].partition("\n")[0].partition("$")
    return bool(re.match(r"\s?\d", inner)) and (
        not closed or bool(_PHRASE["english"].search(_PHRASE["text_group"].sub("", inner)))
    )


def masked(text: str) -> str:
    """Return a text of the same length with zero bytes for formulas.

    A lone letter is a word, a dollar of money stays.
    """
    parts: list[str] = []
    place = 0
    while span := SPANS.search(text, place):
        money = text.startswith("$", span.start()) and is_currency(text[span.start() :])
        end = span.start() + 1 if money else span.end()
        hidden = "$" if money else ("x" if _PHRASE["letter"].fullmatch(span[0]) else "\x00") * (end - span.start())
        parts += [text[place : span.start()], hidden]
        place = end
    return "".join((*parts, text[place:]))


def unit_after(remark: str) -> str:
    """Return a unit that directly follows a formula, as text for the parser; "" when another word follows."""
    word = _PHRASE["english"].match(remark.strip())
    return f" \\text{{{word[0]}}}" if word and word[0] != "in" and lexicon.unit_name(word[0]) else ""
