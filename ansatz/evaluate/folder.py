"""An evaluation in a folder: kept responses (see `kept`), and results.json from them once all are sampled.

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
        """Replaces every verdict by that of the verifier as it is now."""
        write_jsonl(
            self.rollouts, [to_row(graded_again(one, pool=pool)) for group in self.responses() for one in group]
        )

    def write_results(self) -> dict[str, Any]:
        """results.json from settings and rollouts alone: the same files give the same bytes."""
        settings = self.settings()
        scores = suite_scores(self.responses(), seed=settings["seed"], opening=settings.get("opening", ""))
        results = {"settings": settings, "scores": scores}
        write_json(self.path / "results.json", results)
        return results
