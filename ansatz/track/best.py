"""Which checkpoint of a stage is the best by held-out score."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ansatz.track.jsonl import Row


def best_evaluation(evaluations: Iterable[Row], steps: Collection[int]) -> Row | None:
    """Return the evaluation with the highest pass@1 among those of the given steps; of equal ones, the earliest step.

    pass@1 is the mean over samples, which varies less than greedy accuracy. As the best of several evaluations on the
    same problems, it is a little higher than the model would score on new ones.
    """
    rows = sorted((row for row in evaluations if row["step"] in steps), key=lambda row: row["step"])
    return max(rows, key=lambda row: row["pass@1"], default=None)
