"""The algebra stage, run in a worker process: numbers to many digits first, sympy for sums and integrals."""

from __future__ import annotations

import base64
import pickle
from typing import Any

from ansatz_verify import numeric, symbolic
from ansatz_verify import values as v
from ansatz_verify.decide import compare_values
from ansatz_verify.equality import Question
from ansatz_verify.functions import OPERATORS
from ansatz_verify.values import Expr
from ansatz_verify.verdict import Reason


def decide(job: dict[str, Any]) -> dict[str, Any]:
    """Turn the trees and options of `grade.ask_worker` into {reason}."""
    gold, answer, options = pickle.loads(base64.b64decode(job["pair"]))
    try:
        return {"reason": compare_values(gold, answer, options, answer_question)}
    except numeric.NoNumber:
        return {"reason": Reason.UNPARSED}


def answer_question(question: Question, gold: Expr, answer: Expr) -> bool:
    """Evaluate both expressions at points. Asks sympy for a proof if a sum or integral has no number."""
    try:
        if question == "rounded":
            return numeric.is_rounding(gold, answer)
        if question == "equal":
            return numeric.agree(gold, answer)
        return numeric.proportional(gold, answer, positive=question == "same_direction")
    except numeric.NoNumber:
        if question != "equal" or not (v.applies(gold, OPERATORS) or v.applies(answer, OPERATORS)):
            raise
        return _provably_equal(gold, answer)


def _provably_equal(gold: Expr, answer: Expr) -> bool:
    try:
        return symbolic.provably_equal(gold, answer)
    except (numeric.NoNumber, MemoryError):
        raise
    except Exception:  # sympy raises many kinds of errors for expressions without a value; equality is then not proven
        return False
