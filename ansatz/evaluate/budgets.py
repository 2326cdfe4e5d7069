"""A thinking-budget curve: one evaluation per budget, in one folder.

budget-64/  budget-none/  budget-min256/ evaluations (see `folder`) that differ only in the budget
budgets.json                             the common settings, and one row per budget
budgets.svg                              pass@1 and maj@k by budget, from the shortest thoughts to the longest
cost.json, cost.svg                      maj@k by the tokens that k responses take, one line per budget

A budget N limits a thought to N tokens, 0 sets no limit, and -N makes a thought at least N tokens long ("+N").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansatz.errors import ConfigError
from ansatz.evaluate.folder import EvaluationFolder, write_cost
from ansatz.evaluate.response_store import write_json
from ansatz.evaluate.scores import scored_modes
from ansatz.files import write_text
from ansatz.links import list_folder
from ansatz.track.svg import Chart, Series, figure

PREFIX = "budget-"
BUDGET_SETTINGS = ("thinking_budget", "closing", "min_thinking_budget", "wait")


def parse_budgets(text: str) -> list[int]:
    """Read "0,64,+256" as [64, 0, -256]: from the shortest thoughts to the longest. Raise ConfigError for other text
    or duplicates."""
    parts = [part.strip() for part in text.split(",")]
    are_numbers = all(part.removeprefix("+").isdecimal() and part.isascii() for part in parts)
    budgets = [int(part) * (-1 if part.startswith("+") else 1) for part in parts] if are_numbers else []
    if not budgets or len(set(budgets)) < len(budgets):
        raise ConfigError(
            f"--thinking-budgets = {text!r}: expected different numbers of tokens, such as 64,256,0,+256 (0: no "
            "limit; +256: at least 256)."
        )
    return sorted(budgets, key=_from_shortest)


def budget_folder(path: Path, budget: int) -> Path:
    return path / f"{PREFIX}{budget_label(budget).replace('+', 'min')}"


def budget_label(budget: int) -> str:
    return "none" if budget == 0 else f"{budget}" if budget > 0 else f"+{-budget}"


def budget_folders(path: Path) -> list[EvaluationFolder]:
    """Return the evaluations of the curve in a folder, from the shortest thoughts to the longest. Empty if there is no
    curve."""
    folders = [
        EvaluationFolder(place) for place in list_folder(path, f"{PREFIX}*") if (place / "settings.json").is_file()
    ]
    return sorted(folders, key=lambda folder: _from_shortest(_budget_of(folder.settings())))


def write_curve(path: Path, folders: Sequence[EvaluationFolder]) -> dict[str, Any]:
    """Write budgets.json and budgets.svg. They depend only on the folders' rollouts. Return the content of
    budgets.json.

    Raise ConfigError if the folders differ in more than the budget. Raise DataError if one of them is incomplete.
    """
    results = [folder.write_results() for folder in folders]
    common = [_without_budget(result["settings"]) for result in results]
    for folder, settings in zip(folders, common, strict=True):
        if settings != common[0]:
            keys = [key for key in {**settings, **common[0]} if settings.get(key) != common[0].get(key)]
            raise ConfigError(
                f"{folder.path} differs from {folders[0].path} in {', '.join(keys)}; a curve needs evaluations that "
                "differ only in the budget. Give each curve a folder of its own: --out DIR."
            )
    curve = {"settings": common[0], "rows": [_row(result) for result in results]}
    write_json(path / "budgets.json", curve)
    write_text(path / "budgets.svg", figure(budget_chart(curve)))
    lines = {f"budget {budget_label(_budget_of(result['settings']))}": result["scores"] for result in results}
    write_cost(path, common[0]["suite"]["name"], lines)
    return curve


def budget_chart(curve: Mapping[str, Any]) -> Chart:
    """Return pass@1 of each mode and maj@k of the first one, the strict one, budgets at even distances. Equal lines are
    drawn once."""
    rows, settings = curve["rows"], curve["settings"]
    modes = scored_modes(rows[0])
    first = modes[0]
    labels = [f"{budget_label(row['budget'])}, {row['mean_length']:.0f} tokens" for row in rows]
    votes = max(rows[0][first]["maj@k"], key=int)
    lines = {mode: [row[mode]["pass@1"] for row in rows] for mode in modes}
    series = [
        Series(
            name=" = ".join(f"pass@1 {other}" for other in modes if lines[other] == lines[mode]),
            points=list(enumerate(lines[mode])),
            band=[(x, *row[mode]["pass@1_interval"]) for x, row in enumerate(rows)] if mode == first else (),
            labels=labels,
            dots=True,
        )
        for index, mode in enumerate(modes)
        if lines[mode] not in [lines[earlier] for earlier in modes[:index]]
    ]
    if int(votes) > 2:
        points = [(x, row[first]["maj@k"][votes]) for x, row in enumerate(rows)]
        series.append(Series(name=f"maj@{votes} {first}", points=points, labels=labels, dashed=True, dots=True))
    return Chart(
        title=f"{settings['suite']['name']} by thinking budget",
        series=series,
        x_label="thinking budget (tokens)",
        is_fraction=True,
        x_ticks=[(x, budget_label(row["budget"])) for x, row in enumerate(rows)],
    )


def _row(results: Mapping[str, Any]) -> dict[str, Any]:
    scores, settings = results["scores"], results["settings"]
    shown = ("mean_length", "truncated_frac", "finishes", "format_frac", *scored_modes(scores))
    return {"budget": _budget_of(settings), "closing": settings.get("closing"), **{key: scores[key] for key in shown}}


def _without_budget(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in BUDGET_SETTINGS}


def _from_shortest(budget: int) -> tuple[bool, int]:
    """Return a key that sorts budgets from the shortest thoughts to the longest."""
    return budget <= 0, abs(budget)


def _budget_of(settings: Mapping[str, Any]) -> int:
    return settings.get("thinking_budget", 0) or -settings.get("min_thinking_budget", 0)
