"""The names of gold answers and responses in other people's data, and how both are read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from numbers import Integral, Rational, Real
from typing import Any

from ansatz_verify.verdict import joined_golds

GOLDS = (
    "answer", "final_answer", "reward_model.ground_truth", "ground_truth", "expected_answer", "extra_info.answer",
    "correct answer", "gold", "solution", "solutions",
)  # fmt: skip
RESPONSES = (
    "response", "responses", "completion", "completions", "generation", "generations", "output", "outputs",
    "prediction", "predictions", "messages", "conversations", "conversation",
)  # fmt: skip
"""Field names in order of preference. Dots select nested fields. Upper and lower case are not distinguished."""
_MODEL = (None, "assistant", "gpt", "chatgpt", "model", "bot", "ai", "bard", "bing")


def is_a(value: Any, *kinds: type) -> bool:
    """Return whether a value from elsewhere is of one of the kinds; it stays Any for the check of types."""
    return isinstance(value, kinds)


def find(row: Any, key: str) -> Any:
    """Return the value of a field; None if there is none.

    >>> find({"Reward_Model": {"ground_truth": "5"}}, "reward_model.ground_truth")
    '5'
    """
    for part in [key] if is_a(row, dict) and key in row else key.split("."):
        names = {str(name).strip("\ufeff \t").casefold(): name for name in row} if is_a(row, dict) else {}
        row = row.get(names.get(part.casefold(), part)) if names else None
    return row


def gold_text(gold: Any, *, what: str = "the gold answer") -> str:
    """Return a gold answer as the text that is compared: 3 is "3", 1e-7 is "0.0000001", a fraction is "3/4".

    Raise ValueError for anything but a text or a finite number.
    """
    if isinstance(gold, str):
        return gold
    is_number = not is_a(gold, bool)
    if isinstance(gold, Integral) and is_number:
        return str(int(gold))
    if isinstance(gold, Rational) and is_number:
        return f"{gold.numerator}/{gold.denominator}"
    if isinstance(gold, Real | Decimal) and is_number and math.isfinite(gold):
        return format(Decimal(str(gold)), "f")
    advice = "Give the field that holds it." if isinstance(gold, Mapping) else "Give the answer itself."
    raise ValueError(f"{what} is {gold!r:.80}; expected a text or a number. {advice}")


def gold_of(value: Any) -> str:
    """Return the gold of a field: an answer, a list of answers that are all right, or a solution with `####` or a box.

    Raise ValueError if it holds none.
    """
    golds = [gold_text(item).rpartition("\n####")[2].strip() for item in (value if is_a(value, list) else [value])]
    if not any(golds):
        raise ValueError("the gold answer is empty")
    return joined_golds(filter(None, golds))


def text_of(value: Any) -> str:
    """Return a text, or the text of a conversation's last message with its thought; empty unless the model wrote it."""
    if isinstance(value, str):
        return value
    last = value[-1] if is_a(value, list, tuple) and value else value
    if _part(last, "role", "from") not in _MODEL:
        return ""
    content = _part(last, "content", "value", "text")
    if is_a(content, list):
        content = "\n".join(str(_part(part, "text") or "") for part in content)
    text, thought = (
        content if isinstance(content, str) else "",
        _part(last, "reasoning_content", "thinking", "reasoning"),
    )
    has_own = not isinstance(thought, str) or not thought or text.startswith("<think>")
    return text if has_own else f"<think>\n{thought}\n</think>\n\n{text}"


def responses_of(value: Any) -> Iterator[str]:
    """Yield the responses of a field: a text, a conversation, or a list of either."""
    is_chat = is_a(value, list) and all(_part(item, "role", "from") for item in value)
    for item in value if is_a(value, list) and not is_chat else [value]:
        yield text_of(item) if is_a(item, str, list, dict) else json.dumps(item)


def _part(message: Any, *names: str) -> Any:
    """Return the first of the names that a message has, which is a mapping or an object."""
    values = (message.get(name) if is_a(message, Mapping) else getattr(message, name, None) for name in names)
    return next((value for value in values if value is not None), None)
