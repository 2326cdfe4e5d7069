"""What the last sentence of a response states: "The median is 6.", "So she needs 18 meters of fabric."

A sentence states its result if nothing in it denies, doubts, bounds or conditions it, and nothing in it speaks of a
step, a case, or another or an earlier quantity. It must have exactly one value: the complement of its last verb of
result, or an equation that it ends in. A sentence that leaves a doubt is not read.
"""

from __future__ import annotations

import re

from ansatz.rewards.math_answer.context import refused
from ansatz.rewards.math_answer.dates import canonical_date, is_time
from ansatz.rewards.math_answer.sentence_values import amount_of, inside, is_unit, listed, value_of
from ansatz.rewards.math_answer.sentence_words import (
    COPULA,
    DESCRIBED,
    HARMLESS,
    HYPOTHETICAL,
    INDEFINITE,
    INTEGER_TAIL,
    INTRODUCTION,
    NO_SUBJECT,
    NOUN_STOPS,
    NUMBER_LIST,
    OTHER_THING,
    QUANTITY,
    REFUSING,
    RELATIVE,
    RUNS_ON,
    SO,
    TAIL,
    WE,
    WORD,
)
from ansatz.rewards.math_answer.statements import BOLD, SPANS, masked, without_remark
from ansatz.rewards.math_answer.words import ALTERING_WORDS, NUMBER_WORDS, word_set

_MAX_SEARCHED = 2_000  # characters at the end of a line that are searched for its last sentence
MAX_LENGTH = 400  # characters of a last sentence
_START = re.compile(
    r"(?<!\\)(?<!\b[ap]\.m)(?<!\bi\.e)(?<!\be\.g)(?<!\b(?:vs|cf|Mr|Dr|St))(?<!\bMrs)(?<!\bresp)[.!?](?=\s)|[。！？।؟\n]"
)
_VERBS = (
    r"(?:needs?|takes?(?:\s(?:her|him|them|us|me|you|it))?|lasts?|costs?|pays?|earns?|makes?|spends?|saves?|(?:travels?|moves?|runs?|drives?|flies)\s+at|travels?|requires?|contains?|holds?|weighs?"
    r"|measures?|has|have|gains?|receives?|sells?|uses?|covers?|leaves?|gets?|reads?|runs?|walks?|drives?|flies|bakes?"
    r"|buys?|produces?|fits?|eats?|drinks?|paid|spent|earned|owes?|collects?|scores?|wins?|arrives?\s+(?:at|in)|ends?\s+at)"
)
_OBJECT = re.compile(
    rf"([^\d$\\?=,;:]{{2,120}}?)\s{_VERBS}\s+(?:exactly\s+|precisely\s+|a\s+total\s+of\s+)?((?:\d|\\?\$|[€£¥₹]).{{0,80}})",
    re.IGNORECASE,
)
_ANY_OBJECT = re.compile(
    r"([^\d$\\?=<>≤≥≠,;:]{3,120}?)\s(?:exactly\s+|precisely\s+|a\s+total\s+of\s+)?((?:\d|\\?\$|[€£¥₹]).{0,80})"
)
_NOT_BEFORE = word_set("not_before")
_THERE = re.compile(
    r"there\s+(?:is|are)\s+(?:exactly\s+|precisely\s+|a\s+total\s+of\s+|in\s+total\s+)?"
    r"(\$[^$]{1,40}\$|[\d,]+)\s+([a-z ]{2,80})",
    re.IGNORECASE,
)
_MET = re.compile(
    r"[^,;:]{3,120}\s(?:(?:intersects?|meets?|cross(?:es)?|vanish(?:es)?|touch(?:es)?)|equals?\s[^,;:]{1,40}?)\s(?:only\s|exactly\s)?(?:at|in|for|when)\s+"
    r"(?:the\s+points?\s+)?(\$.*)",
    re.IGNORECASE,
)
_SOME_OF = re.compile(
    r"exactly\s+(\$[^$]{1,40}\$|\d[\d,]*)\s+of\s+(?:the|these|them|those)\b[a-z ]{0,60}(?:\d{1,4}|\$[^$]{1,20}\$)?",
    re.IGNORECASE,
)
_REMAINING = re.compile(
    r"(\d[\d,]*)\s(?:[a-z]+\s){1,2}(?:remain|(?:are|is)\s(?:left|needed|required|necessary|sufficient))", re.IGNORECASE
)
_STATEMENTS = re.compile(
    r"(?:(?:the|this)\s+(?:system|equation|inequality|problem)(?:\s+of\s+equations)?\s+|there\s+(?:is|are)\s+|it\s+)"
    r"(?:has\s+|have\s+)?(?:really\s+|indeed\s+)?(?P<no>(?:no\s+(?:real\s+)?(?:solutions?|roots?)|infinitely\s+many(?:\s+(?:real\s+)?solutions)?))"
    r"|(?P<none>no\s+(?:real\s+)?solutions?\s+exists?)"
    r"|(?P<dne>(?:the|this|that|its)\s+(?:\w+\s+){0,2}\w+\s+(?:do(?:es)?\s+not\s+exist|do(?:es)?n['’]t\s+exist|is\s+undefined|is\s+not\s+defined)|(?:the|this|that|its)\s+(?:\w+\s+){0,2}limit\s+diverges)"
    r"|(?P<open>(?:it|this|that|the\s+\w+(?:\s+\w+){0,2})\s+(?:cannot|can\s+not|can't)\s+be\s+determined)"
    r"|(?P<yes>(?:yes|no),\s+[a-z][a-z ]{1,60})",
    re.IGNORECASE,
)
_DATED = re.compile(
    r"(?:[a-z]+\s+){1,5}?(?:is\s+(?:due|born|held|on)|arrives?|lands?|ends?|falls?|finishes|returns?|is|reaches\s+\w+)\s+(?:on|at)?\s*(?P<date>.{3,60})",
    re.IGNORECASE,
)
_JUDGED = ("statement", "claim", "assertion", "proposition", "conjecture")
_JUDGEMENTS = ("true", "false")
_NAMED = re.compile(
    r"(?:\\text\{[^{}]{1,40}\}|[A-Za-z]{1,12}(?:\s[A-Za-z]{1,12}){0,2}(?:_\{?\w\}?)?)\s?=\s?([^=<>\n]{1,80})"
)


