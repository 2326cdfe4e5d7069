"""Answers announced in words: "#### 5", "The answer is 5", "**Answer:** the largest n is 5", a bold last line.

The last announcement wins, and its first sentence is read: a short text as it stands, or the only value in it, or the
only value after its last copula. A sentence that hedges announces nothing. Every scan is linear in the text.
"""

from __future__ import annotations

import itertools
import re

from ansatz_verify.clean import UNREADABLE, mark_unseen
from ansatz_verify.tables import ANNOUNCEMENTS
from ansatz_verify.words import unit_name

_CUES, _HEDGES = (
    tuple(phrase.strip() for line in ANNOUNCEMENTS[name].values() for phrase in line.split(" | "))
    for name in ("cues", "hedges")
)
_REASONS, _COPULAS = (tuple(map(str.strip, ANNOUNCEMENTS[name].split(" | "))) for name in ("reasons", "copulas"))
_NEAR, _FAR, _TAIL, _MAX_SENTENCE, _MAX_WORDS = 60, 300, 4_000, 1_000, 4
_STOP = re.compile(r"<[|｜][^<>]{1,40}[|｜]>|</s>|<eos>|<end_of_turn>|\[/?INST\]")
_END = re.compile(r"(?<!\\)[.!?](?=[\s*\"')\]]|$)|[。！？\n]|```")
_WORD = re.compile(r"[^\W\d_]+(?:'[a-z]+)?")
_FORMULA = re.compile(
    r"\\\[.*?\\\]|\$\$.*?\$\$|\\\([^\n]*?\\\)|"
    r"(?<!\\)\$(?![\d,.]+[\s,.]|[\d,.]+$)[^$\n]*\$",
    re.DOTALL,
)
_SPACED = r"[-+]?[\w.√π²³()^/+*-]*[\d√π²³][\w.√π²³()^/+*₀-₉⁄-]*"
_NUMBER_SAID = re.compile(rf"(?<![\w.,])\\?[$€£¥₹]?\s?{_SPACED}(?:,\d{{3}}(?!\d)(?:\.\d+)?)*(?:\s?\\?%|°)?")
_HEADING = re.compile(
    r"[^\w\\$(]*(?:\d+[.)][ \t]+\S|\d+(?:\.\d+)+\.?[ \t]+[A-Z][a-z]{2}|\([a-z]\)[ \t]+[^\W\d_]{2}|[^\W\d_]{2})"
)
"""A line that begins with a word or the number of a section. It is read only if nothing else announces an answer."""
_NEXT_PROBLEM = re.compile(r"\n[ \t*#]*(?:Question|Q|Problem)[ \t*]*[:：\d]")
"""A line that begins a problem that the response invents after its answer."""
_NAME = re.compile(r"[A-Za-z](?:\([a-z]\))?")
_CHOSEN = re.compile(r"(?:[A-J][\s,、]*)+")
_JOINT = re.compile(r"(?:[\s,;]|and|or|und|y|et|и|和|、|[A-Za-z]\s?=)*")
_NUMBER = re.compile(
    rf"(?<![\d.,])[\d.,]*(?:{UNREADABLE}[\d.,]*)+|"
    r"\\[dt]?frac\s?\{[^{}]{1,40}\}\s?\{[^{}]{1,40}\}|(?<![\d.])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:\s?/\s?\d+)?"
)


def announced(text: str) -> str | None:
    """Return the announced answer, or None.

    >>> announced("The roots are 2 and 3.\\n\\n**Answer:** Their sum is 5, since 2 + 3 = 5.")
    '5'
    """
    stop = _STOP.search(text)
    text = (text[: stop.start()] if stop and text[: stop.start()].strip() else text).strip()
    before, hashes, after = text.rpartition("####")
    line, more, _ = after.lstrip(": \t\r\n").partition("\n")
    if hashes and not (more and _HEADING.match(line)):
        after = _NEXT_PROBLEM.split(after, maxsplit=1)[0].rstrip()
        if _last_cue(after.replace("**", "").lower()) is None:
            return line.strip(" *") or None
        text = before + hashes + after
    last = _last_line(text)
    plain = text.replace("**", "")
    end = _last_cue(plain.lower())
    if end is None:
        return _only_value(last) or (hashes and line.strip(" *")) or None
    if _hedges(plain[max(0, end - _NEAR) : end].rpartition("\n")[2].rpartition(". ")[2].lower()):
        return None
    rest = plain[end:].lstrip(" :：*\n")
    formula = _FORMULA.match(rest)
    stop = _END.search(rest, formula.end() if formula else 0)
    sentence = rest[: stop.start()] if stop else rest
    if "\n" in rest and not _hedges(sentence.lower()) and (value := _only_value(last)):
        return value
    goes_on = len(rest) - len(sentence) > _FAR  # a thought that was cut off announces on its way
    return None if goes_on or (stop and stop[0] in "?？") else value_said(sentence)


