"""Accuracy by tokens spent: how much a majority vote over more responses gains, and what it costs.

k responses to a problem take k times the mean length in tokens. With several thinking budgets, one line per budget
shows whether tokens are better spent on longer thoughts or on more votes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansatz.evaluate.response_store import write_json
from ansatz.files import write_text
from ansatz.track.svg import Chart, Series, figure


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
