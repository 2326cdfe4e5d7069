"""A thinking-budget curve: one evaluation for each budget, side by side in a folder.

budget-64/  budget-256/  budget-none/    evaluations (see `folder`), equal in all settings but the budget
budgets.json                             settings and a row for each budget
budgets.svg                              pass@1 and the vote by budget
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansatz.errors import ConfigError
from ansatz.evaluate.folder import EvaluationFolder
from ansatz.evaluate.response_store import write_json
from ansatz.evaluate.responses import MODES
from ansatz.track.svg import Chart, Series, line_chart

PREFIX = "budget-"
OWN_SETTINGS = ("thinking_budget", "closing")


def parse_budgets(text: str) -> list[int]:
    """ "0,64,256" as numbers, from the tightest to none (0). ConfigError for others, and for one that comes twice."""
    try:
        budgets = [int(part) for part in text.split(",")]
    except ValueError:
        budgets = []
    if not budgets or min(budgets) < 0 or len(set(budgets)) < len(budgets):
        raise ConfigError(f"--budgets {text!r}: expected different numbers of tokens, such as 64,256,0 (0: no bound).")
    return sorted(budgets, key=lambda budget: (budget == 0, budget))


def budget_folder(path: Path, budget: int) -> Path:
    return path / f"{PREFIX}{budget or 'none'}"


def budget_folders(path: Path) -> list[EvaluationFolder]:
    """The evaluations of a curve that stand in a folder, in its order; none where it holds no curve."""
    found = [EvaluationFolder(one) for one in path.glob(f"{PREFIX}*") if (one / "settings.json").is_file()]
    return sorted(found, key=lambda one: (_budget(one) == 0, _budget(one)))


def write_curve(path: Path, folders: Sequence[EvaluationFolder]) -> dict[str, Any]:
    """budgets.json and budgets.svg from the rollouts of the folders alone; returns what the former holds.

    ConfigError where they differ in more than the budget. DataError where one is not sampled to its end.
    """
    results = [folder.write_results() for folder in folders]
    common = [_without_budget(one["settings"]) for one in results]
    for folder, settings in zip(folders, common, strict=True):
        if settings != common[0]:
            keys = [key for key in {**settings, **common[0]} if settings.get(key) != common[0].get(key)]
            raise ConfigError(
                f"{folder.path} differs from {folders[0].path} in {', '.join(keys)}; a curve needs evaluations that "
                "differ in the budget alone. Give each curve a folder of its own: --out DIR."
            )
    curve = {"settings": common[0], "rows": [_row(one) for one in results]}
    write_json(path / "budgets.json", curve)
    chart = line_chart(budget_chart(curve), width=640, height=360, standalone=True)
    (path / "budgets.svg").write_text(chart + "\n", encoding="utf-8")
    return curve


def budget_chart(curve: Mapping[str, Any]) -> Chart:
    """pass@1 of each reading and the strict vote, budgets at even distances. Readings that coincide are drawn once."""
    rows, settings = curve["rows"], curve["settings"]
    labels = [f"{_label(row['budget'])}, {row['mean_length']:.0f} tokens" for row in rows]
    votes = max(rows[0]["strict"]["maj@k"], key=int)
    lines = {mode: [row[mode]["pass@1"] for row in rows] for mode in MODES}
    series = [
        Series(
            name=" = ".join(f"pass@1 {other}" for other in MODES if lines[other] == lines[mode]),
            points=list(enumerate(lines[mode])),
            band=[(place, *row[mode]["pass@1_interval"]) for place, row in enumerate(rows)] if mode == MODES[0] else (),
            labels=labels,
            dots=True,
        )
        for place, mode in enumerate(MODES)
        if lines[mode] not in [lines[before] for before in MODES[:place]]
    ]
    if int(votes) > 2:
        points = [(place, row["strict"]["maj@k"][votes]) for place, row in enumerate(rows)]
        series.append(Series(name=f"maj@{votes} strict", points=points, labels=labels, dashed=True, dots=True))
    return Chart(
        title=f"{settings['suite']['name']} by thinking budget",
        series=series,
        x_label="thinking budget (tokens)",
        share=True,
        x_ticks=[(place, _label(row["budget"])) for place, row in enumerate(rows)],
    )


def _row(results: Mapping[str, Any]) -> dict[str, Any]:
    scores, settings = results["scores"], results["settings"]
    kept = ("mean_length", "truncated_frac", "finishes", "format_frac", *MODES)
    return {
        "budget": settings.get("thinking_budget", 0),
        "closing": settings.get("closing"),
        **{key: scores[key] for key in kept},
    }


def _without_budget(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in OWN_SETTINGS}


def _budget(folder: EvaluationFolder) -> int:
    return folder.settings().get("thinking_budget", 0)


def _label(budget: int) -> str:
    return str(budget) if budget else "none"
