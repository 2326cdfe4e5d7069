"""A grader without rewards: a function of the rollout gives the value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ansatz.types import Reason, Rollout, Score, ScoredRollout, Verdict


class FakeGrader:
    """value(rollout) is the reward; above 0 means correct, and with nan no reward applies. `steps` records the step of
    each call."""

    def __init__(self, value: Callable[[Rollout], float] = lambda rollout: 1.0) -> None:
        self._value = value
        self.steps: list[int] = []
        self.closed, self.threads = False, 1

    def score(self, rollouts: Sequence[Rollout], *, step: int = 0) -> list[ScoredRollout]:
        self.steps.append(step)
        return [ScoredRollout(rollout=rollout, score=self._score(rollout)) for rollout in rollouts]

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> FakeGrader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _score(self, rollout: Rollout) -> Score:
        value = float(self._value(rollout))
        correct = value > 0
        reason = Reason.EQUAL if correct else Reason.TRUNCATED if rollout.truncated else Reason.DIFFERENT
        given = 0.0 if math.isnan(value) else value
        return Score(value=given, parts={"fake": value}, verdict=Verdict(correct=correct, reason=reason, stage="fake"))
