"""What the verifier's claims are measured with: accuracy and speed, side by side with math-verify in one run.

    python benchmarks/verifier.py CASES            a folder with cases/, real/, hacks.jsonl, adversarial.jsonl
    python benchmarks/verifier.py CASES --peer     also math-verify (pip install "math-verify[antlr4_13_2]==0.9.0")

`grade` and the functions of `POLICIES` have the shape function(gold, prediction, kind) -> bool for other harnesses.
"""

from __future__ import annotations

from ansatz.rewards.math_answer import ALGEBRA_TARGET, equivalent, verify
from ansatz.rewards.pool import WorkerPool

POOL = WorkerPool(ALGEBRA_TARGET, timeout_s=0.9)
POOL.start()


def grade(gold: str, prediction: str, kind: str = "full_response") -> bool:
    """The defaults. A whole response is read with anchors ("the answer is"), a bare answer as it stands."""
    if kind == "answer_equivalence":
        return bool(equivalent(gold, prediction, pool=POOL))
    return bool(verify(gold, prediction, mode="anchored", pool=POOL))
