"""Answers of several parts, one in each box: "x = \\boxed{2}, and so y = \\boxed{3}", "(a) \\boxed{4} (b) \\boxed{9}".

The last box alone is the answer of a problem with one. For a gold of several parts, as many boxes are read together if
each has a label of its own and nothing around them denies them, takes them back, or offers a choice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ansatz.rewards.math_answer.context import denied_after, read_before, taken_back, unit_behind
from ansatz.rewards.math_answer.languages import OR
from ansatz.rewards.math_answer.phrases import phrases_of

_PHRASE = phrases_of("boxed_parts")

MAX_PARTS = 8
_CHOICE = re.compile(rf"(?<![\w\\])(?:{OR}|either)(?!\w)", re.IGNORECASE)
_ORDERS = ("abcdefgh", "12345678", ("i", "ii", "iii", "iv", "v"))


def labelled(text: str, boxes: Sequence[tuple[int, int, str]]) -> tuple[str, bool] | None:
    """Return one answer for all boxes of a text, each as (start, end, content), and whether its order counts; or
    None.
    """
    if not 1 < len(boxes) <= MAX_PARTS:
        return None
    gaps = [
        text[end:start] for end, start in zip((0, *(box[1] for box in boxes)), (box[0] for box in boxes), strict=False)
    ]
    if any(_CHOICE.search(gap) for gap in gaps[1:]) or _CHOICE.search(gaps[0][-30:]):
        return None
    for index, (start, end, content) in enumerate(boxes):
        following = boxes[index + 1][0] if index + 1 < len(boxes) else len(text)
        if read_before(text, start)[0] or denied_after(text[:following], end):
            return None
        if taken_back(text[:following], end, content) is not None:
            return None
    names = [_PHRASE["name"].search(gap[-30:]) for gap in gaps]
    if all(names) and len({name[1] for name in names if name}) == len(boxes):
        return ", ".join(f"{name[1]}={box[2]}" for name, box in zip(names, boxes, strict=True) if name), False
    parts = [[match[1].lower() for match in _PHRASE["part"].finditer(gap)] for gap in gaps]
    if not all(len(found) == 1 for found in parts):
        return (_together(text, boxes), False) if all(map(_PHRASE["one_sentence"].fullmatch, gaps[1:])) else None
    labels = [found[0] for found in parts]
    in_order = any(labels == list(order[: len(labels)]) for order in _ORDERS)
    return (", ".join(box[2] for box in boxes), True) if in_order else None


def without_labels(gold: str, count: int) -> str:
    """Return a gold such as "(a) 10; (b) 4" without the labels of its parts; any other as it is."""
    before, *parts = _PHRASE["label"].split(gold)
    return ", ".join(part.strip(" ;,.") for part in parts) if not before.strip() and len(parts) == count else gold


def _together(text: str, boxes: Sequence[tuple[int, int, str]]) -> str:
    """Return the contents of boxes as one list, each with the unit behind its box."""
    return ", ".join(content + unit_behind(text, end) for _, end, content in boxes)
