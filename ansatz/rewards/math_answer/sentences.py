"""What the last sentence of a response states: "The median is 6.", "..., so the shop sells 42 crates."

A sentence is cut at the marks and words that open a conclusion. Nothing before the cut may make it a supposition, and
nothing in the last clause may deny, doubt, bound or attribute it, or speak of a step, a case, or another or an earlier
quantity. Such a clause states the value that it ends in, after a verb and not after a preposition, a label or an
operation; only its unit, a counted noun or a harmless tail may follow. Else it states its only value: the complement of
its copula, a number of things, a date, or that there is none.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ansatz.rewards.math_answer import sentence_words as said
from ansatz.rewards.math_answer.context import refused
from ansatz.rewards.math_answer.dates import canonical_date, is_time
from ansatz.rewards.math_answer.sentence_values import amount_of, is_unit, value_of
from ansatz.rewards.math_answer.sentence_words import PHRASE
from ansatz.rewards.math_answer.statements import SPANS, masked, without_remark
from ansatz.rewards.math_answer.words import ALTERING_WORDS, NUMBER_WORDS, number_from_words, unit_name

_NUMBER = r"(?<![\w.,/^])[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s?/\s?\d+)?(?::\d+)*(?![\w/^]|[.,]\d)"
_VALUE = re.compile(
    rf"\x00+|(?<!\w)\\?[$€£¥₹]\s?\d[\d,]*(?:\.\d+)?(?![\w^])|{_NUMBER}(?:\s?(?:[€£¥₹¢]|\\?%)|°(?![A-Za-z]))?|(?<![\w.])\d[\d,.]*[¢€£](?!\w)"
)
_ONE = rf"(?:\x00+|{_NUMBER})"
_LISTED = re.compile(rf"{_ONE}(?:,\s{_ONE}){{0,12}},?\s+and\s+{_ONE}$")
_SENTENCE = re.compile(
    rf"{PHRASE['copula'].pattern}|\x00|^(?:that|this|it|the|which|s?he|they|there|we)\s", re.IGNORECASE
)
_CHAIN = re.compile(r"[-+*/×·÷^().\d\s]+")
NUMBER_TWICE = re.compile(
    rf"\b((?:(?:{'|'.join(NUMBER_WORDS)}|hundred|thousand|and)[\s-]?)+)\s?\((\d[\d,]*)\)", re.IGNORECASE
)
_PARTS_OF_NAMES = frozenset({"root", "power", "third", "quarter", "need", "needs", "over"})
MAX_LENGTH = 400  # characters of a sentence
_RATIO = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s+to\s+$")


_MAX_SEARCHED = 2_000  # characters at the end of a line that are searched for its last sentence


def last_sentence(text: str) -> str:
    """Return the last sentence of a text, without the mark at its end."""
    line = text.rstrip().rpartition("\n")[2].strip()
    hidden = masked(line[-_MAX_SEARCHED:])
    shown = line[-_MAX_SEARCHED:]
    start = max((match.end() for match in PHRASE["start"].finditer(hidden[:-1])), default=0)
    return shown[start:].strip()


def hypothetical(before: str) -> bool:
    """Return whether the text before a last sentence runs into it with words such as "assume that"."""
    line = before.rpartition("\n")[2][-80:].lower()
    return not line.endswith((".", "!", "。")) and not said.RUNS_ON.isdisjoint(said.WORD.findall(line))


class _Clause(NamedTuple):
    """The last clause of a sentence. opened: by a conclusion. introduced: by that, by a reason, or in bold letters."""

    text: str
    opened: bool
    introduced: bool


def stated_in(sentence: str) -> str | None:
    """Return the value that a sentence states, or None."""
    if not 1 < len(sentence) <= MAX_LENGTH or refused(sentence.replace("falls ", " ")):
        return None
    text = NUMBER_TWICE.sub(_number_once, PHRASE["code"].sub(r"\1", sentence.replace("**", "")))
    text = without_remark(text).strip().rstrip("!").removesuffix(".")
    hidden = masked(text)
    if text.startswith("{") or "?" in hidden or hidden.endswith((":", ",", ";")):
        return None
    tail = PHRASE["tail"].search(text)
    clause = _last_clause(text[: tail.start()] if tail else text, bold="**" in sentence, opened=tail is not None)
    if clause is None:
        return None
    text = PHRASE["harmless"].sub(lambda match: match[1] or match[2] or "", clause.text)
    family = PHRASE["integer_tail"].search(text)
    if family:
        value = _complement(text[: family.start()], opened=True)
        return value and f"{value}, {family['a'] or family['b'] or family['c']} \\in \\mathbb{{Z}}"
    ending = _ending(text.replace("must be", "is"), opened=clause.opened)
    return ending or _statement(text) or _complement(text, opened=clause.introduced)


def _number_once(match: re.Match[str]) -> str:
    """Write `thirty (30)` as 30; the words stay where they are another number."""
    return match[2] if number_from_words(match[1]) == int(match[2].replace(",", "")) else match[0]


def _words(text: str) -> set[str]:
    return {word.lower() for word in said.WORD.findall(text)}


def _last_clause(sentence: str, *, bold: bool, opened: bool) -> _Clause | None:
    """Cut a sentence before its last clause; None if what is cut off makes it a supposition."""
    hidden, start = masked(sentence), 0
    for cut in PHRASE["cut"].finditer(hidden):
        behind = hidden[cut.end() :]
        if cut["label"] and not _heads(hidden[start : cut.start()], clause=_SENTENCE.search(behind) is not None):
            return None
        labelled = cut["label"] is not None and (bold or PHRASE["quantity_label"].search(hidden, start, cut.start()))
        start, opened = cut.end(), opened or bool(labelled) or cut["so"] is not None
    results = list(PHRASE["we"].finditer(hidden, start))
    if results:
        ours = PHRASE["opening"].sub("", PHRASE["harmless_inside"].sub(" ", hidden[start : results[-1].start()]))
        if not _words(ours).isdisjoint(said.REFUSED):
            return None
        start, opened = results[-1].end(), True
    if not _words(PHRASE["harmless_inside"].sub(" ", hidden[:start])).isdisjoint(said.HYPOTHETICAL):
        return None
    introduced = opened or bold
    while opening := PHRASE["opening"].match(hidden[start:]):
        if not _words(opening[0]).isdisjoint(said.HYPOTHETICAL):
            return None
        start, introduced = start + opening.end(), True
    return _Clause(sentence[start:], opened, introduced)


def _heads(text: str, *, clause: bool) -> bool:
    """Return whether the words before a colon or a dash leave what follows a statement.

    clause: what follows has a verb or a formula.
    """
    words = _words(text)
    if clause:
        return words.isdisjoint(said.REFUSED - said.IN_REASONS)
    return words.isdisjoint(said.REFUSED) and not PHRASE["other_thing"].search(text)


def _ending(clause: str, *, opened: bool) -> str | None:
    """Return the value in which a clause ends: "the shop sells 42 crates"."""
    hidden = masked(clause)
    plain = PHRASE["gerund_subject"].sub("", PHRASE["harmless_inside"].sub(" ", PHRASE["quantity"].sub(_head, hidden)))
    words = _words(plain)
    named = _named(clause, words, opened=opened)
    if named:
        return named
    opened = opened or not words.isdisjoint({"therefore", "thus", "hence"})
    if not opened and not words.isdisjoint(said.PAST):
        return None
    if not words.isdisjoint(said.REFUSED) or PHRASE["other_thing"].search(plain) or PHRASE["current"].search(plain):
        return None
    dated = PHRASE["date"].search(clause)
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
    """Return a value in words: the weekday, place, or predicate in which a clause ends."""
    if not words.isdisjoint(said.REFUSED - {"lies", "later", "after"}):
        return None
    match = (
        PHRASE["weekday"].search(clause)
        or PHRASE["place"].search(clause)
        or PHRASE["predicate"].fullmatch(clause)
        or PHRASE["placed"].search(clause)
    )
    if match:
        return match[1]
    return clause if opened and PHRASE["wins"].fullmatch(clause) else None


def _last_value(clause: str, hidden: str, values: list[re.Match[str]], *, opened: bool) -> str | None:
    value = values[-1]
    before, after = hidden[: value.start()], clause[value.end() :]
    text = clause[value.start() : value.end()].strip()
    if text.startswith("\\") or hidden[value.start()] == "\x00":
        span = SPANS.match(text)
        if span:
            text = next(group for group in span.groups() if group is not None).strip()
    if re.match(r"\s?[ap]\.?m\b\.?$", after, re.IGNORECASE):
        return text + after if PHRASE["arrives_at"].search(before) or (opened and before.endswith(" at ")) else None
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
    """Split "Cost = 4 × 12 = 48" into what stands before the chain, and the chain, which must be right."""
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
    """Return the unit behind a value, "" if there is none; None if the words behind it change its meaning."""
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
    if any(PHRASE["compared"].search(word) and unit_name(word) is None for word in low):
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
    """Return whether the words before a value make it a result."""
    while adverb := PHRASE["adverbs"].search(before):
        before = before[: adverb.start()]
    if not before.strip():
        return True
    written = before
    before = PHRASE["gerund_subject"].sub("this ", PHRASE["harmless_inside"].sub(" ", before))
    words = said.WORD.findall(before)
    low = {word.lower() for word in words[:-1]}
    if (
        ({"need", "needs"} & low and "to" in low)
        or not low.isdisjoint((ALTERING_WORDS | said.NO_SUBJECT) - _PARTS_OF_NAMES)
        or PHRASE["conditioned"].match(before)
    ):
        return False
    if before.rstrip().endswith("="):
        return said.NAME.fullmatch(before.rstrip(" =")) is not None
    if any(
        pattern.search(written)
        for pattern in (PHRASE["leads_to"], PHRASE["quantity_of"], PHRASE["apposed"], PHRASE["takes_someone"])
    ):
        return True
    if formula and (PHRASE["exactly_for"].search(written) or PHRASE["meets_at"].search(written)):
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
        return not (numbers and PHRASE["copula"].search(before[: -len(last) - 1])) if subject else opened
    if (
        (last in said.LABELS and not (listed and last in said.LISTED_NOUNS))
        or last in said.NUMBERED_NOUNS
        or PHRASE["denied_verbs"].match(last)
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
    """Return a value with its unit in the parser's spelling."""
    if text.startswith(("$", "€", "£", "¥", "₹")):
        return text.replace("$", "\\$")
    if text.endswith("¢"):
        return text[:-1].strip() + " \\text{ cents}"
    if text.endswith("%") and not text.endswith("\\%"):
        text = text[:-1] + "\\%"
    return text.replace("−", "-") + unit


