"""The report of several runs: one HTML file with their curves over each other, their results, and what differs in their
recipes.

The x axis is the step of each stage, so runs with the same stages can be compared step by step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ansatz.config.load import parse_yaml
from ansatz.config.schema import flat_keys
from ansatz.errors import ConfigError
from ansatz.track.console import duration, percent
from ansatz.track.figures import PANELS, Panel, curves, learning_curves, panel_note
from ansatz.track.jsonl import Row
from ansatz.track.page import both_widths, header, page, table, text
from ansatz.track.runs import PipelineRun, StageRun
from ansatz.track.svg import line_chart

NAMES = ("name", "out")
"""Keys that only say where a run is."""


def render_runs(runs: Sequence[PipelineRun], *, comparisons: Sequence[Mapping[str, Any]]) -> str:
    """Return the whole page. comparisons: of each run but the first with the first (`evaluate.comparisons`)."""
    names = run_names(runs)
    lede = "Curves and results of these runs. Each run has one colour in every chart."
    body = [header("Ansatz report", ", ".join(names), lede, ""), *draw_runs(runs, comparisons=comparisons)]
    return page(f"{', '.join(names)} - Ansatz report", body)


def draw_runs(
    runs: Sequence[PipelineRun],
    *,
    comparisons: Sequence[Mapping[str, Any]],
    link: Callable[[str, str], str] = lambda run, problem: "",
) -> list[str]:
    """Return the sections of the page. comparisons: see `render_runs`. link: the address of a problem of a run; empty
    for none."""
    names = run_names(runs)
    splits = list(dict.fromkeys(split for run in runs for split in run.splits()))
    stages = list(dict.fromkeys(stage.name for run in runs for stage in run.stages if stage.metrics))
    body = [_tell_learned(runs, names, split) for split in splits]
    named = zip(names[1:], comparisons, strict=True)
    body += ["<section><h2>Problem by problem</h2>", *(_compare(names[0], *each, link) for each in named), "</section>"]
    body += [_differences(runs, names)]
    return body + [_stage(runs, names, stage) for stage in stages]


def run_names(runs: Sequence[PipelineRun]) -> list[str]:
    """Return the runs' names; where two are the same, as much of the path as tells them apart."""
    paths = [run.folder.resolve() for run in runs]
    depth = 1
    while max(Counter("/".join(path.parts[-depth:]) for path in paths).values()) > 1 and depth < 40:
        depth += 1
    return ["/".join(path.parts[-depth:]) for path in paths]


def _compare(first: str, other: str, numbers: Mapping[str, Any], link: Callable[[str, str], str]) -> str:
    """Return what changed on the problems that both have: a table by level, and the problems that changed most."""
    if "missing" in numbers:
        return f"<p>{text(' '.join(numbers['missing']))}</p>"
    heads = ("problems", "number", first, other, "difference", "95 % interval", "better", "worse", "p")
    rows = {"all": numbers, **{f"level {level}": row for level, row in numbers["by_level"].items()}}
    lines = [f'<tr><th scope="row">{text(name)}</th>{_fill_cells(row)}</tr>' for name, row in rows.items()]
    caption = f"pass@1 of {other} against {first}, paired by problem"
    warnings = "".join(f" Besides the model, this differs: {warning}." for warning in numbers["warnings"])
    note = "p: exact sign test on the problems that differ. The interval is a bootstrap of the paired differences."
    changed = "".join(
        f"<li>{_name(row['id'], link(other, row['id']))}: {percent(row['a'])} to {percent(row['b'])}</li>"
        for row in numbers["changed"]
    )
    folded = (
        f"<details><summary>The problems that changed most</summary><ul>{changed}</ul></details>" if changed else ""
    )
    sentence = text(numbers["conclusion"].replace("A is", f"{first} is").replace("B is", f"{other} is") + warnings)
    return f"{table(caption, heads, lines, note)}<p>{sentence}</p>{folded}"


def _fill_cells(row: Mapping[str, Any]) -> str:
    low, high = (f"{100 * end:+.1f}" for end in row["difference_interval"])
    cells = (
        str(row["num_problems"]),
        *(percent(row[side]) for side in ("a", "b")),
        f"{100 * row['difference']:+.1f}",
        f"{low} to {high}",
        *(str(row[side]) for side in ("wins_b", "wins_a")),
        f"{row['p_value']:.3f}",
    )
    return "".join(f"<td>{text(cell)}</td>" for cell in cells)


def _name(problem: str, address: str) -> str:
    return f'<a href="{text(address)}">{text(problem)}</a>' if address else text(problem)


