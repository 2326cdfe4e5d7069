"""The value in which the last clause of a sentence ends: "..., so the shop sells 42 crates" states 42.

A sentence is cut at the marks and words that open a conclusion. Nothing before the cut may make it a supposition, and
nothing in the clause may deny, doubt, bound or attribute it. The clause must end in one value, after a verb and not
after a preposition, a label or an operation; only its unit, a counted noun or a harmless tail may follow.
"""

from __future__ import annotations

import re

from ansatz.rewards.math_answer import clause_words as said
from ansatz.rewards.math_answer.context import refused
from ansatz.rewards.math_answer.dates import canonical_date
from ansatz.rewards.math_answer.last_sentence import plain_description
from ansatz.rewards.math_answer.sentence_values import is_unit
from ansatz.rewards.math_answer.sentence_words import (
    COPULA,
    HARMLESS,
    HYPOTHETICAL,
    INTEGER_TAIL,
    NO_SUBJECT,
    OTHER_THING,
    QUANTITY,
    TAIL,
    WORD,
)
from ansatz.rewards.math_answer.statements import SPANS, masked, without_remark
from ansatz.rewards.math_answer.words import ALTERING_WORDS, unit_name

_NUMBER = r"(?<![\w.,/^])[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s?/\s?\d+)?(?::\d+)*(?![\w/^]|[.,]\d)"
_VALUE = re.compile(
    rf"\x00+|(?<!\w)\\?[$€£¥₹]\s?\d[\d,]*(?:\.\d+)?(?![\w^])|{_NUMBER}(?:\s?(?:[€£¥₹¢]|\\?%))?|(?<![\w.])\d[\d,.]*[¢€£](?!\w)"
)
_SPACED_MARK = re.compile(r"[\s*]+")
_ONE = rf"(?:\x00+|{_NUMBER})"
_LISTED = re.compile(rf"{_ONE}(?:,\s{_ONE}){{0,12}},?\s+and\s+{_ONE}$")
_SENTENCE = re.compile(rf"{COPULA.pattern}|\x00|^(?:that|this|it|the|which|s?he|they|there|we)\s", re.IGNORECASE)
_CHAIN = re.compile(r"[-+*/×·÷^().\d\s]+")
_PARTS_OF_NAMES = frozenset({"root", "power", "third", "quarter", "need", "needs", "over"})
_CONDITIONED = re.compile(
    r"(?:for|with|when|provided|given|were|at|in|if)\s+\x00|(?:provided|were|given|when)\b|it\s+is\s+(?:given|known|required)",
    re.IGNORECASE,
)
_GERUND_SUBJECT = re.compile(
    r"^(?!try|test|check|verif|assum|suppos|guess|tak|choos)[A-Z][a-z]+ing\s[^,]*?\s(?=(?:leaves|gives|yields|produces|makes|shows|results|leads)\s)"
)
MAX_LENGTH = 400  # characters of a sentence
_TIME_BEHIND = re.compile(r"\s?[ap]\.?m\b\.?$", re.IGNORECASE)
_RATIO = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s+to\s+$")
_DATE = re.compile(
    r"(?:the\s+)?(\d{1,2}(?:st|nd|rd|th)\s+(?:of\s+)?[A-Z][a-z]+|[A-Z][a-z]+\s+\d{1,2}(?:st|nd|rd|th)?)$"
)
_UNIT = re.compile(r"[A-Za-zμΩ°²³][\w°²³/·^-]*")
_COMPARED = re.compile(
    r"\b(?!(?:liter|litre|meter|metre|number|paper|water|flower|letter|order|corner|player|winter|summer|other|over|river|tower|ladder)s?\b)[a-z]{3,}er$"
)


def ending(sentence: str) -> str | None:
    """The value in which a sentence without its end mark ends, or None."""
    bold = "**" in sentence
    sentence = without_remark(sentence.replace("**", "")).strip().removesuffix(".")
    hidden = masked(sentence)
    if (
        len(sentence) > MAX_LENGTH
        or sentence.startswith("{")
        or refused(sentence.replace("falls ", " "))
        or "?" in hidden
        or hidden.endswith((":", ",", ";"))
    ):
        return None
    tail = TAIL.search(sentence)
    if tail:
        sentence, hidden = sentence[: tail.start()], masked(sentence[: tail.start()])
    start, opened = 0, tail is not None
    for cut in said.CUT.finditer(hidden):
        behind = hidden[cut.end() :]
        if cut["label"] and not _heads(hidden[start : cut.start()], clause=_SENTENCE.search(behind) is not None):
            return None
        opened = opened or (
            cut["label"] is not None and (bold or said.QUANTITY_LABEL.search(hidden, start, cut.start()) is not None)
        )
        start, opened = cut.end(), opened or cut["so"] is not None
    results = list(said.WE.finditer(hidden, start))
    if results:
        result = results[-1]
        ours = said.HARMLESS_INSIDE.sub(" ", hidden[start : result.start()])
        if not {word.lower() for word in WORD.findall(ours)}.isdisjoint(said.REFUSED):
            return None
        start, opened = result.end(), True
    governor = {word.lower() for word in WORD.findall(said.HARMLESS_INSIDE.sub(" ", hidden[:start]))}
    if not governor.isdisjoint(HYPOTHETICAL):
        return None
    clause, hidden = _without_opening(sentence[start:], hidden[start:])
    if clause is None:
        return None
    return _ending(clause, hidden, opened=opened)


