"""The algebra stage, run in a worker process: numbers to many digits first, sympy where there are none to take."""

from __future__ import annotations

from typing import Any

from ansatz.rewards.math_answer import numeric, symbolic
from ansatz.rewards.math_answer.decide import settle
from ansatz.rewards.math_answer.equality import Question
from ansatz.rewards.math_answer.options import Options
from ansatz.rewards.math_answer.values import Expr
from ansatz.types import Reason


def decide(job: dict[str, Any]) -> dict[str, Any]:
    """{gold, answer, options} to {reason}: the strings are read again here, and compared with algebra at hand."""
    try:
        outcome = settle(job["gold"], job["answer"], Options(**job["options"]), answer_question)
    except numeric.NoNumber:
        return {"reason": Reason.UNPARSED}
    assert outcome.reason is not None
    return {"reason": outcome.reason}


def answer_question(question: Question, gold: Expr, answer: Expr) -> bool:
    """Evaluates both at points; where they have no number, as with an unknown function, asks sympy for a proof."""
    try:
        if question == "rounded":
            return numeric.is_rounding(gold, answer)
        if question == "equal":
            return numeric.agree(gold, answer)
        return numeric.proportional(gold, answer, positive=question == "same_direction")
    except numeric.NoNumber:
        if question != "equal":
            raise
        return _provably_equal(gold, answer)


def _provably_equal(gold: Expr, answer: Expr) -> bool:
    try:
        return symbolic.provably_equal(gold, answer)
    except (numeric.NoNumber, MemoryError):
        raise
    except Exception:  # sympy raises of every kind on what has no value; such an equality is not proven
        return False
