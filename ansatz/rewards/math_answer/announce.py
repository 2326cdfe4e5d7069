"""Answers announced in words: "#### 5", "The answer is 5", "Final Answer: the largest n is 5", "5 is our answer".

Every scan is linear in the length of the text. The last announcement wins. What follows it is read as one formula, as a
short bare answer, or as a sentence with exactly one value in it. A sentence that hedges, or that names several values,
is returned whole, and the later stages refuse it.
"""

from __future__ import annotations

import re

from ansatz.rewards.math_answer.words import ALTERING_WORDS, HEDGES, NUMBER_WORDS, unit_name

MAX_BARE_LENGTH = 200  # characters of a response that is nothing but an answer
MAX_SENTENCE_LENGTH = 1_000  # characters of a sentence that is searched for its value
_MAX_TEXT_WORDS = 4  # of an answer in words, such as a name or a city
_TAIL = 4_000  # characters that are searched for a last number or letter

_STOP = re.compile(r"<[|｜][^<>]{1,40}[|｜]>|</s>|<eos>|<end_of_turn>|\[/?INST\]")
_OPENING_STOP = re.compile(r"\s*(?:<[|｜][^<>]{1,40}[|｜]>(?:(?:assistant|user|system)\b\s*)?\s*)+")
_PHRASE = re.compile(
    r"answer\s{0,3}(?:is|are|=|:|\*\*\s{0,3}:|equals)"
    r"|answer\s{1,3}(?:must|should|would|will|has\sto|comes\sout\sto|turns\sout\sto)\s{1,3}be"
    r"|(?:correct|right|best)\s{1,3}(?:option|choice)\s{0,3}(?:is|:)"
    r"|答案(?:\s{0,3}[:：]|是|为|為)",
    re.IGNORECASE,
)
_BARE_PHRASE = re.compile(
    r"(?:^|(?<=[\n.!?#*]))[#*\s]{0,9}(?:the\s{1,3})?(?:final\s{1,3})?answer[\s*#—–]{0,9}(?=\$|\\\(|\\\[)", re.IGNORECASE
)
_CLOSING_PHRASE = re.compile(
    r"\s(?:is|as|be)\s{1,3}(?:our|the|my)\s{1,3}(?:(?:final|correct|desired|required)\s{1,3})?answer\b(?=[\s$*)]{0,9}(?:[.!,;]|\n|$))",
    re.IGNORECASE,
)
_LEAD = re.compile(r"[\s:：*=]*(?:(?:option|choice|approximately|simply)\s+)?", re.IGNORECASE)
_OPENING_WORDS = re.compile(
    r"[\s,]*(?:(?:thus|hence|therefore|so|then|and|finally|we\s+(?:get|have|find|obtain|see|conclude)|that|this|gives|giving)\b[\s,]*)*",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?。！？](?=[\s*\"')\]]|$)|\n|<\||,?\s(?:which|because|since|as required)\b|,\sso\b")
_SENTENCE_START = re.compile(r"[.!?。！？](?=\s)|\n")
_REMARK = re.compile(r"[^\d$\\]*")
_REMARK_HEDGE = re.compile(r"\b(?:or|and|not|either|wrong|incorrect|maybe)\b", re.IGNORECASE)
_DOUBT = re.compile(
    r"\b(?:whether|if|cannot|can't|couldn't|could not|can not|unable|don't|do not|doesn't|does not|isn't|wasn't|wrong"
    r"|incorrect|doubt|unsure|never|unknown)\b",
    re.IGNORECASE,
)
_RANGE = re.compile(
    r"\b(?:between|at least|at most|up to|from|exceeds|above|below|under|over"
    r"|(?:more|less|fewer|greater|larger|bigger|smaller|higher|lower) than)\b",
    re.IGNORECASE,
)
_VERBS = frozenset({"is", "are", "was", "were", "be", "equals", "has", "have"})
_VERB = re.compile(r"\s(?:is|are|equals|be|was|were)\s+(?:(?:exactly|equal to|precisely|simply|just|therefore)\s+)*")
_BOLD = re.compile(r"(?<![^\s(])\*\*([^*\s](?:[^*]*[^*\s])?)\*\*(?![^\s).,;:!?])")

_SPANS = re.compile(r"\\\[(.*?)\\\]|\$\$(.*?)\$\$|\\\(([^\n]*?)\\\)|(?<!\\)\$([^$\n]*)(?<!\\)\$", re.DOTALL)
_ENGLISH = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_TEXT_GROUP = re.compile(r"\\(?:text|mathrm|mbox|textbf|operatorname)\s*\{[^{}]*\}")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z][A-Za-z'.-]*")
_AMOUNT = re.compile(
    r"(?<![\w.\\])(?:\\?\$|[€£¥₹])?\s?[-+]?(?:\d+(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s?/\s?\d+)?(?![\w/^_])(?:\s?\\?%)?"
    r"(?:\s(?:[A-Za-z]+))?"
)
_BARE_VARIABLE = re.compile(r"\s*[A-Za-z](?:_\{?\w+\}?)?(?:\s*\([A-Za-z,\s]*\))?\s*")
_NUMBER = re.compile(
    r"\\[dt]?frac\s?\{[^{}]{1,40}\}\s?\{[^{}]{1,40}\}|(?<![\d.])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:\s?/\s?\d+)?"
)


def announced(text: str, *, choice: bool = False) -> str | None:
    """The announced answer, or None. choice: the gold is a choice letter, so a sentence may assert one letter.

    A text that is nothing but a short answer announces itself.
    """
    text = until_stop(text)
    hashes = text.rfind("####")
    if hashes >= 0:
        return text[hashes + 4 :].lstrip(": \t\r\n").partition("\n")[0].strip() or None
    return _phrased(text, choice=choice) or _only_answer(text, choice=choice)


def has_announcement(text: str) -> bool:
    """Whether a text contains `####` or an answer phrase."""
    return "####" in text or any(pattern.search(text) for pattern in (_PHRASE, _CLOSING_PHRASE, _BARE_PHRASE))


def until_stop(text: str) -> str:
    """The text up to the first chat or stop marker, without markers at its start."""
    opening = _OPENING_STOP.match(text)
    if opening:
        text = text[opening.end() :]
    stop = _STOP.search(text) if "<" in text or "[" in text else None
    return text[: stop.start()] if stop else text


def last_number(text: str) -> str | None:
    """The last number of a text, or None. For evaluation only: it pays for guesses."""
    numbers = _NUMBER.findall(text[-_TAIL:])
    return numbers[-1] if numbers else None


def _phrased(text: str, *, choice: bool) -> str | None:
    """The answer at the last answer phrase: before it in "5 is our answer", after it in "the answer is 5"."""
    opening, closing, bare = (_last(pattern, text) for pattern in (_PHRASE, _CLOSING_PHRASE, _BARE_PHRASE))
    bare_is_last = bare and all(other is None or bare.end() > other.end() for other in (opening, closing))
    formula = _formula(text[bare.end() :]) if bare and bare_is_last else None
    if formula is not None:
        return formula or None
    if closing and (opening is None or closing.start() > opening.end()):
        before = text[: closing.start()]
        start = _last(_SENTENCE_START, before)
        sentence = before[start.end() if start else 0 :]
        sentence = sentence[_matched(_OPENING_WORDS, sentence, 0) :]
        if sentence:
            return _statement(sentence, choice=choice)
    return _statement(text[_matched(_LEAD, text, opening.end()) :], choice=choice) if opening else None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    last = None
    for match in pattern.finditer(text):
        last = match
    return last


def _matched(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Where the match of a pattern that can be empty ends."""
    match = pattern.match(text, start)
    return match.end() if match else start


def _statement(text: str, *, choice: bool) -> str | None:
    """The answer at the head of a text: one formula with at most a harmless remark, or the first sentence's value."""
    formula = _formula(text)
    if formula is not None:
        return formula or None
    end = _SENTENCE_END.search(text)
    if choice and (letter := asserted_letter(text[: end.start()] if end else text)):
        return letter
    sentence = (text[: end.start()] if end else text).strip(" \t\r*,")
    return _value_said(sentence) or None


def _formula(text: str) -> str | None:
    """The formula at the head of a text with its unit, "" if it cannot be an answer; None if the sentence has more."""
    for left, right in (("\\[", "\\]"), ("\\(", "\\)"), ("$$", "$$"), ("$", "$")):
        if not text.startswith(left) or (left == "$" and _is_currency(text)):
            continue
        inner, closed, rest = text[len(left) :].partition(right)
        if closed and left in ("$", "\\(") and "\n" in inner:
            return ""  # inline math does not span lines: these are two stray marks
        end = _SENTENCE_END.search(rest)
        remark = rest[: end.start()] if end else rest
        if closed and _REMARK.fullmatch(remark) and not _REMARK_HEDGE.search(remark):
            return inner.strip() + _unit_after(remark)
        break
    return None


def _is_currency(text: str) -> bool:
    """Whether the dollar sign at the start of a text means money: an amount follows, then words or no second dollar."""
    inner, closed, _ = text[1:].partition("\n")[0].partition("$")
    return bool(re.match(r"\s?\d", inner)) and (not closed or bool(_ENGLISH.search(_TEXT_GROUP.sub("", inner))))


def _unit_after(remark: str) -> str:
    """A unit that directly follows a formula, as text for the parser; "" when another word follows."""
    word = _ENGLISH.match(remark.strip())
    return f" \\text{{{word[0]}}}" if word and unit_name(word[0]) else ""


def _value_said(sentence: str) -> str:
    """The value that a sentence states: the sentence itself if it is bare, its predicate, or its only value."""
    if len(sentence) > MAX_SENTENCE_LENGTH:
        return sentence
    sentence = _BOLD.sub(r"\1", sentence)
    if is_bare(sentence):
        return sentence
    predicate = None
    for verb in _VERB.finditer(sentence):
        predicate = verb
    if predicate and not _DOUBT.search(sentence, 0, predicate.end()):
        tail = sentence[predicate.end() :].strip()
        if is_bare(tail) and not _hedges(tail):
            return tail
    if _hedges(sentence) or _DOUBT.search(sentence) or _RANGE.search(sentence):
        return sentence
    if any(word.lower() in ALTERING_WORDS or word.lower() in NUMBER_WORDS for word in _WORD.findall(sentence)):
        return sentence
    values = _values_in(sentence)
    return values[0] if len(values) == 1 else sentence


def _hedges(text: str) -> bool:
    return any(word.lower() in HEDGES for word in _WORD.findall(text))


def is_bare(text: str) -> bool:
    """Whether a text is an answer without a sentence around it: a formula, an amount with its unit, a name."""
    outside = _TEXT_GROUP.sub("", _SPANS.sub(" 0 ", text))
    if text.startswith("$") and _is_currency(text):
        outside = text[1:]
    words = _ENGLISH.findall(outside)
    if not any(char.isdigit() for char in outside):
        return 0 < len(outside.split()) <= _MAX_TEXT_WORDS and not any(word.lower() in _VERBS for word in words)
    return all(unit_name(word) is not None for word in words)


def _values_in(sentence: str) -> list[str]:
    """The formulas and amounts of a sentence, each once; formulas that only name a variable do not count."""
    values: list[str] = []
    rest: list[str] = []
    position = 0
    for span in _SPANS.finditer(sentence):
        if span.start() < position or _is_currency(sentence[span.start() :]):
            continue
        rest.append(sentence[position : span.start()])
        position = span.end()
        inner = next(group for group in span.groups() if group is not None)
        if not _BARE_VARIABLE.fullmatch(inner):
            values.append(inner.strip() + _unit_after(sentence[position:]))
        rest.append(" ")
    rest.append(sentence[position:])
    for amount in _AMOUNT.finditer("".join(rest)):
        number, space, word = amount[0].strip().rpartition(" ")
        if space and word.isalpha() and unit_name(word) is None:
            values.append(number)
        else:
            values.append(amount[0].strip())
    return [value.replace("$", "\\$") if value.startswith("$") else value for value in dict.fromkeys(values)]


def _only_answer(text: str, *, choice: bool) -> str | None:
    """A response that is nothing but a short answer; None for any other."""
    text = text.strip()
    if not text or len(text) > MAX_BARE_LENGTH:
        return None
    span = _SPANS.fullmatch(text.rstrip(". "))
    if span:
        return next(group for group in span.groups() if group is not None).strip() or None
    if "\n" in text:
        return None
    if choice:
        return asserted_letter(text)
    text = _BOLD.sub(r"\1", text)
    return text if is_bare(text) else None


_LETTER = re.compile(r"(?<![A-Za-z\\'])\(?([A-HJ])\)?(?![A-Za-z'])")
_ARTICLE = re.compile(r"\s+(?!is\b|was\b|must\b|has\b|can|could|and\b|or\b|it\b|not\b|for\b)[a-z]+")
_LETTER_LIST = re.compile(r"(?<=[A-J]),\s(?=(?:[A-J],\s)*[A-J],?\s(?:and|or)\s\(?[A-J]\b)")
_CLAUSE_END = re.compile(r"[.,;:!?\n]+(?=\s|$)|\s(?:but|so|while|although)\s")
_REASON = re.compile(
    r"\s*(?:because|since|as|given that|in option|in choice|if|option [A-J] (?:says|has|claims))\b", re.IGNORECASE
)
_INNER_REASON = re.compile(r"\s(?:because|since|given that)\s", re.IGNORECASE)
_DENIAL = re.compile(
    r"\b(?:not|never|neither|nor|cannot|wrong|incorrect|false|fails?|impossible|ruled? out|rules out|eliminated?"
    r"|excluded?|instead of|rather than|unlike|too)\b|n't\b",
    re.IGNORECASE,
)


def asserted_letter(text: str) -> str | None:
    """The one choice letter that a text asserts; None when it asserts none or several.

    "For sure D, it can't be A or B" asserts D: a denial covers the letters after it in its clause, or those before it
    where none follows. Letters in a clause that gives a reason do not count.
    """
    asserted: set[str] = set()
    for clause in _CLAUSE_END.split(_LETTER_LIST.sub(" and ", text[-_TAIL:])):
        if _REASON.match(clause):
            continue
        clause = _INNER_REASON.split(clause)[0]
        letters = [
            letter
            for letter in _LETTER.finditer(clause)
            if letter[0] != "A" or not _ARTICLE.match(clause, letter.end())
        ]
        denied: set[int] = set()
        for denial in _DENIAL.finditer(clause):
            after = {letter.start() for letter in letters if letter.start() > denial.start()}
            denied |= after or {letter.start() for letter in letters}
        asserted |= {letter[1] for letter in letters if letter.start() not in denied}
    return asserted.pop() if len(asserted) == 1 else None


def last_letter(text: str) -> str | None:
    """The letter that the last sentence with a choice letter asserts. For evaluation only: it pays for guesses."""
    for sentence in reversed(_SENTENCE_START.split(text[-_TAIL:])):
        if _LETTER.search(sentence):
            return asserted_letter(sentence)
    return None