def _statement(clause: str) -> str | None:
    """Return a clause that is an answer as a whole: there is no solution, the limit does not exist, yes."""
    match = PHRASE["statements"].fullmatch(clause)
    if match is None:
        return None
    if match["yes"]:
        reason = _words(match["yes"].partition(",")[2])
        return match["yes"] if reason.isdisjoint(said.REFUSING - {"not", "no"}) else None
    if match["dne"]:
        return "does not exist" if not PHRASE["other_thing"].search(clause) else None
    if match["open"]:
        return "cannot be determined"
    return match["judged"] or match["no"] or match["none"]


def _complement(clause: str, *, opened: bool) -> str | None:
    """Return the only value of a clause, if no word in it takes it away."""
    words = _words(SPANS.sub(" ", clause))
    dated = _dated(clause, words)
    if dated:
        return dated
    some = PHRASE["some_of"].fullmatch(clause) or (PHRASE["remaining"].fullmatch(clause) if opened else None)
    if some and words.isdisjoint(said.REFUSING | {"percent"}) and not PHRASE["other_thing"].search(clause):
        return some[1].strip("$")
    joined = bool(re.search(r"\$\s+or\s+(?:at\s+)?\$|\b([a-z]) = \S+ or \1 = ", clause))
    clause = PHRASE["each" if opened else "each_angle"].sub("the ", clause)
    plain = PHRASE["quantity"].sub(_head, SPANS.sub(" ", clause).replace(" must be ", " is "), count=1)
    words = _words(plain)
    if not words.isdisjoint(said.REFUSING - ({"or"} if joined else set())) or PHRASE["other_thing"].search(plain):
        return None
    shown = value_of(clause, "") if opened and re.match(r"[-\d$\\(]", clause) else None
    if shown:
        return shown
    there = PHRASE["there"].fullmatch(clause)
    if there:
        nouns = there[2].lower().split()
        stops = said.NOUN_STOPS - {"to", "in", "on", "at", "with"}
        whole = nouns[-1] != "such" and stops.isdisjoint(nouns[:2]) and ALTERING_WORDS.isdisjoint(nouns[:2])
        return there[1].strip("$") if whole and nouns[0] not in ("to", "in", "on", "at", "with", "of") else None
    verbs = [verb for verb in PHRASE["copula"].finditer(clause) if clause.count("$", 0, verb.start()) % 2 == 0]
    verb = verbs[-1] if verbs else None
    if verb and clause[: verb.start()].strip() and not PHRASE["indefinite"].match(clause):
        subject, rest = clause[: verb.start()].strip(), clause[verb.end() :].strip()
        named = SPANS.sub(" ", said.NUMBER_LIST.sub(" ", subject))
        about = _words(PHRASE["quantity"].sub(_head, named + " is "))
        if not about.isdisjoint(said.NO_SUBJECT | (ALTERING_WORDS - {"root", "power", "third", "quarter"})):
            return None
        if re.search(r"[,;:]", named) or PHRASE["copula"].search(PHRASE["relative"].sub(" ", named) + " "):
            return None
        return value_of(rest, subject)
    return _counted(clause, opened=opened)