_FIRST_PART = re.compile(
    r"\bfirst\b(?!\s+(?:\d|\w+\s+(?:positive|odd|even|prime|natural)|" + "|".join(NUMBER_WORDS) + "))"
)


def last_sentence(text: str) -> str:
    """The last sentence of a text, without the mark at its end."""
    line = text.rstrip().rpartition("\n")[2].strip()
    hidden = masked(line[-_MAX_SEARCHED:])
    shown = line[-_MAX_SEARCHED:]
    start = max((match.end() for match in _START.finditer(hidden[:-1])), default=0)
    return shown[start:].strip()


def hypothetical(before: str) -> bool:
    """Whether the text before a last sentence runs into it with words such as "assume that"."""
    line = before.rpartition("\n")[2][-80:].lower()
    return not line.endswith((".", "!", "。")) and not RUNS_ON.isdisjoint(WORD.findall(line))


def stated_in(sentence: str) -> str | None:
    """The value that a last sentence states, or None."""
    if not 1 < len(sentence) <= MAX_LENGTH or refused(sentence) or sentence.endswith(("?", ":", ",", ";")):
        return None
    sentence = sentence.rstrip("!") if sentence.endswith("!") else sentence.removesuffix(".")
    stated = without_remark(BOLD.sub(r"\1", sentence)).strip()
    clause = _main_clause(stated)
    if clause is None:
        return None
    opened = clause != stated or "**" in sentence
    clause = HARMLESS.sub(lambda match: match[1] or match[2] or "", clause)
    whole = _statement(clause)
    if whole is not None:
        return whole
    family = INTEGER_TAIL.search(clause)
    if family:
        clause = clause[: family.start()]
    tail = TAIL.search(clause)
    if tail:
        clause, opened = clause[: tail.start()], True
    words = {word.lower() for word in WORD.findall(SPANS.sub(" ", clause))}
    value = _complement(clause, words, opened=opened)
    if value is not None and family:
        return f"{value}, {family['a'] or family['b'] or family['c']} \\in \\mathbb{{Z}}"
    return value


