"""The tables that `ansatz eval` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from ansatz.evaluate.budgets import budget_label
from ansatz.evaluate.scores import scored_modes


def make_table(title: str, heads: Sequence[str], *, left: Sequence[str] = ("",), **column: Any) -> Table:
    """Return an empty table. left: the columns whose text begins at the left; numbers end at the right. column: further
    arguments of `Table.add_column` for each column."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    for head in heads:
        table.add_column(head, justify="left" if head in left else "right", **column)
    return table


def results_tables(results: Mapping[str, Any]) -> list[Any]:
    """Return the scores of all modes in one table, then the scores of the first mode, the strict one, by level and by
    subject."""
    settings, scores = results["settings"], results["scores"]
    lines = [f"mean length {scores['mean_length']:.1f} tokens, {_percent(scores['truncated_frac'])} % truncated"]
    formats = [f"{name} {_percent(frac)}" for name, frac in scores["format_frac"].items()]
    lines += [f"well formed, %: {', '.join(formats)}", *suite_notes(results)]
    for kind in ("by_level", "by_subject"):
        for name, numbers in scores[kind].items():
            first = numbers[scored_modes(numbers)[0]]
            lines.append(f"{name}: {_with_interval(first)} of {numbers['num_problems']} problems")
    return [_scores_table(settings, scores), "\n".join(lines)]


def suite_notes(results: Mapping[str, Any]) -> list[str]:
    """Return notes on the suite's problems for a reader of the scores, one sentence each."""
    suite, scores, notes = results["settings"]["suite"], results["scores"], list[str]()
    if not suite.get("as_on_card", True):
        notes.append(f"{suite['name']}: the problems are not from the file that the suite's card names")
    for key, what in {
        "golds_as_text": "are words, which are compared as text",
        "golds_unreadable": "cannot be read, so no response to them is correct",
    }.items():
        if scores.get(key):
            notes.append(f"{suite['name']}: {scores[key]} of {scores['num_problems']} gold answers {what}")
    return notes


def _scores_table(settings: Mapping[str, Any], scores: Mapping[str, Any]) -> Any:
    modes = scored_modes(scores)
    title = (
        f"{settings['suite']['name']}: {scores['num_problems']} problems x {settings['samples_per_prompt']}, "
        f"temperature {settings.get('temperature', 'not known')}"
    )
    table = make_table(title, ("%", *modes))
    table.add_row("pass@1", *(_percent(scores[mode]["pass@1"]) for mode in modes))
    table.add_row("95 %", *("{} to {}".format(*map(_percent, scores[mode]["pass@1_interval"])) for mode in modes))
    for name in ("pass@k", "maj@k", "best@k", "weighted@k"):
        for k in list(scores[modes[0]].get(name, ()))[1:]:  # at k = 1 they are pass@1
            table.add_row(f"{name[:-1]}{k}", *(_percent(scores[mode][name][k]) for mode in modes))
    if scores[modes[0]]["cons@64"] is not None:
        table.add_row("cons@64", *(_percent(scores[mode]["cons@64"]) for mode in modes))
    for reason in dict.fromkeys(reason for mode in modes for reason in scores[mode]["verdicts"]):
        table.add_row(reason, *(_percent(scores[mode]["verdicts"].get(reason, 0.0)) for mode in modes))
    return table


def suites_table(results: Sequence[Mapping[str, Any]]) -> Any:
    """Return pass@1 with its interval in each mode, one row per suite. It fits 80 columns with three modes."""
    modes = list(dict.fromkeys(mode for result in results for mode in scored_modes(result["scores"])))
    heads = ("suite", "count", "length", *modes)
    table = make_table("pass@1 [95 %] by suite, %", heads, left=("suite",), no_wrap=True)
    for result in results:
        scores = result["scores"]
        cells = (_with_interval(scores[mode]) if mode in scores else "-" for mode in modes)
        table.add_row(
            result["settings"]["suite"]["name"],
            str(scores["num_problems"]),
            f"{scores['mean_length']:.1f}",
            *cells,
        )
    return table


def budgets_table(curve: Mapping[str, Any]) -> Any:
    """Return one row per thinking budget."""
    name = curve["settings"]["suite"]["name"]
    modes = scored_modes(curve["rows"][0])
    heads = ("budget", "mean tokens", "thought closed", "truncated", *modes)
    table = make_table(f"{name} by thinking budget, %", heads)
    for row in curve["rows"]:
        fracs = (row["finishes"].get("budget", 0.0), row["truncated_frac"])
        scores = (_with_interval(row[mode]) for mode in modes)
        table.add_row(budget_label(row["budget"]), f"{row['mean_length']:.1f}", *map(_percent, fracs), *scores)
    return table


def _with_interval(numbers: Mapping[str, Any]) -> str:
    """Return pass@1 with its interval, such as "81.2 [75.0, 86.4]"."""
    return "{} [{}, {}]".format(*map(_percent, (numbers["pass@1"], *numbers["pass@1_interval"])))


def _percent(frac: float) -> str:
    return f"{100 * frac:.1f}"
