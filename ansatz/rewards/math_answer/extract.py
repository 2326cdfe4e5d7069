"""Layer 1: from a response to the answer string in it. Every scan is linear in the length of the text.

Order, after the last closed think block: the last complete <answer>...</answer>; the last \\boxed or \\fbox; an
announcement in words (see `announce`). An empty or unterminated last box is not an answer: extraction never falls
back to an earlier box, so a policy gains nothing by trying several. The last box wins: a self-correction is not a set.
Boxes with nothing but "or", "and" or a comma between them are one list. What the words around a box or a tag deny or
take back is not an answer (see `context`); a later announcement of another value makes it a choice between the two.
"""

from __future__ import annotations

import re
from typing import Literal

from ansatz.rewards.math_answer import context
from ansatz.rewards.math_answer.announce import announced, has_announcement, last_number, restated, until_stop
from ansatz.rewards.math_answer.boxed_parts import labelled
from ansatz.rewards.math_answer.clean import clean, squeeze
from ansatz.rewards.math_answer.letters import last_letter
from ansatz.rewards.math_answer.phrases import phrases_of
from ansatz.rewards.math_answer.sentences import last_sentence, stated_in
from ansatz.rewards.math_answer.words import HEDGES

_PHRASE = phrases_of("extract")

Mode = Literal["strict", "anchored", "last_number"]

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
_BRACES = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*\{?|\\[\\{}]|[{}]")
_BARE_BOX = re.compile(r"\s*([^\s{}$]+)")
_FORMULA_AFTER = re.compile(r"[-+*/^_=\w]")
_MAYBE_BOX = re.compile(r"[}x]")
_ENDS_OF_NUMBER = (*"0123456789", "}")
_SHORTEST_BOX = len("\\boxed{}")
_MAX_LINKED = 20  # boxes that are read as one list
_MAX_LINKED_LENGTH = 2_000  # characters of an earlier box with what stands between


def extract(
    response: str,
    *,
    mode: Mode = "strict",
    choice: bool = False,
    join_boxes: bool = False,
    require_think: bool = False,
    ignore_unclosed_think: bool = False,
) -> str | None:
    """Return the answer string, or None.

    choice: the gold is a choice letter, which strict mode does not need to know.
    """
    text = _after_thought(response, require=require_think, ignore_unclosed=ignore_unclosed_think)
    if text is None:
        return None
    close = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, close) if close >= 0 else -1
    if start >= 0:
        return _tagged(text, start, close, mode=mode, join=join_boxes)
    if "\\boxed" in text or "\\fbox" in text:
        return _boxed(text, join=join_boxes)
    if mode == "strict":
        return None
    answer = announced(text, choice=choice)
    if answer is None and mode == "last_number":
        return last_letter(text) if choice else last_number(text)
    return answer


def extract_parts(response: str, count: int) -> tuple[str, bool] | None:
    """Return the answer that as many labelled boxes give together, and whether its order counts; see `boxed_parts`."""
    text = _after_thought(response, require=False, ignore_unclosed=True) or ""
    places = [match.start() for match in _BOX.finditer(text)]
    if len(places) != count or "</answer>" in text:
        return None
    boxes = [(start, *_box_at(text, start)) for start in places]
    found = labelled(text, [(start, end, content) for start, content, end in boxes if content is not None])
    last = boxes[-1][2]
    return found if found and len(found[0]) < _MAX_LINKED_LENGTH and restated(text[last:]) is None else None


def stated_answer(text: str, *, gold: bool = False) -> str:
    """Return the answer within a gold, or within a bare answer that comes with words around it; else the text itself.

    A gold may be a whole solution. Its last box counts, with a percent sign that follows the box; a gold without a box
    states what it announces. A bare answer with several boxes, or with a box inside a formula as in `-\\boxed{5}`, is
    left as it is.
    """
    if "\\boxed" in text or "\\fbox" in text:
        return _only_box(text, gold=gold) or text
    if has_announcement(text):
        return announced(text) or text
    return until_stop(text).strip() or text


