"""An evaluation in a folder: a response store (see `response_store`), and results.json once all is sampled.

results.json     settings and scores (see `scores`)
"""

from __future__ import annotations

from typing import Any

from ansatz.evaluate.response_store import ResponseStore, write_json
from ansatz.evaluate.responses import MODES, graded_again, to_row
from ansatz.evaluate.scores import suite_scores
from ansatz.rewards.pool import WorkerPool
from ansatz.track.jsonl import write_jsonl


class EvaluationFolder(ResponseStore):
    """The files of one evaluation."""

    NEEDS = MODES

    def grade_again(self, *, pool: WorkerPool) -> None:
        """Replace every verdict by that of the current verifier."""
        write_jsonl(
            self.rollouts,
            [to_row(graded_again(response, pool=pool)) for group in self.responses() for response in group],
        )

    def write_results(self) -> dict[str, Any]:
        """Write results.json. It depends only on settings and rollouts: equal files give equal bytes."""
        settings = self.settings()
        scores = suite_scores(self.responses(), seed=settings["seed"], opening=settings.get("opening", ""))
        results = {"settings": settings, "scores": scores}
        write_json(self.path / "results.json", results)
        return results
