"""The words around an answer in a box or a tag, which can still say that it is not one.

"not \\boxed{8}", "\\boxed{7} or \\boxed{8}", "\\boxed{8} is wrong" and "\\boxed{8}. Wait, no." do not state 8. Only the
words directly around the mark and the sentences after it are read, so the steps before it can say what they like.
Every scan is linear in the length of the text.
"""

from __future__ import annotations

import re

from ansatz.rewards.math_answer import languages
from ansatz.rewards.math_answer.phrases import phrases_of
from ansatz.rewards.math_answer.words import unit_name, word_set

_PHRASE = phrases_of("context")

MAX_LINK = 60  # characters between two marks that can belong together
_NEAR = 70  # characters before a mark that can deny it
_FAR = 120  # characters after it
_SENTENCE_BEFORE = 300  # characters before it that its sentence can take
_SHORT_REST = 12  # characters after it that say nothing
_REMARKS = 8_000  # characters after it that can take it back

_CHOICE = re.compile(rf"(?<![A-Za-z\\])(?:{_PHRASE['either'].pattern}|of)(?![A-Za-z])|\\lor|\\vee|/|\|", re.IGNORECASE)

_SPACED = str.maketrans(dict.fromkeys('$*_()[]{},;:.!?\\"`~&=\n', " "))
_DENIALS = word_set("denials")
"""Words that, directly before an answer, deny it, doubt it, or make it a bound."""
_ALTERING = word_set("altering_before")
_SUSPICIOUS_LAST = word_set("altering_before", "suspicious_last")
_CONSISTING = word_set("consisting")
_ARTICLES = frozenset({"a", "an", "the", "its", "his", "her", "their", "our", "my", "your", "this", "that"})
_PARTS = _ALTERING | word_set("taking_part")
_OPERATIONS = _PARTS | word_set("operations")
_SUSPICIOUS = word_set("denials", "suspicious")
_GLUE = word_set("glue")
"""Words between a denial and the answer that it denies: "it is not true that the answer is"."""
_ENDS = frozenset(",.;!?:") | frozenset(languages.CLAUSE_ENDS)
_JOINS = frozenset(f"{_PHRASE['either'].pattern}|{languages.AND}".split("|"))
_REFUSED = re.compile(languages.REFUSED, re.IGNORECASE)
_CHANGED = re.compile(languages.CHANGED_BEFORE, re.IGNORECASE)
_CLAUSE_END = re.compile(rf"[.!?;:,\n)](?=\s|$)|[{languages.CLAUSE_ENDS}]")

_OPENING_MARKS = " \n$*([{\\"
_CLOSING_MARKS = " \n$.*!)]}\\"
_CLOSED = re.compile(r"(?:[\s$*}`\"]|\\[\]),;:! ]|\\q?quad|~|\\?%)*")
_SENTENCE = re.compile(rf"[.!?\n{languages.CLAUSE_ENDS}]|$")
_TELLING = languages.ASCII_RETRACTIONS | word_set("telling")
"""Every retraction in plain letters contains one of these words: a fast check for an ASCII text."""
_WRONG = re.compile(languages.WRONG, re.IGNORECASE)
_OTHER_NAME = re.compile(rf",?\s*(?<!\w)(?:{languages.OR})\s+[^\W\d_]{{2,}}", re.IGNORECASE)
_RAISED = str.maketrans("²³", "23")
_NO_UNITS = frozenset({"%", "deg", "th", "unit", "in"})


def refused(clause: str) -> bool:
    """Return whether a clause denies, doubts or bounds something in a language other than English."""
    if clause.isascii() and languages.ASCII_WORDS.isdisjoint(clause.lower().translate(_SPACED).split()):
        return False
    return _REFUSED.search(clause) is not None


def separator(gap: str) -> str | None:
    """Return what joins two marked answers into a list: " or ", ", ", or None if more than that stands between them."""
    if len(gap) > MAX_LINK or not _PHRASE["link"].fullmatch(gap) or _PHRASE["doubt"].search(gap):
        return None
    return " or " if _CHOICE.search(gap) else ", "


def read_before(text: str, start: int) -> tuple[bool, tuple[str, str] | None]:
    """Read the words directly before a mark.

    First: whether they deny it, doubt it, bound it, or make it part of a formula. Second: a value without a mark that
    they list with it, and its separator, as in "7 or \\boxed{8}".
    """
    window = text[max(0, start - _NEAR) : start]
    words = window.lower().translate(_SPACED).split()
    last, plain = words[-3:], window.isascii()
    formula = _PHRASE["formula_before"].search(window[-24:])
    if formula and (formula["spaced"] is None or _in_formula(window)) and not _PHRASE["tag"].search(window):
        return True, None
    listed = None
    if not plain or not _JOINS.isdisjoint(last) or "," in window[-6:]:
        match = _PHRASE["value_before"].search(window)
        value = match and (match[1] or match[2])
        if match and value:
            listed = value, " or " if _CHOICE.search(window, match.start() + len(value)) else ", "
    if not plain or not languages.ASCII_WORDS.isdisjoint(words):
        *_, clause = _CLAUSE_END.split(window.rstrip(_OPENING_MARKS + ",，、،"))
        if _REFUSED.search(clause):
            return True, None
    if last and last[-1] in languages.OF_WORDS and _CHANGED.search(window):
        return True, None
    if "of" in last:
        stripped = without_amount(window)
        if stripped is None:
            return True, None
        window, last = stripped, stripped.lower().translate(_SPACED).split()[-3:]
    if plain and _SUSPICIOUS.isdisjoint(words) and _SUSPICIOUS_LAST.isdisjoint(last):
        return False, listed
    return _denied_by_words(window) or _PHRASE["never_before"].search(window) is not None, listed


