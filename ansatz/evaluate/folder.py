"""An evaluation in a folder: a response store (see `response_store`), and results.json once all is sampled.

results.json           settings and scores (see `scores`)
cost.json, cost.svg    with several samples: maj@k by the tokens that k responses take

k responses to a problem take k times the mean length in tokens. With several thinking budgets, one line per budget
shows whether tokens are better spent on longer thoughts or on more votes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ansatz_verify.pool import WorkerPool

from ansatz.errors import ConfigError
from ansatz.evaluate.response_store import ResponseStore, write_json
from ansatz.evaluate.responses import graded_again, to_row
from ansatz.evaluate.scores import suite_scores
from ansatz.files import write_text
from ansatz.track.jsonl import write_jsonl
from ansatz.track.svg import Chart, Series, figure


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
        """Replace every verdict by the current verifier's verdict. Raise ConfigError if the verifier did not grade."""
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
        scores = suite_scores(responses, opening=settings.get("opening", ""))
        results = {"settings": settings, "scores": scores}
        write_json(self.path / "results.json", results)
        write_cost(self.path, settings["suite"]["name"], {"all": scores})
        return results


def cost_rows(scores: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row for each k of maj@k: k, mean_tokens (of k responses to one problem), and maj@k by mode."""
    modes = [mode for mode, numbers in scores.items() if isinstance(numbers, dict) and "maj@k" in numbers]
    return [
        {
            "k": int(k),
            "mean_tokens": int(k) * scores["mean_length"],
            "maj@k": {mode: scores[mode]["maj@k"][k] for mode in modes},
        }
        for k in scores[modes[0]]["maj@k"]
    ]


def write_cost(path: Path, suite: str, scores_by_line: Mapping[str, Mapping[str, Any]]) -> None:
    """Write cost.json and cost.svg, unless every problem has only one response.

    scores_by_line: the scores of each evaluation by the name of its line in the figure.
    """
    lines = {name: cost_rows(scores) for name, scores in scores_by_line.items()}
    if all(len(rows) == 1 for rows in lines.values()):
        return
    write_json(path / "cost.json", {"suite": suite, "lines": lines})
    write_text(path / "cost.svg", figure(cost_chart(suite, lines)))


def cost_chart(suite: str, lines: Mapping[str, list[dict[str, Any]]]) -> Chart:
    """Return maj@k of the first mode (the strict one) by mean tokens; a dot for each k."""
    mode = next(iter(next(iter(lines.values()))[0]["maj@k"]))
    return Chart(
        title=f"{suite}: majority vote by tokens spent",
        series=[
            Series(
                name=f"maj@k {mode}" if len(lines) == 1 else name,
                points=[(row["mean_tokens"], row["maj@k"][mode]) for row in rows],
                labels=[f"k = {row['k']}, {row['mean_tokens']:.0f} tokens" for row in rows],
                dots=True,
            )
            for name, rows in lines.items()
        ],
        x_label="mean tokens per problem",
        is_fraction=True,
    )
