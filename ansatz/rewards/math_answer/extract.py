"""Layer 1: from a response to the answer string in it. Every scan is linear, and starts from the end where it can.

Order, after the last closed think block: the last complete <answer>...</answer>; the last \\boxed or \\fbox;
`#### x`; "final answer is", "answer is", "Answer:". An empty or unterminated last box is no answer: there is no falling
back to an earlier one, so a policy gains nothing by trying several. The last one wins: a self-correction is no set.
"""

from __future__ import annotations

import re
from typing import Literal

Mode = Literal["strict", "anchored", "last_number"]

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
_BRACES = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*\{?|\\[\\{}]|[{}]")
_BARE_BOX = re.compile(r"\s*([^\s{}$]+)")
_PHRASE = re.compile(r"answer\s{0,3}(?:is|are|=|:|\*\*\s{0,3}:)|答案(?:\s{0,3}[:：]|是|为|為)", re.IGNORECASE)
_LEAD = re.compile(r"[\s:：*=]*(?:(?:option|choice|approximately|simply)\s+)?", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?。！？](?=[\s*\"')\]]|$)|\n|<\||,?\s(?:which|because|since|as required)\b|,\sso\b")
_REMARK = re.compile(r"[^\d$\\]*")
_HEDGE = re.compile(r"\b(?:or|and|not|either|wrong|incorrect|maybe)\b", re.IGNORECASE)
_NUMBER = re.compile(
    r"\\[dt]?frac\s?\{[^{}]{1,40}\}\s?\{[^{}]{1,40}\}|(?<![\d.])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:\s?/\s?\d+)?"
)
_LETTER = re.compile(r"(?<![A-Za-z\\'])\(?([A-HJ])\)?(?![A-Za-z'])")
_TAIL = 4_000  # characters looked at for a last number


def extract(
    response: str,
    *,
    mode: Mode = "strict",
    choice: bool = False,
    join_boxes: bool = False,
    require_think: bool = False,
    ignore_unclosed_think: bool = False,
) -> str | None:
    """The answer string, None when there is none. choice: the gold is a choice letter (used by last_number alone)."""
    text = _after_thought(response, require=require_think, ignore_unclosed=ignore_unclosed_think)
    if text is None:
        return None
    close = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, close) if close >= 0 else -1
    if start >= 0:
        inner = text[start + len("<answer>") : close]
        if _BOX.search(inner):
            return _boxed(inner, join=join_boxes)
        return (_anchored(inner) if mode != "strict" else None) or inner.strip() or None
    if "\\boxed" in text or "\\fbox" in text:
        return _boxed(text, join=join_boxes)
    if mode == "strict":
        return None
    return _anchored(text) or (_last_number(text, choice=choice) if mode == "last_number" else None)


def _after_thought(response: str, *, require: bool, ignore_unclosed: bool) -> str | None:
    """What follows the last `</think>`; None when a thought is left open, or when one is required and absent."""
    end = response.rfind("</think>")
    text = response[end + len("</think>") :] if end >= 0 else response
    if "<think>" in text and not ignore_unclosed:
        return None
    return None if require and end < 0 else text


def _boxed(text: str, *, join: bool) -> str | None:
    if join:
        return ", ".join(_all_boxes(text)) or None
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    command = _BOX.match(text, start)
    if command is None:
        return None
    begin = command.end()
    while begin < len(text) and text[begin].isspace():
        begin += 1
    if not text.startswith("{", begin):
        bare = _BARE_BOX.match(text, begin)
        return bare[1].rstrip(".,;") or None if bare else None
    depth = 0
    for match in _BRACES.finditer(text, begin):
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
            if depth == 0:
                return text[begin + 1 : match.start()].strip() or None
    return None


def _all_boxes(text: str) -> list[str]:
    """The contents of all complete outermost boxes, in order, in one pass."""
    found: list[str] = []
    opened: list[int | None] = []  # for each open brace: where its content starts if it is a box's
    for match in _BRACES.finditer(text):
        token = match[0]
        if token == "{" or (len(token) > 2 and token.endswith("{")):
            opened.append(match.end() if len(token) > 1 else None)
        elif token == "}" and opened:
            start = opened.pop()
            if start is not None and not any(outer is not None for outer in opened):
                found.append(text[start : match.start()].strip())
    return [content for content in found if content]


def _anchored(text: str) -> str | None:
    """What follows the last `####`, else the last answer phrase."""
    hashes = text.rfind("####")
    if hashes >= 0:
        line = text[hashes + 4 :].lstrip(": \t\r\n").partition("\n")[0]
        return line.partition("<|")[0].strip() or None
    phrases = list(_PHRASE.finditer(text))
    if not phrases:
        return None
    lead = _LEAD.match(text, phrases[-1].end())
    assert lead is not None
    return _statement(text[lead.end() :])


def _statement(text: str) -> str | None:
    """The answer at the head of a sentence: one formula with at most a harmless remark, or all of the sentence."""
    for left, right in (("\\[", "\\]"), ("\\(", "\\)"), ("$$", "$$"), ("$", "$")):
        lone_dollar = left == "$" and text[1:2].isdigit() and "$" not in text[1:].partition("\n")[0]
        if lone_dollar or not text.startswith(left):  # a lone dollar before digits is money
            continue
        inner, found, rest = text[len(left) :].partition(right)
        end = _SENTENCE_END.search(rest)
        remark = rest[: end.start()] if end else rest
        if found and _REMARK.fullmatch(remark) and not _HEDGE.search(remark):
            return inner.strip() or None
        break
    end = _SENTENCE_END.search(text)
    return (text[: end.start()] if end else text).strip(" \t\r*") or None


def _last_number(text: str, *, choice: bool) -> str | None:
    found = (_LETTER if choice else _NUMBER).findall(text[-_TAIL:])
    return found[-1] if found else None