def affirmed_or_denied(text: str, start: int, end: int) -> bool | None:
    """Return whether the sentence of a mark says that nothing else is possible (True) or denies the mark (False)."""
    line = text[max(0, start - _SENTENCE_BEFORE) : start]
    sentence = line[max(line.rfind(". "), line.rfind("\n"), line.rfind("! ")) + 1 :]
    near = sentence[-40:]
    if (
        ("than" in near or "any" in near or "but" in near)
        and _PHRASE["nothing_else"].search(near)
        and _PHRASE["impossible"].search(sentence)
    ):
        return True
    if _PHRASE["others"].match(sentence):
        return False
    low = sentence.lower()
    foreign = not low.isascii() or not languages.TELLING_WORDS.isdisjoint(low.translate(_SPACED).split())
    if foreign and _PHRASE["misled_sentence"].search(sentence):
        return False
    if (" no" in low or "un" in low or "determ" in low) and _PHRASE["never_in_sentence"].search(sentence):
        return False
    if " that " in low and _PHRASE["denied_that"].search(sentence):
        return False
    if "boxed" in low and _PHRASE["by_cases"].search(sentence):
        return False
    if len(text) - end > _SHORT_REST:
        if ("ssum" in low or "uppos" in low or "magin" in low) and _PHRASE["supposed"].match(sentence):
            return False if _PHRASE["refuted"].search(text, end, end + _REMARKS) else None
        led = _PHRASE["led_away"].match(text, end)
        if _PHRASE["miscounted"].match(text, end) or (led and (led["value"] or "?") not in text[start:end]):
            return False
    return None


def _denied_by_words(window: str) -> bool:
    """Walk back from a mark over words such as "the answer is" to the word that governs them."""
    glued: set[str] = set()
    in_label = False
    for token in reversed(_PHRASE["token"].findall(window.replace("’", "'"))):
        if not _PHRASE["word_like"].fullmatch(token):
            if token in _ENDS:
                return False
            in_label = in_label or token == "="
            if not in_label and token.isdigit():
                return False
            continue
        word = token.lower()
        if word in _ALTERING:
            return glued <= {"of", "the", "a", "to"}
        if word in _DENIALS:
            return word != "if" or not _PHRASE["equivalent"].search(window)
        if word not in _GLUE:
            return False
        glued.add(word)
    return False


def without_amount(text: str) -> str | None:
    """Return a text without the words "a total of" or "the value of" at its end; None if they change what follows.

    "The ceiling of", "the digit sum of" and "a multiple of" do. A noun that is not known to be an operation names an
    amount, and after "a" so do some operations: "a real part of".
    """
    match = _PHRASE["of"].search(text)
    words = match["words"].lower().split() if match else ["made"]
    if match is None or words[-1] in _CONSISTING:
        return text
    articles = [place for place, word in enumerate(words) if word in _ARTICLES]
    first = articles[-1] if articles else len(words) - 1
    described, noun = {*words[first + 1 : -1]}, words[-1].removesuffix("s")
    if words[first] in ("a", "an"):
        named = noun == "part" and len(described) > 0
        known = named or _PARTS.isdisjoint(described - {"double", "triple"} if noun == "root" else {noun})
    else:
        known = _OPERATIONS.isdisjoint({*described, noun, words[-1]}) and not noun.isdigit()
    return text[: match.start()] + " ".join(words[:first]) + " " if known else None


def _in_formula(window: str) -> bool:
    """Return whether the end of a window is inside dollars or math brackets."""
    line = window.rpartition("\n")[2]
    return line.count("$") % 2 == 1 or any(
        window.rfind(left) > window.rfind(right) for left, right in (("\\(", "\\)"), ("\\[", "\\]"))
    )


def nothing_follows(text: str, end: int) -> bool:
    """Return whether only closing marks and punctuation follow."""
    return not text[end:].strip(_CLOSING_MARKS) or _PHRASE["nothing"].match(text, end) is not None