def _tell_learned(runs: Sequence[PipelineRun], names: Sequence[str], split: str) -> str:
    rows_of = [[row for row in run.evaluations() if row["split"] == split] for run in runs]
    lines = [_result(name, rows[-1], run.seconds) for name, rows, run in zip(names, rows_of, runs, strict=True) if rows]
    heads = ("run", "last evaluation", "problems", "pass@1", "95 % interval", "greedy", "length", "wall time")
    return (
        f"<section><h2>What was learned: {text(split)}</h2><p>pass@1 on held-out problems with its 95 % interval. "
        "Stages and their steps go from left to right.</p>"
        f'<div class="card full">{both_widths(learning_curves(runs, names, split))}</div>'
        f"{table('The last evaluation of each run', heads, lines, '')}</section>"
    )


def _result(name: str, row: Row, seconds: float) -> str:
    interval = row.get("pass@1_interval")
    cells = (
        f"{row['stage']}, step {row['step']}",
        str(row.get("num_problems", "-")),
        percent(row["pass@1"]),
        f"{percent(interval[0])} to {percent(interval[1])}" if interval else "-",
        percent(row["greedy"]),
        f"{row['mean_length']:.1f}",
        duration(seconds),
    )
    return f'<tr><th scope="row">{text(name)}</th>{"".join(f"<td>{text(cell)}</td>" for cell in cells)}</tr>'


def _stage(runs: Sequence[PipelineRun], names: Sequence[str], stage: str) -> str:
    found = [next((each for each in run.stages if each.name == stage), None) for run in runs]
    metrics = list(dict.fromkeys(name for each in found if each for name in each.metric_names()))
    main = [panel for panel in PANELS if panel.explain in metrics]
    others = [name for name in metrics if name not in {panel.explain for panel in main}]
    more = [Panel(title=name, metrics=((name, name),)) for name in others]
    folded = (
        f"<details><summary>All other curves ({len(more)})</summary>"
        f'<div class="grid">{_cards(found, names, more)}</div></details>'
        if more
        else ""
    )
    return (
        f"<section><h2>Curves: {text(stage)}</h2><p>Bold lines are running means. Dotted lines mark the edge of the "
        f'healthy range.</p><div class="grid">{_cards(found, names, main)}</div>{folded}</section>'
    )


def _cards(stages: Sequence[StageRun | None], names: Sequence[str], panels: Iterable[Panel]) -> str:
    return "".join(_card(stages, names, panel) for panel in panels)


def _card(stages: Sequence[StageRun | None], names: Sequence[str], panel: Panel) -> str:
    chart = curves(stages, names, panel)
    healthy, _ = panel_note(panel)
    note = f"<p><b>Healthy:</b> {text(healthy)}.</p>" if healthy else ""
    return f'<div class="card"><h3>{text(chart.title)}</h3>{line_chart(chart)}{note}</div>'


def _differences(runs: Sequence[PipelineRun], names: Sequence[str]) -> str:
    """Return the keys of the recipes that are not the same in all runs."""
    recipes = [_flat_recipe(run) for run in runs]
    keys = list(dict.fromkeys(key for recipe in recipes for key in recipe))
    differing = [key for key in keys if key not in NAMES and len({_value(recipe, key) for recipe in recipes}) > 1]
    if not differing:
        return "<section><h2>What differs</h2><p>The recipes are the same.</p></section>"
    lines = [
        f'<tr><th scope="row">{text(key)}</th>'
        f"{''.join(f'<td>{text(_value(recipe, key))}</td>' for recipe in recipes)}</tr>"
        for key in differing
    ]
    rows = table("Keys of the recipes that are not the same in all runs", ("key", *names), lines, "")
    return f"<section><h2>What differs</h2>{rows}</section>"


def _flat_recipe(run: PipelineRun) -> Mapping[str, Any]:
    try:
        recipe = parse_yaml(run.config_text, where=str(run.folder / "config.yaml"))
    except ConfigError:
        return {}
    return flat_keys(cast("Mapping[str, Any]", recipe)) if isinstance(recipe, Mapping) else {}


def _value(recipe: Mapping[str, Any], key: str) -> str:
    return str(recipe[key]) if key in recipe else "(not set)"


def default_path(runs: Sequence[Path]) -> Path:
    """Return where the report of several runs is written if nothing else is said."""
    name = "-".join(run.resolve().name for run in runs)
    return Path("reports") / f"{name if len(name) <= 150 else f'{name[:150]}-{len(runs)}-runs'}.html"