def _head(match: re.Match[str]) -> str:
    """Return a quantity without its description, unless that speaks of a case or a part, or supposes something."""
    plain = _words(match[3]).isdisjoint(said.DESCRIBED) and not PHRASE["first_part"].search(match[3])
    return match[1] if plain else match[0]


def _dated(clause: str, words: set[str]) -> str | None:
    """Return the date or time at which something is due, ends or arrives."""
    match = PHRASE["dated"].fullmatch(clause)
    if match is None or not words.isdisjoint(said.REFUSING - {"may"}):
        return None
    if words & {"due", "on"} and "by" in words:
        return None
    date = match["date"].strip()
    return date if canonical_date(date) is not None or is_time(date) else None


def _counted(clause: str, *, opened: bool) -> str | None:
    """Return the number of things that a clause says there are, or that its subject needs, takes, costs or has.

    opened: after "so" or before "in total", where any verb will do.
    """
    thing = PHRASE["object"].fullmatch(clause) or (PHRASE["any_object"].fullmatch(clause) if opened else None)
    if (
        thing is None
        or (thing.re is PHRASE["any_object"] and thing[1].split()[-1].lower() in said.NOT_BEFORE)
        or PHRASE["indefinite"].match(clause)
        or SPANS.search(thing[2])
    ):
        return None
    amount = thing[2].strip()
    rate = re.fullmatch(r"(.+?)\s(?:per|an?|each)\s[a-z]+", amount)
    if rate and not is_unit(amount.split()[1:]):
        amount = rate[1] if not amount.startswith(("$", "\\$")) and " each" not in amount else amount
    return amount_of(amount)