def _main_clause(sentence: str) -> str | None:
    """What a sentence concludes, without "so", "we get" and the reasons before it; None if it is hypothetical."""
    sentence = sentence.removeprefix("∴").removeprefix("\\therefore").strip()
    for pattern in (SO, INTRODUCTION, SO, WE):
        match = _last_match(pattern, sentence) if pattern is SO else pattern.match(sentence)
        if match is None:
            continue
        before = {word.lower() for word in WORD.findall(SPANS.sub(" ", sentence[: match.end()]))}
        if not before.isdisjoint(HYPOTHETICAL) or "?" in sentence[: match.end()]:
            return None
        sentence = sentence[match.end() :]
    return sentence.strip() or None


def _last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    last = None
    for match in pattern.finditer(text):
        if text.count("$", 0, match.start()) % 2 == 0:
            last = match
    return last


def _statement(clause: str) -> str | None:
    """A clause that is an answer as a whole: there is no solution, the limit does not exist, yes."""
    match = _STATEMENTS.fullmatch(clause)
    if match is None:
        return None
    if match["yes"]:
        said = {word.lower() for word in WORD.findall(match["yes"].partition(",")[2])}
        return match["yes"] if said.isdisjoint(REFUSING - {"not", "no"}) else None
    if match["dne"]:
        return "does not exist" if not OTHER_THING.search(clause) else None
    if match["open"]:
        return "cannot be determined"
    return match["no"] or match["none"]


def _complement(clause: str, words: set[str], *, opened: bool) -> str | None:
    """The value of a clause, if no word in it takes it away."""
    dated = _dated(clause, words)
    if dated:
        return dated
    judged = clause.rpartition(" ")[2].lower()
    if judged in _JUDGEMENTS and re.fullmatch(
        rf"(?:the|this|that)\s+(?:{'|'.join(_JUDGED)})\s+is\s+\w+", clause.lower()
    ):
        return judged
    some = _SOME_OF.fullmatch(clause) or (_REMAINING.fullmatch(clause) if opened else None)
    if some and words.isdisjoint(REFUSING | {"percent"}) and not OTHER_THING.search(clause):
        return some[1].strip("$")
    joined = bool(re.search(r"\$\s+or\s+(?:at\s+)?\$", clause))
    if opened:
        clause = re.sub(r"^each\s+(?=\w+\s+(?:is|equals)\b)", "the ", clause, flags=re.IGNORECASE)
    plain = QUANTITY.sub(_head, _without_spans(clause).replace(" must be ", " is "), count=1)
    words = {word.lower() for word in WORD.findall(plain)}
    met = _MET.fullmatch(clause)
    allowed = {"or"} if joined else set[str]()
    if not words.isdisjoint(REFUSING - allowed - ({"half"} if met else set())) or OTHER_THING.search(plain):
        return None
    if met:
        return value_of(met[1].strip(), "")
    shown = _shown(clause) or (value_of(clause, "") if opened and re.match(r"[-\d$\\]", clause) else None)
    if shown:
        return shown
    there = _THERE.fullmatch(clause)
    if there:
        nouns = there[2].lower().split()
        stops = NOUN_STOPS - {"to", "in", "on", "at", "with"}
        whole = nouns[-1] != "such" and stops.isdisjoint(nouns[:2]) and ALTERING_WORDS.isdisjoint(nouns[:2])
        return there[1].strip("$") if whole and nouns[0] not in ("to", "in", "on", "at", "with", "of") else None
    verb = _last_match(COPULA, clause)
    if verb and clause[: verb.start()].strip() and not INDEFINITE.match(clause):
        subject, rest = clause[: verb.start()].strip(), clause[verb.end() :].strip()
        named = _without_spans(NUMBER_LIST.sub(" ", subject))
        about = {word.lower() for word in WORD.findall(QUANTITY.sub(_head, named + " is "))}
        if not about.isdisjoint(NO_SUBJECT | (ALTERING_WORDS - {"root", "power", "third", "quarter"})):
            return None
        if re.search(r"[,;:]", named) or COPULA.search(RELATIVE.sub(" ", named) + " "):
            return None
        return value_of(rest, subject)
    return _counted(clause, opened=opened)


