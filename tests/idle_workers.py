"""Workers for algebra that start with the first answer that needs them.

A run starts them with itself. Few toy runs have such an answer, and each import of sympy takes as long as half a toy
run. `START` is what a run does; tests/rewards/test_reward_grader.py tests it, and some tests of tests/e2e use it.
"""

from __future__ import annotations

from ansatz.rewards.grader import RewardGrader

START = RewardGrader.start


def start_workers_when_needed() -> None:
    RewardGrader.start = lambda grader: None  # type: ignore[method-assign]