def listed_after(text: str, end: int) -> tuple[str, str] | None:
    """Return a value that is listed directly after a mark or set equal to it, and its separator: "\\boxed{7} or 8"."""
    place = _end(_CLOSED, text, end)
    equal = _PHRASE["equal_to"].match(text, place)
    if equal:
        return equal[1], " = "
    alternative = _PHRASE["alternative"].match(text, place)
    if alternative:
        return alternative[1], " or "
    box = text.rfind("\\boxed", 0, end) if "=" in text[place : place + MAX_LINK] else 0
    again = _PHRASE["same_name"].search(text, max(0, box - 10), end + MAX_LINK) if box > 0 else None
    if again and again.start() < box:
        return again[2], ", "
    added = _PHRASE["added"].match(text, place)
    return (added[1], ", ") if added else None


def named_after(text: str, end: int) -> bool:
    """Return whether another name is offered after a mark whose content is a name: "\\boxed{Leo} or Mia"."""
    return _OTHER_NAME.match(text, _end(_CLOSED, text, end)) is not None


def unit_behind(text: str, end: int) -> str:
    """Return the unit of measurement that directly follows a mark, as text for the parser; "" if there is none."""
    match = _PHRASE["unit"].match(text, end)
    if match is None or not all(_is_measure(word) for word in match[1].split()):
        return ""
    power = (match[2] or "").translate(_RAISED)
    return f"\\text{{ {match[1]}}}" + (f"^{power}" if power else "")


def _is_measure(word: str) -> bool:
    name = unit_name(word)
    return word in ("square", "cubic", "per") or (
        name is not None and not name.startswith("#") and name not in _NO_UNITS
    )


def denied_after(text: str, end: int) -> bool:
    """Return whether the words directly after a mark deny it, doubt it, bound it, or make it part of a formula."""
    if _PHRASE["goes_on"].match(text, end):
        return True
    place = _end(_CLOSED, text, end)
    if (
        text.startswith(("?", "？", "؟"), place)
        or _PHRASE["relation"].match(text, place)
        or _PHRASE["bound_after"].match(text, place)
    ):
        return True
    near = text[place : place + _FAR]
    reduced = _PHRASE["reduced"].match(near)
    if reduced and (shown := _PHRASE["digits_at_end"].search(text[max(0, end - 40) : end])):
        return int(shown[1]) >= int(reduced[1])  # 14 modulo 5 is not 14
    if _PHRASE["contradicted"].match(near):
        return True
    opening = len(near) - len(near.lstrip(" ,;(—–-"))
    if near[:1] in ".!\n。":
        return False
    ending = _CLAUSE_END.search(near, opening)
    clause = near[: ending.start()] if ending else near
    rejected = _PHRASE["rejected_other"].match(clause)
    shown = text[max(0, end - 12) : end].rstrip("}$ ")
    if rejected and not ("-" in shown if rejected["sign"] else shown.endswith(rejected["value"] or "=")):
        return False
    if _PHRASE["reason"].match(clause):
        return False
    other = _PHRASE["not_that_one"].match(near) if clause[:1] in ", " else None
    if other and (other["word"] is None or not text[:end].rstrip("}$ ")[-1:].isdigit()):
        return False
    if refused(clause):
        return True
    if _PHRASE["contrast"].search(clause):
        clause = clause[: _PHRASE["contrast"].search(clause).start()]  # pyright: ignore[reportOptionalMemberAccess]
    return bool((_PHRASE["not_it"] if _PHRASE["aside"].match(clause) else _PHRASE["denied_after"]).search(clause))


def past_contrast(text: str, end: int) -> int:
    """Return where the denial of another value directly after a mark ends, as in "\\boxed{12}, no 24"; `end`
    without one.
    """
    place = _end(_CLOSED, text, end)
    other = _PHRASE["not_that_one"].match(text, place) if text.startswith(",", place) else None
    return other.end() if other and other["word"] is None else end


def taken_back(text: str, end: int, answer: str) -> int | None:
    """Return how far after a mark the last retraction or doubt ends; None if there is none.

    "7 is wrong" denies only 7.
    """
    last: int | None = None
    text = _PHRASE["confirmed"].sub(_blank, text[end : end + _REMARKS])
    start = 0
    for match in _SENTENCE.finditer(text):
        stop = match.end()
        sentence = text[start:stop].lower()
        if not sentence.isascii() or not _TELLING.isdisjoint(sentence.translate(_SPACED).split()):
            found = _retraction(text, max(0, start - 1), stop, answer)
            last = found if found is not None else last
        start = stop
    return last


def _blank(match: re.Match[str]) -> str:
    return match[0] if _PHRASE["other_result"].search(match[0]) else " " * len(match[0])


def _retraction(text: str, start: int, stop: int, answer: str) -> int | None:
    last: int | None = None
    for match in _PHRASE["taken_back"].finditer(text, start, stop):
        value = match["value"] or match["denied"]
        if value is None or value == answer:
            last = match.end()
    for match in _WRONG.finditer(text, start, stop):
        last = max(last or 0, match.end())
    return last


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return match.end() if match else start
