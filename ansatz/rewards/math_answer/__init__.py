"""Is this answer the gold answer? Right, bounded, and impossible to cheat; usable by itself.

    from ansatz.rewards.math_answer import equivalent, verify

    verify("1/2", "... so the answer is \\\\boxed{0.5}")     # Verdict(correct=True, reason=equal, ...)
    equivalent("1/2", "0.33")                              # falsy, reason=different

extract (response to answer string), parse (string to a small typed value), compare (cheap and exact first; a computer
algebra system, in a worker process that can be killed, last).
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