def _head(match: re.Match[str]) -> str:
    """A quantity without its description, or the whole text if the description speaks of a case or a part."""
    return match[1] if plain_description(match[3]) else match[0]


def plain_description(text: str) -> bool:
    """Whether the description of a quantity speaks of no case, no part, and nothing supposed."""
    words = {word.lower() for word in WORD.findall(text)}
    return words.isdisjoint(DESCRIBED) and not _FIRST_PART.search(text)


def _without_spans(text: str) -> str:
    return SPANS.sub(" ", text)


def _shown(clause: str) -> str | None:
    """The equation that a clause consists of, or ends in after a colon or a word for what is shown."""
    spans = list(SPANS.finditer(clause))
    if not spans:
        colon = re.fullmatch(r"[^:]{3,120}[^:\d]:\s+([^:]{1,60})", clause)
        if colon and re.match(r"[-\d\\$]", colon[1]) and COPULA.search(clause[: colon.start(1)]):
            return amount_of(colon[1])
        named = _NAMED.fullmatch(clause)
        return clause if named and amount_of(named[1].strip()) else None
    outside = SPANS.sub("\x00", clause).strip()
    inner = inside(spans[-1])
    if outside == "\x00":
        return inner if re.search(r"=|\\equiv|<|>|\\le|\\ge|\\in\b", inner) else None
    if outside.endswith(("i.e. \x00", "i.e., \x00", "that is, \x00", ": \x00")) and outside.count("\x00") <= 2:
        return inner
    joined = re.fullmatch(r"\x00(?:,?\s+(?:and|or)\s+|,\s+)\x00(?:,\s+\x00)?", outside)
    if joined:
        return listed(clause, spans)
    after = outside.rpartition(": ")[2]
    if len(spans) == 1 and outside.startswith("\x00"):
        after = outside
    unit = re.fullmatch(r"\x00\s+([A-Za-z ]{1,40})", after)
    if unit and "=" in inner and is_unit(unit[1].split()):
        return f"{inner} \\text{{ {unit[1]}}}"
    return None


def _dated(clause: str, words: set[str]) -> str | None:
    """The date or time at which something is due, ends or arrives."""
    match = _DATED.fullmatch(clause)
    if match is None or not words.isdisjoint(REFUSING - {"may"}):
        return None
    if words & {"due", "on"} and "by" in words:
        return None
    date = match["date"].strip()
    return date if canonical_date(date) is not None or is_time(date) else None


def _counted(clause: str, *, opened: bool) -> str | None:
    """The number of things that a clause says there are, or that its subject needs, takes, costs or has.

    opened: after "so" or before "in total", where any verb will do.
    """
    thing = _OBJECT.fullmatch(clause) or (_ANY_OBJECT.fullmatch(clause) if opened else None)
    if (
        thing is None
        or (thing.re is _ANY_OBJECT and thing[1].split()[-1].lower() in _NOT_BEFORE)
        or INDEFINITE.match(clause)
        or SPANS.search(thing[2])
    ):
        return None
    said = thing[2].strip()
    rate = re.fullmatch(r"(.+?)\s(?:per|an?|each)\s[a-z]+", said)
    if rate and not is_unit(said.split()[1:]):
        said = rate[1] if not said.startswith(("$", "\\$")) and " each" not in said else said
    return amount_of(said)
