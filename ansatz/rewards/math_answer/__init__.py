"""Decides whether an answer equals the gold answer: exact, bounded in time, and hard to cheat. Usable on its own.

    from ansatz.rewards.math_answer import equivalent, verify

    verify("1/2", "... so the answer is \\\\boxed{0.5}")     # Verdict(correct=True, reason=equal, ...)
    equivalent("1/2", "0.33")                              # falsy, reason=different

Three layers: `extract` finds the answer string in a response, `parse` turns a string into a small typed value, and
`compare` compares two values. Cheap and exact stages come first. Algebra comes last, in a worker process that can be
killed.
"""

from ansatz.rewards.math_answer.gold import check_golds
from ansatz.rewards.math_answer.options import Options
from ansatz.rewards.math_answer.reward import math_answer
from ansatz.rewards.math_answer.verify import ALGEBRA_TARGET, default_pool, equivalent, verify
from ansatz.types import Reason, Verdict

__all__ = [
    "ALGEBRA_TARGET",
    "Options",
    "Reason",
    "Verdict",
    "check_golds",
    "default_pool",
    "equivalent",
    "math_answer",
    "verify",
]
