"""Layer 1: from a response to the answer string in it. Every scan is linear in the length of the text.

In the text after the last `</think>` the last box or answer tag counts. Marks with nothing between them but commas,
"and", "or" and names such as `y =` form one list with it. Text that touches the mark (a sign, a factor, a unit) belongs
to it; nothing else around it is read. An empty or unterminated box is not an answer: extraction never falls back to an
earlier mark, so a policy gains nothing by trying several.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from ansatz_verify.announce import announced, last_number

Mode = Literal["strict", "anchored", "last_number"]

_MARK = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*(\{)?|<answer>")
_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
_BRACES = re.compile(r"\\[\\{}]|[{}]")
_BARE_BOX = re.compile(r"[^\s{}$]+")
_MAX_LISTED, _MAX_GAP = 20, 120
_SPACE = re.compile(
    r"(?:[\s$,;.~、，；*]|\\[,;:!\[\]()\s]|\\q?quad(?![a-z])|\\\\|\\(?:text[a-z]{0,6}|mathrm|mbox)\s?\{|\}|\\left|\\right)*"
)
_WORD = re.compile(
    r"(?<![A-Za-z\\])(?:and|or|und|oder|et|ou|y|e|o|или|и|且|和|或|與|与|及|以及|もしくは|または|と|또는|그리고)(?![A-Za-z])"
)
_NAMED = r"(?:[A-Za-z]|\\[a-z]+)(?:_\{?\w{1,3}\}?|\s?\([^()=\s]{1,40}\)){0,2}\s?="
_NAME = re.compile(rf"({_NAMED})?\s?\$?\s?\Z")
_NAME_BEFORE = re.compile(rf"(?<![A-Za-z\\=+*/^-])({_NAMED})\s?\$?\s?\Z")
_OR = re.compile(r"(?<![A-Za-z])(?:or|oder|ou|o|или|或|もしくは|または|또는)(?![A-Za-z])")
_TOUCHES_BEFORE = re.compile(r"(?:(?<=[=$(\[:\s])|^)(-?(?:\d+|\\[dt]?frac\{\w+\}\{\w+\}|\\sqrt\{\w+\}|\\pi)?)\Z")
_WITHIN_FORMULA = re.compile(r"(?:[\d})][-+*/^_]|\d\{\s*)\Z")
"""Before a mark that is only a part of a formula, as in `3-\\boxed{5}`: there is no answer."""
_TOUCHES_AFTER = re.compile(
    r"(?:\\[,;:!\s]|~)*(?:\^\{?\\circ\}?|\\?%|°|\^\{?[\w+-]+\}?|\\(?:pi|sqrt\{\w+\})(?![a-z])"
    r"|!!?(?=[$^/-]|\s*[=+]|\s*\\(?:[)\]]|cdot|times|end))"
    r"|\\(?:text|mathrm|mbox)\s?\{[^{}]{1,30}\}(?:\^\{?\d\}?)?)+"
)
"""After a mark. Exclamation marks are a factorial only if more of a formula follows them."""
_PLAIN = re.compile(r"[\d.,\s]+|\\[dt]?frac\{[^{}]*\}\{[^{}]*\}|\\sqrt\{[^{}]*\}")
_LETTERS_AFTER = re.compile(r"[A-Za-z](?![A-Za-z])")


class _Mark(NamedTuple):
    start: int
    end: int
    content: str


def extract(
    response: str,
    *,
    mode: Mode = "strict",
    join_boxes: bool = False,
    require_think: bool = False,
    ignore_unclosed_think: bool = False,
) -> str | None:
    """Return the answer string, or None.

    >>> extract("First \\\\boxed{3}, no: x = \\\\boxed{4} and y = \\\\boxed{5}")
    'x = 4, y = 5'
    """
    text = _after_thought(response, require=require_think, ignore_unclosed=ignore_unclosed_think)
    if text is None:
        return None
    marks = marks_in(text)
    if not marks:
        if "\\boxed" in text or "\\fbox" in text or mode == "strict":
            return None
        return announced(text) or (last_number(text) if mode == "last_number" else None)
    if join_boxes:
        return ", ".join(mark.content for mark in marks if mark.content) or None
    answer = _listed(text, marks)
    return answer.strip() or None


def boxed_answer(text: str, *, gold: bool = False) -> str:
    """Return the content of the only box of a bare answer, or of the last box of a gold that is a whole solution."""
    if "\\boxed" not in text and "\\fbox" not in text:
        return text
    marks = marks_in(text)
    if not marks or (len(marks) > 1 and not gold):
        return text
    return (_with_touching(text, marks[-1]) or text) if marks[-1].content else ""


def marks_in(text: str) -> list[_Mark]:
    """Return the outermost boxes and tags; one that is not closed ends with the text, and has no content if a box."""
    marks: list[_Mark] = []
    end = 0
    while (match := _MARK.search(text, end)) is not None:
        mark = _tag(text, match) if match[0] == "<answer>" else _box(text, match)
        marks.append(mark)
        end = max(mark.end, match.end())
    return marks


def _tag(text: str, match: re.Match[str]) -> _Mark:
    close = text.find("</answer>", match.end())
    content = text[match.end() : close if close >= 0 else len(text)]
    end = close + len("</answer>") if close >= 0 else len(text)
    content = content.rpartition("<answer>")[2]
    if _BOX.search(content):
        inner = marks_in(content)
        content = _listed(content, inner) if inner else ""
    return _Mark(match.start(), end, content.strip())


def _box(text: str, match: re.Match[str]) -> _Mark:
    if not match[1]:
        bare = _BARE_BOX.match(text, match.end())
        return _Mark(match.start(), bare.end() if bare else match.end(), bare[0].rstrip(".,;") if bare else "")
    depth = 1
    for brace in _BRACES.finditer(text, match.end()):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            content = _BOX.sub("", text[match.end() : brace.start()])
            return _Mark(match.start(), brace.end(), content.strip())
    return _Mark(match.start(), len(text), "")


def _listed(text: str, marks: list[_Mark]) -> str:
    """Return the last mark, with those before it that form one list with it."""
    parts, joint = [_with_touching(text, marks[-1])], ", "
    if not parts[0]:
        return ""
    place = len(marks) - 1
    while place and len(parts) < _MAX_LISTED:
        before, mark = marks[place - 1], marks[place]
        gap = text[before.end : mark.start]
        name = _name_between(gap) if len(gap) <= _MAX_GAP and before.content else None
        if name is None:
            break
        parts[-1] = name + parts[-1]
        parts.append(_with_touching(text, before))
        joint = " or " if _OR.search(gap) else joint
        place -= 1
    if len(parts) > 1 and (named := _NAME_BEFORE.search(text, max(0, marks[place].start - 60), marks[place].start)):
        parts[-1] = named[1] + parts[-1]
    different = list(dict.fromkeys(part.strip() for part in reversed(parts)))
    return joint.join(different)


def _name_between(gap: str) -> str | None:
    """Return the name before the second of two neighbours, such as `y =`, or ""; None if more lies between them."""
    places = [_skip(_SPACE, gap, 0)]
    if word := _WORD.match(gap, places[0]):
        places.append(_skip(_SPACE, gap, word.end()))
    names = (_NAME.match(gap, place) for place in places)  # y is a name, or "and" in Spanish
    return next((name[1] or "" for name in names if name), None)


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _with_touching(text: str, mark: _Mark) -> str:
    """Return the content of a mark with the sign, the factor and the unit that touch it."""
    if not mark.content or text.startswith("<answer>", mark.start):
        return mark.content
    if _WITHIN_FORMULA.search(text, max(0, mark.start - 40), mark.start):
        return ""
    before = _TOUCHES_BEFORE.search(text[max(0, mark.start - 40) : mark.start])
    after = _TOUCHES_AFTER.match(text, mark.end)
    tail = after[0] if after else ""
    if not tail and (letter := _LETTERS_AFTER.match(text, mark.end)):
        tail = letter[0]
    head = before[1] if before else ""
    if not head and not tail:
        return mark.content
    simple = _PLAIN.fullmatch(mark.content) is not None and head in ("", "-")
    return f"{head}{mark.content if simple else f'({mark.content})'}{tail}"


def _after_thought(response: str, *, require: bool, ignore_unclosed: bool) -> str | None:
    """Return the text after the last `</think>`; None if a thought is left open, or if one is required and absent."""
    end = response.rfind("</think>")
    text = response[end + len("</think>") :] if end >= 0 else response
    if "<think>" in text and not ignore_unclosed:
        return None
    return None if require and end < 0 else text