def _only_box(text: str, *, gold: bool) -> str | None:
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    content, end = _box_at(text, start)
    if content is not None and start == 0 and end == len(text):
        return content
    if content is None or (not gold and len(_BOX.findall(text)) > 1):
        return None
    if _PHRASE["formula_before"].search(text[max(0, start - 20) : start]) or _FORMULA_AFTER.match(text, end):
        return None
    if not gold and any(word in HEDGES for word in re.findall(r"[a-z']+", (text[:start] + text[end:]).lower())):
        return None
    percent = gold and _PHRASE["percent_after"].match(text, end)
    return content + "\\%" if percent and not content.endswith("%") else content


def _after_thought(response: str, *, require: bool, ignore_unclosed: bool) -> str | None:
    """Return what follows the last `</think>`; None when a thought is left open, or when one is required and absent."""
    end = response.rfind("</think>")
    text = response[end + len("</think>") :] if end >= 0 else response
    if "<think>" in text and not ignore_unclosed:
        return None
    return None if require and end < 0 else text


def _tagged(text: str, start: int, close: int, *, mode: Mode, join: bool) -> str | None:
    """Return what the last answer tag states; the tag begins at `start` and its content ends at `close`."""
    inner, end = text[start + len("<answer>") : close], close + len("</answer>")
    if _BOX.search(inner):
        answer = _boxed(inner, join=join)
    else:
        answer = (announced(inner) if mode != "strict" and has_announcement(inner) else None) or inner.strip() or None
    if answer is None or context.read_before(text, start)[0]:
        return None
    earlier = text.rfind("</answer>", 0, start)
    gap = text[earlier + len("</answer>") : start] if earlier >= 0 else ""
    link = context.separator(gap) if gap.strip() else None
    if link is not None:
        opening = text.rfind("<answer>", 0, earlier)
        other = text[opening + len("<answer>") : earlier].strip() if opening >= 0 else ""
        answer = _listed([other, answer], link)
    answer = _after(text, end, answer)
    return (
        _listed([answer, _boxed(text[end:], join=join) or ""], " or ") if answer and _BOX.search(text, end) else answer
    )


def _boxed(text: str, *, join: bool) -> str | None:
    if join:
        return ", ".join(_all_boxes(text)) or None
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    content, end = _box_at(text, start)
    if content is None:
        return None
    around = _around(text, start, end) if start >= len("\\fbox{") else None
    if around:
        content, start, end = around
    asserted = _contrasted(text, start) if start > _SHORTEST_BOX else None
    if asserted:
        content, start = asserted
    answer, start = _linked(text, start, content)
    affirmed = context.affirmed_or_denied(text, start, end)
    denied, listed = context.read_before(text, start)
    if (
        affirmed is False
        or (denied and not affirmed)
        or (len(text) - end > _SHORTEST_BOX and _against(text, start, end))
    ):
        return None
    if listed:
        answer = _listed([listed[0], answer], listed[1])
    return _after(text, end, answer)


def _contrasted(text: str, start: int) -> tuple[str, int] | None:
    """Return the box before the last one and its place, if the last is only its contrast: "\\boxed{8}, not
    \\boxed{9}".
    """
    near = max(0, start - _MAX_LINKED_LENGTH)
    earlier = max(text.rfind("\\boxed", near, start), text.rfind("\\fbox", near, start))
    if earlier < 0 or not _PHRASE["maybe_not"].search(text, max(0, start - context.MAX_LINK), start):
        return None
    content, end = _box_at(text, earlier)
    return (content, earlier) if content is not None and _PHRASE["contrast"].fullmatch(text, end, start) else None


def _against(text: str, start: int, end: int) -> bool:
    """Return whether a box holds what would be, and the last sentence after it states what is."""
    if " would " not in text[max(0, start - 200) : start]:
        return False
    line = text[max(0, start - 200) : start]
    sentence = line[max(line.rfind(". "), line.rfind("\n")) + 1 :]
    if " would " not in sentence or not text[end:].strip(" .$\n"):
        return False
    stated = stated_in(last_sentence(text[end:].lstrip("$ ")))
    return stated is not None and any(char.isdigit() for char in stated)