def _heads(text: str, *, clause: bool) -> bool:
    """Whether the words before a colon or a dash leave what follows a statement. clause: it has a verb or a formula."""
    words = {word.lower() for word in WORD.findall(text)}
    return (
        words.isdisjoint(said.REFUSED - said.IN_REASONS)
        if clause
        else words.isdisjoint(said.REFUSED) and not OTHER_THING.search(text)
    )


def _without_opening(clause: str, hidden: str) -> tuple[str | None, str]:
    """A clause without a reason, a place or an adverb before a comma; None if that is a supposition."""
    opening = said.OPENING.match(hidden)
    while opening:
        if not {word.lower() for word in WORD.findall(opening[0])}.isdisjoint(HYPOTHETICAL):
            return None, ""
        clause, hidden = clause[opening.end() :], hidden[opening.end() :]
        opening = said.OPENING.match(hidden)
    return clause, hidden


def _ending(clause: str, hidden: str, *, opened: bool) -> str | None:
    clause = HARMLESS.sub(lambda match: match[1] or match[2] or "", clause).replace("must be", "is")
    family = INTEGER_TAIL.search(clause)
    if family:
        return None
    hidden = masked(clause)
    plain = QUANTITY.sub(lambda match: match[1] if plain_description(match[3]) else match[0], hidden)
    plain = _GERUND_SUBJECT.sub("", said.HARMLESS_INSIDE.sub(" ", plain))
    words = {word.lower() for word in WORD.findall(plain)}
    named = _named(clause, words, opened=opened)
    if named:
        return named
    opened = opened or not words.isdisjoint({"therefore", "thus", "hence"})
    if not opened and not words.isdisjoint(said.PAST):
        return None
    if not words.isdisjoint(said.REFUSED) or OTHER_THING.search(plain) or said.CURRENT.search(plain):
        return None
    dated = _DATE.search(clause)
    if dated and canonical_date(dated[1].replace(" of ", " ")) is not None:
        before = clause[: dated.start()]
        return (
            dated[1].replace(" of ", " ")
            if (opened and not before.strip()) or re.search(r"\b(?:is|on|reach|reaches|be|to)\s+$", before)
            else None
        )
    values = list(_VALUE.finditer(hidden))
    if not values:
        return None
    return _last_value(clause, hidden, values, opened=opened)


def _named(clause: str, words: set[str], *, opened: bool) -> str | None:
    """A value in words: the weekday, place, or predicate in which a clause ends."""
    if not words.isdisjoint(said.REFUSED - {"lies", "later", "after"}):
        return None
    match = (
        said.WEEKDAY.search(clause)
        or said.PLACE.search(clause)
        or said.PREDICATE.fullmatch(clause)
        or said.PLACED.search(clause)
    )
    if match:
        return match[1]
    return clause if opened and said.WINS.fullmatch(clause) else None


def _last_value(clause: str, hidden: str, values: list[re.Match[str]], *, opened: bool) -> str | None:
    value = values[-1]
    before, after = hidden[: value.start()], clause[value.end() :]
    text = clause[value.start() : value.end()].strip()
    if text.startswith("\\") or hidden[value.start()] == "\x00":
        span = SPANS.match(text)
        if span:
            text = next(group for group in span.groups() if group is not None).strip()
    if re.match(r"\s?[ap]\.?m\b\.?$", after, re.IGNORECASE):
        return text + after if said.ARRIVES_AT.search(before) or (opened and before.endswith(" at ")) else None
    ratio = _RATIO.search(before)
    if ratio and not after.strip():
        text, before, values = f"{ratio[1]}:{text}", before[: ratio.start()], values[:-1]
    listed = _LISTED.search(hidden)
    if listed and listed.end() == value.end():
        items = [clause[item.start() : item.end()].strip(" $") for item in _VALUE.finditer(hidden, listed.start())]
        text, before = ", ".join(items), hidden[: listed.start()]
    chain = _chained(clause, before, text)
    if chain is not None:
        before, text, opened = *chain, True
    unit = _behind(text, after, formula=hidden[value.start()] == "\x00")
    if unit is None:
        return None
    if before.strip() and not _asserted(
        before, text, unit, opened=opened, formula=hidden[value.start()] == "\x00", listed=listed is not None
    ):
        return None
    if not before.strip() and not (opened and (after.strip() or "=" in text or opened)):
        return None
    return _written(text, unit)


