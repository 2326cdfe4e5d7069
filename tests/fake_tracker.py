"""MemoryTracker: the fake of the tracking seam, for tests of loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansatz.track.base import Evaluation, checked_evaluation, checked_metrics, evaluation_key
from ansatz.track.rollout_rows import StoredGroup


class MemoryTracker:
    """Keeps metrics and rollouts by step, and evaluations in order."""

    def __init__(self) -> None:
        self.steps: dict[int, dict[str, float]] = {}
        self.groups: dict[int, tuple[StoredGroup, ...]] = {}
        self.evaluations: list[dict[str, Any]] = []
        self.responses: dict[tuple[str, int], list[dict[str, Any]]] = {}
        self.events: list[dict[str, Any]] = []
        self.closed = False

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.steps[step] = checked_metrics(step, metrics, last_step=max(self.steps, default=-1))

    def samples(self, step: int, groups: Sequence[StoredGroup]) -> None:
        self.groups[step] = tuple(groups)

    @property
    def rows(self) -> dict[int, list[dict[str, Any]]]:
        """The rows of rollouts by step, as the tracker of a stage named rl writes them."""
        return {
            step: [row for number, group in enumerate(groups) for row in group.rows(f"rl/{step}", number)]
            for step, groups in self.groups.items()
        }

    def evaluation(self, row: Evaluation, responses: Sequence[Mapping[str, Any]] = ()) -> None:
        new = checked_evaluation(row)
        if responses:
            self.responses[new["split"], new["step"]] = [dict(response) for response in responses]
        self.evaluations = [old for old in self.evaluations if evaluation_key(old) != evaluation_key(new)] + [new]

    def event(self, step: int, kind: str, text: str, **numbers: float | str) -> None:
        self.events.append({"step": step, "kind": kind, "text": text, **numbers})

    def has_evaluation(self, *, stage: str, step: int) -> bool:
        return any(row["stage"] == stage and row["step"] == step for row in self.evaluations)

    def resume(self, step: int) -> None:
        self.steps = {key: value for key, value in self.steps.items() if key <= step}
        self.groups = {key: value for key, value in self.groups.items() if key <= step}
        self.evaluations = [row for row in self.evaluations if row["step"] <= step]
        self.responses = {key: rows for key, rows in self.responses.items() if key[1] <= step}
        self.events = [row for row in self.events if row["step"] <= step]

    def flush(self) -> None:
        """Do nothing: nothing waits in memory."""

    def close(self) -> None:
        self.closed = True
