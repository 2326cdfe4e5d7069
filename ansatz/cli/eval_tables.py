"""The tables that `ansatz eval` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def results_tables(results: Mapping[str, Any]) -> list[Any]:
    """The scores of all modes in one table, then the strict scores by level and by subject."""
    settings, scores = results["settings"], results["scores"]
    lines = [f"mean length {scores['mean_length']:.1f} tokens, {_percent(scores['truncated_frac'])} % truncated"]
    formats = [f"{name} {_percent(frac)}" for name, frac in scores["format_frac"].items()]
    lines.append(f"well formed, %: {', '.join(formats)}")
    if not settings["suite"]["as_on_card"]:
        lines.append("the suite's file differs from the version on its card")
    for kind in ("by_level", "by_subject"):
        for name, numbers in scores[kind].items():
            low, high = map(_percent, numbers["strict"]["pass@1_interval"])
            lines.append(
                f"{name}: {_percent(numbers['strict']['pass@1'])} [{low}, {high}] of {numbers['num_problems']} problems"
            )
    return [_scores_table(settings, scores), "\n".join(lines)]


def _scores_table(settings: Mapping[str, Any], scores: Mapping[str, Any]) -> Any:
    from rich import box
    from rich.table import Table

    modes = _modes(scores)
    title = (
        f"{settings['suite']['name']}: {scores['num_problems']} problems x {settings['samples_per_prompt']}, "
        f"temperature {settings['temperature']}"
    )
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    for head in ("%", *modes):
        table.add_column(head, justify="right")
    table.add_row("pass@1", *(_percent(scores[mode]["pass@1"]) for mode in modes))
    table.add_row("95 %", *("{} to {}".format(*map(_percent, scores[mode]["pass@1_interval"])) for mode in modes))
    for name in ("pass@k", "maj@k"):
        for k in list(scores[modes[0]][name])[1:]:  # at k = 1 both are pass@1
            table.add_row(f"{name[:-1]}{k}", *(_percent(scores[mode][name][k]) for mode in modes))
    if scores[modes[0]]["cons@64"] is not None:
        table.add_row("cons@64", *(_percent(scores[mode]["cons@64"]) for mode in modes))
    for reason in dict.fromkeys(reason for mode in modes for reason in scores[mode]["verdicts"]):
        table.add_row(reason, *(_percent(scores[mode]["verdicts"].get(reason, 0.0)) for mode in modes))
    return table


def budgets_table(curve: Mapping[str, Any]) -> Any:
    """One row per thinking budget."""
    from rich import box
    from rich.table import Table

    name = curve["settings"]["suite"]["name"]
    table = Table(title=f"{name} by thinking budget, %", title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    modes = _modes(curve["rows"][0])
    for head in ("budget", "mean tokens", "thought closed", "truncated", *modes):
        table.add_column(head, justify="right")
    for row in curve["rows"]:
        fracs = (row["finishes"].get("budget", 0.0), row["truncated_frac"])
        scores = (
            "{} [{}, {}]".format(*map(_percent, (row[mode]["pass@1"], *row[mode]["pass@1_interval"]))) for mode in modes
        )
        table.add_row(str(row["budget"] or "none"), f"{row['mean_length']:.1f}", *map(_percent, fracs), *scores)
    return table


def _modes(scores: Mapping[str, Any]) -> list[str]:
    return [name for name, value in scores.items() if isinstance(value, dict) and "pass@1" in value]


def _percent(frac: float) -> str:
    return f"{100 * frac:.1f}"