def _around(text: str, start: int, end: int) -> tuple[str, int, int] | None:
    """Return the outermost box around the box at `start`, with no box inside: its content and where it starts and
    ends.
    """
    near, far = max(0, start - _MAX_LINKED_LENGTH), end + _MAX_LINKED_LENGTH
    for match in _BOX.finditer(text, near, start):
        content, close = _box_at(text[:far], match.start())
        if content is not None and close >= end and content != text[start:end]:
            return _BOX.sub("", content), match.start(), close
    return None


def _linked(text: str, start: int, content: str) -> tuple[str, int]:
    """Return a box and the boxes before it that belong to one list with it, as one answer, and where they start."""
    contents, link = [content], ", "
    while len(contents) < _MAX_LINKED and _MAYBE_BOX.search(text, max(0, start - context.MAX_LINK), start):
        near = max(0, start - _MAX_LINKED_LENGTH)
        earlier = max(text.rfind("\\boxed", near, start), text.rfind("\\fbox", near, start))
        linked, end = _box_at(text, earlier) if earlier >= 0 else (None, 0)
        joint = context.separator(text[end:start]) if linked is not None and end <= start else None
        if linked is None or joint is None:
            break
        contents.append(linked)
        link, start = max(link, joint, key=len), earlier
    return _listed(contents[::-1], link), start


def _after(text: str, end: int, answer: str) -> str | None:
    """Return the answer in view of what follows its mark; None if that denies it or takes it back."""
    if context.nothing_follows(text, end):
        return answer
    if context.denied_after(text, end):
        return None
    listed = context.listed_after(text, end)
    family = _PHRASE["integer_after"].match(text, end)
    if family and family[1] + "" in answer:
        answer += f", {family[1]} \\in \\mathbb{{Z}}"
    if listed:
        answer = _listed([answer, listed[0]], listed[1])
    elif any(char.isdigit() for char in answer):
        answer += context.unit_behind(text, end) if answer.endswith(_ENDS_OF_NUMBER) else ""
    elif context.named_after(text, end):
        return None
    end = context.past_contrast(text, end)
    retraction = context.taken_back(text, end, answer)
    later = restated(text[end + (retraction or 0) :])
    if later and (any(char.isdigit() or char in "\\$" for char in later) or not any(map(str.isdigit, answer))):
        return _listed([answer, later], " or ")
    return None if retraction is not None else answer


def _listed(answers: list[str], link: str) -> str:
    """Return several answers as one; the same answer twice is one answer."""
    if len(answers) == 1:
        return answers[0]
    return answers[0] if len({squeeze(clean(answer)) for answer in answers}) == 1 else link.join(answers)


def _box_at(text: str, start: int) -> tuple[str | None, int]:
    """Return the content of the box at `start`, None if it is empty or does not close, and the place after the box."""
    command = _BOX.match(text, start)
    if command is None:
        return None, start
    begin = command.end()
    while begin < len(text) and text[begin].isspace():
        begin += 1
    if not text.startswith("{", begin):
        bare = _BARE_BOX.match(text, begin)
        return (bare[1].rstrip(".,;") or None, bare.end()) if bare else (None, begin)
    close = text.find("}", begin)
    content = text[begin + 1 : close]
    if close >= 0 and "{" not in content and "\\" not in content:
        return content.strip() or None, close + 1
    depth = 0
    for match in _BRACES.finditer(text, begin):
        if match[0] == "{" or (len(match[0]) > 2 and match[0].endswith("{")):  # of a box within it
            depth += 1
        elif match[0] == "}":
            depth -= 1
            if depth == 0:
                return text[begin + 1 : match.start()].strip() or None, match.end()
    return None, len(text)


def _all_boxes(text: str) -> list[str]:
    """Return the contents of all complete outermost boxes, in order, in one pass."""
    contents: list[str] = []
    opened: list[int | None] = []  # for each open brace: where its content starts if it belongs to a box
    for match in _BRACES.finditer(text):
        token = match[0]
        if token == "{" or (len(token) > 2 and token.endswith("{")):
            opened.append(match.end() if len(token) > 1 else None)
        elif token == "}" and opened:
            start = opened.pop()
            if start is not None and not any(outer is not None for outer in opened):
                contents.append(text[start : match.start()].strip())
    return [content for content in contents if content]
