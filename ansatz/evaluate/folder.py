"""An evaluation in a folder: a response store (see `response_store`), and results.json once all is sampled.

results.json           settings and scores (see `scores`)
cost.json, cost.svg    with several samples: maj@k by the tokens that k responses take (see `cost`)
"""

from __future__ import annotations

from typing import Any, cast

from ansatz.errors import ConfigError
from ansatz.evaluate.cost import write_cost
from ansatz.evaluate.response_store import ResponseStore, write_json
from ansatz.evaluate.responses import graded_again, to_row
from ansatz.evaluate.scores import suite_scores
from ansatz.rewards.pool import WorkerPool
from ansatz.track.jsonl import write_jsonl


class EvaluationFolder(ResponseStore):
    """The files of one evaluation."""

    def settings(self) -> dict[str, Any]:
        """Return the settings as in every store. Raise ConfigError also for a folder of `ansatz sample`, or a changed
        file."""
        settings = super().settings()
        suite = settings.get("suite")
        card = cast("dict[str, Any]", suite) if isinstance(suite, dict) else {}
        right = {
            "suite": "suite" not in settings
            or (isinstance(card.get("name"), str) and isinstance(card.get("as_on_card", True), bool)),
            "seed": isinstance(settings.get("seed"), int) and settings["seed"] >= 0,
            "temperature": isinstance(settings.get("temperature", 1.0), int | float),
            "samples_per_prompt": isinstance(settings.get("samples_per_prompt"), int),
            "opening": isinstance(settings.get("opening", ""), str),
        }
        for key, is_right in right.items():
            if not is_right:
                raise ConfigError(
                    f"{self.path / 'settings.json'}: {key} is {settings.get(key)!r:.60}, which `ansatz eval` does not "
                    "write. Give a folder that it wrote, or restore the file."
                )
        return settings

    def grade_again(self, *, pool: WorkerPool) -> None:
        """Replace every verdict by that of the current verifier. Raise ConfigError if the verifier did not grade."""
        if (name := self.settings().get("rewards")) is not None:
            raise ConfigError(
                f"{self.path} was graded by the rewards {name}, which need the problems, not only their answers. "
                "Only verdicts of the verifier can be computed again."
            )
        self.check_writable()
        write_jsonl(
            self.rollouts,
            [to_row(graded_again(response, pool=pool)) for group in self.responses() for response in group],
        )

    def write_results(self) -> dict[str, Any]:
        """Write results.json. It depends only on settings and rollouts: equal files give equal bytes."""
        settings, responses = self.settings(), self.responses()
        if "suite" not in settings:
            raise ConfigError(f"{self.path} holds responses, but no evaluation: `ansatz eval` did not write it.")
        scores = suite_scores(responses, seed=settings["seed"], opening=settings.get("opening", ""))
        results = {"settings": settings, "scores": scores}
        write_json(self.path / "results.json", results)
        write_cost(self.path, settings["suite"]["name"], {"all": scores})
        return results