def last_number(text: str) -> str | None:
    """Return the last number of a text, or None. For evaluation only: it pays for guesses."""
    numbers = _NUMBER.findall(mark_unseen(text[-_TAIL:]))
    return numbers[-1] if numbers else None


def value_said(sentence: str) -> str | None:
    """Return the value that a sentence states: itself if it is short, its only value, or that after its copula."""
    sentence = sentence.strip(" *`\t")[:_MAX_SENTENCE]
    for reason in _REASONS:
        sentence = re.split(rf"{re.escape(reason)}\s", sentence)[0] if reason in sentence else sentence
    bare = _without_dollars(sentence)
    first = _WORD.match(sentence)
    if first and first[0].lower() in ("yes", "no", "true", "false"):
        return first[0]
    if _hedges(sentence.lower()):
        return None
    outside = _FORMULA.sub(" ", sentence)
    words = [word for word in _WORD.findall(outside) if len(word) > 2]
    if not words or (len(words) <= _MAX_WORDS and not any(map(str.isdigit, sentence)) and "\\" not in sentence):
        return bare or None
    return _only(sentence) or _after_copula(sentence)


def _last_line(text: str) -> str:
    """Return the last line, or the formula of several lines at the end."""
    for left, right in (("\\[", "\\]"), ("$$", "$$")):
        if text.endswith(right) and (start := text.rfind(left, 0, -2)) >= 0:
            start = text.rfind("\n", 0, start) + 1
            return " ".join(text[start:].split())
    return text.rpartition("\n")[2].strip()


def _only_value(line: str) -> str | None:
    """Return a last line that is in bold letters, or that is only a value."""
    if len(line) > _MAX_SENTENCE:
        return None
    bold = line.startswith("**") and line.rstrip(".").endswith("**") and line.count("**") == 2
    line = line.strip("* ").rstrip(".")
    if bold:
        return value_said(line)
    bare = _without_dollars(line)
    words = [word for word in _WORD.findall(_FORMULA.sub(" ", line)) if len(word) > 1]
    valued = any(map(str.isdigit, line)) and not words
    return bare if (valued or _CHOSEN.fullmatch(bare)) and len(line) < _NEAR else None


def _last_cue(text: str) -> int | None:
    """Return where the last announcement in a text in small letters ends."""
    ends = [place + len(cue) for cue in _CUES if (place := text.rfind(cue)) >= 0]
    return max(ends, default=None)


def _hedges(text: str) -> bool:
    words = set(_WORD.findall(text))
    return any(hedge in words if hedge.isalpha() and hedge.isascii() else hedge in text for hedge in _HEDGES)


def _only(text: str) -> str | None:
    """Return the only value of a text, or several that are one list."""
    hidden = _FORMULA.sub(lambda formula: " " * len(formula[0]), text)
    formulas = [formula for formula in _FORMULA.finditer(text) if not _NAME.fullmatch(_without_dollars(formula[0]))]
    found = sorted([*formulas, *_NUMBER_SAID.finditer(hidden)], key=lambda match: match.start())
    if not found:
        return None
    gaps = [text[one.end() : other.start()] for one, other in itertools.pairwise(found)]
    if not all(map(_JOINT.fullmatch, gaps)):
        return None
    joint = " or " if any("or" in gap for gap in gaps) else ", "
    values = dict.fromkeys(_without_dollars(match[0]) for match in found)
    return joint.join(values) + (_unit_behind(text[found[-1].end() :]) if len(values) == 1 else "")


def _after_copula(text: str) -> str | None:
    places = [match.end() for copula in _COPULAS for match in re.finditer(rf"(?:\b|\s){re.escape(copula)}\s", text)]
    return _only(text[max(places) :]) if places else None


def _unit_behind(text: str) -> str:
    word = _WORD.match(text.lstrip())
    known = unit_name(word[0]) if word else None
    return f"\\text{{ {word[0]}}}" if word and known and not known.startswith("#") else ""


def _without_dollars(text: str) -> str:
    text = text.strip(" ,;:*")
    for left, right in (("\\[", "\\]"), ("\\(", "\\)"), ("$$", "$$"), ("$", "$")):
        if text.startswith(left) and text.endswith(right) and len(text) >= len(left + right):
            return text[len(left) : -len(right)].strip()
    return text
