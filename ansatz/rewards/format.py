"""The form of a response: a closed thought, then an answer in a tag, in a box, or as plain text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from ansatz_verify.marks import extract

from ansatz.rewards.base import RewardResult
from ansatz.types import Rollout

Shape = Literal["think", "think_answer", "think_boxed", "answer", "boxed"]

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")


def format(
    rollouts: Sequence[Rollout],
    *,
    shape: Shape = "think",
    strict: bool = True,
    whole: float = 1.0,
    thought: float = 0.0,
    answered: float = 0.0,
) -> list[RewardResult]:
    """Return `whole` if the response is well formed, else `thought` for a closed think block + `answered` for an
    answer.

    shape, strict: see `well_formed`. GRPO-Zero pays whole 1, thought 0.1, answered 0.5, at weight 0.1, for the strict
    shape think_answer. If the prompt ends in `<think>`, the response is read as if it began with that tag.
    """
    return [
        RewardResult(value=_value(_with_opened_thought(rollout), shape, strict, whole, thought, answered))
        for rollout in rollouts
    ]


def well_formed(text: str, *, shape: Shape = "think", strict: bool = True) -> bool:
    """Return whether a response has the shape.

    think: a thought, then any answer. answer: <answer> tags. boxed: a \\boxed or \\fbox. think_answer, think_boxed: a
    thought, then that. An answer must not be blank; a thought can be.
    strict: exactly one thought, at the start, and exactly one complete answer tag or box. Around an answer tag that
    follows a thought there is only whitespace; after an answer tag without a thought there is nothing. Not strict: at
    least one thought anywhere, with an answer after it.
    """
    thinks, answer = _strict_parts(text) if strict else _loose_parts(text)
    if answer is None or (not thinks and shape.startswith("think")):
        return False
    if shape.endswith("answer"):
        return _answer_tag(answer, thinks=thinks, strict=strict)
    if shape.endswith("boxed"):
        return _box(answer, strict=strict)
    return _any_answer(answer, thinks=thinks, strict=strict)


def _strict_parts(text: str) -> tuple[bool, str | None]:
    """Return whether there is a thought, and the text after it; None if the response is not in order."""
    text = text.strip()
    opened, closed = text.count("<think>"), text.count("</think>")
    if (opened, closed) == (0, 0):
        return False, text
    if (opened, closed) != (1, 1) or not text.startswith("<think>"):
        return True, None
    thought, _, answer = text.removeprefix("<think>").partition("</think>")
    two_answers = bool(_spans(thought, "answer"))  # or an answer within the thought
    return True, None if two_answers else answer.strip()


def _loose_parts(text: str) -> tuple[bool, str]:
    thoughts = _spans(text, "think")
    if not thoughts:
        return False, text.strip()
    return True, text[thoughts[0][1] :].removeprefix("</think>").strip()


def _answer_tag(text: str, *, thinks: bool, strict: bool) -> bool:
    answers = [text[start:end] for start, end in _spans(text, "answer")]
    if not strict:
        return any(answer.strip() for answer in answers)
    if not text.count("<answer>") == text.count("</answer>") == len(answers) == 1:
        return False
    in_place = text.endswith("</answer>") and (text.startswith("<answer>") or not thinks)
    return in_place and bool(answers[0].strip())


def _box(text: str, *, strict: bool) -> bool:
    """Return whether the verifier extracts an answer from the response. Without this, a box without an answer could
    count as well formed."""
    boxes = len(_BOX.findall(text))
    return boxes > 0 and (boxes == 1 or not strict) and extract(text) is not None


def _any_answer(text: str, *, thinks: bool, strict: bool) -> bool:
    if "<answer>" in text or "</answer>" in text:
        return _answer_tag(text, thinks=thinks, strict=strict)
    if _BOX.search(text):
        return extract(text) is not None
    return bool(text)


def _value(text: str, shape: Shape, strict: bool, whole: float, thought: float, answered: float) -> float:
    if well_formed(text, shape=shape, strict=strict):
        return whole
    has_answer = any(text[start:end].strip() for start, end in _spans(text, "answer")) or extract(text) is not None
    return thought * bool(_spans(text, "think")) + answered * has_answer


def _spans(text: str, tag: str) -> list[tuple[int, int]]:
    """Start and end of the content of each closed `<tag>...</tag>`.

    One pass: a lazy regex would take quadratic time on many open tags.
    """
    opening, closing = f"<{tag}>", f"</{tag}>"
    spans: list[tuple[int, int]] = []
    start = text.find(opening)
    while start >= 0:
        start += len(opening)
        end = text.find(closing, start)
        if end < 0:
            break
        spans.append((start, end))
        start = text.find(opening, end)
    return spans


def _with_opened_thought(rollout: Rollout) -> str:
    return f"<think>{rollout.said}" if rollout.prompt.text.rstrip().endswith("<think>") else rollout.said
