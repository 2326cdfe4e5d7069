"""The algebra stage, run in a worker process: numbers to many digits first, sympy for sums, integrals and limits."""

from __future__ import annotations

from typing import Any

from ansatz.rewards.math_answer import numeric, symbolic
from ansatz.rewards.math_answer.decide import decide_pair, decide_restated
from ansatz.rewards.math_answer.equality import Question
from ansatz.rewards.math_answer.options import Options
from ansatz.rewards.math_answer.values import Expr
from ansatz.types import Reason


def decide(job: dict[str, Any]) -> dict[str, Any]:
    """Turn {gold, answer, options} into {reason}. The strings are parsed again here and compared with algebra."""
    pair, options = (job["gold"], job["answer"]), Options(**job["options"])
    try:
        decision = decide_pair(*pair, options, answer_question)
    except numeric.NoNumber:
        try:
            restated = decide_restated(*pair, options, answer_question, unevaluated=True)
        except numeric.NoNumber:
            restated = None
        return {"reason": restated.reason if restated else Reason.UNPARSED}
    assert decision.reason is not None
    return {"reason": decision.reason}


def answer_question(question: Question, gold: Expr, answer: Expr) -> bool:
    """Evaluate both expressions at points. Asks sympy for a proof if a sum, integral or limit has no number."""
    try:
        if question == "rounded":
            return numeric.is_rounding(gold, answer)
        if question == "equal":
            return numeric.agree(gold, answer)
        return numeric.proportional(gold, answer, positive=question == "same_direction")
    except numeric.NoNumber:
        if question != "equal" or not symbolic.has_operator(gold, answer):
            raise
        return _provably_equal(gold, answer)


def _provably_equal(gold: Expr, answer: Expr) -> bool:
    try:
        return symbolic.provably_equal(gold, answer)
    except (numeric.NoNumber, MemoryError):
        raise
    except Exception:  # sympy raises many kinds of errors for expressions without a value; equality is then not proven
        return False