def _chained(clause: str, before: str, text: str) -> tuple[str, str] | None:
    """For "Cost = 4 × 12 = 48": what stands before the chain, and its last value. The calculation must be right."""
    if not before.rstrip().endswith("="):
        return None
    first, *middle = [part.strip() for part in before.rstrip()[:-1].split("=")]
    if any(not _CHAIN.fullmatch(part) for part in middle):
        return None
    if _CHAIN.fullmatch(first):
        first, middle = "", [first, *middle]
    shown = " = ".join(
        (*(part.replace("×", "\\times ").replace("·", "\\cdot ").replace("÷", "/") for part in middle), text)
    )
    return ("", shown) if not first or said.NAME.fullmatch(first) else None


def _behind(text: str, after: str, *, formula: bool) -> str | None:
    """The unit behind a value, "" if there is none; None if the words behind it change its meaning."""
    words = after.split()
    if ":" in text and words and words[0] != "to":
        return None
    if any(char.isdecimal() or char in "$=<>\x00,;:(" for char in after) and not re.match(
        r"\s+of\s+(?:the|these|those|them|all)\s", after
    ):
        return None
    if re.match(r"\s*[-+*/^×·÷]", after):
        return None
    low = [word.lower().strip(".,") for word in words]
    counted = low[1:] if low[:1] == ["percent"] else low
    if not said.STOPS_BEHIND.isdisjoint(counted) or not (ALTERING_WORDS - {"over", "below"}).isdisjoint(counted):
        return None
    if any(_COMPARED.search(word) and unit_name(word) is None for word in low):
        return None
    if "to" in low and not {"left", "remaining"}.isdisjoint(low):
        return None
    if low[:1] == ["percent"]:
        return "\\%"
    if low[:2] == ["degrees", "celsius"] or low[:2] == ["degrees", "fahrenheit"]:
        return f"^\\circ\\text{{{words[1][0].upper()}}}"
    for count in range(min(4, len(words)), 0, -1):
        if (
            is_unit(words[:count])
            or (count == 1 and re.search(r"[/²³^°·]", words[0]))
            or (count == 1 and words[0] in ("m", "g", "s", "L", "N", "J", "W", "V", "A", "K", "h"))
        ):
            return f" {words[0]}" if re.search(r"[/²³^°·]", words[0]) else f" \\text{{ {' '.join(words[:count])}}}"
    if formula and words and after[:1] != " ":
        return None
    return ""


def _asserted(before: str, text: str, unit: str, *, opened: bool, formula: bool, listed: bool) -> bool:
    """Whether the words before a value make it a result."""
    while adverb := said.ADVERBS.search(before):
        before = before[: adverb.start()]
    if not before.strip():
        return True
    written = before
    before = _GERUND_SUBJECT.sub("this ", said.HARMLESS_INSIDE.sub(" ", before))
    words = WORD.findall(before)
    low = {word.lower() for word in words[:-1]}
    if (
        ({"need", "needs"} & low and "to" in low)
        or not low.isdisjoint((ALTERING_WORDS | NO_SUBJECT) - _PARTS_OF_NAMES)
        or _CONDITIONED.match(before)
    ):
        return False
    if before.rstrip().endswith("="):
        return said.NAME.fullmatch(before.rstrip(" =")) is not None
    if any(pattern.search(written) for pattern in (said.LEADS_TO, said.QUANTITY_OF, said.APPOSED, said.TAKES_SOMEONE)):
        return True
    if formula and (said.EXACTLY_FOR.search(written) or said.MEETS_AT.search(written)):
        return True
    if not words or not before.endswith(" ") or not before.rstrip().endswith(words[-1]):
        return False
    last = words[-1].lower()
    subject = words[:-1]
    if last in ("at", "after", "in") and len(words) > 2:
        time = re.search(r"\{ ?(\w+)", unit)
        if last == "at":
            return ":" in text and "x00" not in text
        return bool(time and unit_name(time[1]) in said.TIME_UNITS)
    if last in ("is", "are", "equals", "equal", "be", "becomes", "was", "were", "remains", "remain"):
        numbers = _VALUE.search(before)
        return not (numbers and COPULA.search(before[: -len(last) - 1])) if subject else opened
    if (
        (last in said.LABELS and not (listed and last in said.LISTED_NOUNS))
        or last in said.NUMBERED_NOUNS
        or said.DENIED_VERBS.match(last)
    ):
        return False
    if not subject:
        return False
    first = subject[0].lower()
    if first in ("we", "i", "you", "let", "to"):
        return last in said.RESULT_OF_US
    if first in ("they", "these", "those", "both") and len(subject) == 1:
        return True
    numbers = _VALUE.search(before)
    if numbers and not subject[0].endswith("ing"):
        return False
    return last in said.PLAIN_VERBS or (
        last.endswith(("s", "ed") if opened else "s") and not last.endswith(("ss", "us", "'s"))
    )


def _written(text: str, unit: str) -> str:
    """A value with its unit in the parser's spelling."""
    if text.startswith(("$", "€", "£", "¥", "₹")):
        return text.replace("$", "\\$")
    if text.endswith("¢"):
        return text[:-1].strip() + " \\text{ cents}"
    if text.endswith("%") and not text.endswith("\\%"):
        text = text[:-1] + "\\%"
    return text.replace("−", "-") + unit
