"""Layer 3: whether two values are equal."""

from __future__ import annotations

from dataclasses import dataclass

from ansatz.rewards.math_answer.options import Options
from ansatz.rewards.math_answer.parse import parse_number
from ansatz.types import Reason


@dataclass(frozen=True, slots=True)
class Outcome:
    """reason None: not settled without algebra."""

    reason: Reason | None
    stage: str


def settle(gold: str, answer: str, options: Options) -> Outcome:
    if gold.strip() and gold.strip() == answer.strip():
        return Outcome(Reason.EQUAL, "string")
    left, right = parse_number(gold), parse_number(answer)
    if left is not None and left == right:
        return Outcome(Reason.EQUAL, "number")
    return Outcome(Reason.DIFFERENT, "string")
