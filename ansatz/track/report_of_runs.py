"""The page of several runs: their curves over each other, their results, and the differences between their recipes.

The x axis is the step of each stage, so runs with the same stages can be compared step by step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansatz.config.fields import as_mapping
from ansatz.config.load import parse_yaml
from ansatz.config.schema import flat_keys
from ansatz.errors import ConfigError
from ansatz.track.figures import PANELS, Drawn, Panel, curves, learning_curves
from ansatz.track.jsonl import Row
from ansatz.track.runs import PipelineRun

NAMES = ("name", "out")
"""Keys that only say where a run is."""


def describe_runs(
    runs: Sequence[PipelineRun], names: Sequence[str], *, comparisons: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the values that the template `compare.html` shows. comparisons: of each run but the first with the first
    (`evaluate.comparisons`)."""
    splits = list(dict.fromkeys(split for run in runs for split in run.splits()))
    stages = list(dict.fromkeys(stage.name for run in runs for stage in run.stages if stage.metrics))
    return {
        "names": names,
        "splits": [(split, learning_curves(runs, names, split), _ends(runs, names, split)) for split in splits],
        "comparisons": list(zip(names[1:], comparisons, strict=True)),
        "differing": differing_keys(runs),
        "stages": [(stage, *_draw_stage(runs, names, stage)) for stage in stages],
    }


def run_names(runs: Sequence[PipelineRun]) -> list[str]:
    """Return the runs' names; where two are the same, as much of the path as tells them apart."""
    paths = [run.folder.resolve() for run in runs]
    depth = 1
    while max(Counter("/".join(path.parts[-depth:]) for path in paths).values()) > 1 and depth < 40:
        depth += 1
    return ["/".join(path.parts[-depth:]) for path in paths]


def _ends(runs: Sequence[PipelineRun], names: Sequence[str], split: str) -> list[tuple[str, Row, float]]:
    """Return (name, last evaluation, wall time) of the runs that were evaluated on a split."""
    rows_of = [[row for row in run.evaluations() if row["split"] == split] for run in runs]
    return [(name, rows[-1], run.seconds) for name, rows, run in zip(names, rows_of, runs, strict=True) if rows]


def _draw_stage(runs: Sequence[PipelineRun], names: Sequence[str], stage: str) -> tuple[list[Drawn], list[Drawn]]:
    """Return the curves that are always shown, and the others."""
    found = [next((each for each in run.stages if each.name == stage), None) for run in runs]
    metrics = list(dict.fromkeys(name for each in found if each for name in each.metric_names()))
    main = [panel for panel in PANELS if panel.explain in metrics]
    shown = {panel.explain for panel in main}
    more = [Panel(title=name, metrics=((name, name),)) for name in metrics if name not in shown]
    return [curves(found, names, panel) for panel in main], [curves(found, names, panel) for panel in more]


def differing_keys(runs: Sequence[PipelineRun]) -> list[tuple[str, list[str]]]:
    """Return the keys of the recipes that are not the same in all runs, with the value in each."""
    recipes = [_flat_recipe(run) for run in runs]
    keys = list(dict.fromkeys(key for recipe in recipes for key in recipe if key not in NAMES))
    values = [(key, [str(recipe.get(key, "(not set)")) for recipe in recipes]) for key in keys]
    return [(key, each) for key, each in values if len(set(each)) > 1]


def _flat_recipe(run: PipelineRun) -> Mapping[str, Any]:
    try:
        return flat_keys(as_mapping(parse_yaml(run.config_text, where=str(run.folder / "config.yaml"))))
    except ConfigError:
        return {}


def default_path(runs: Sequence[Path]) -> Path:
    """Return where the report of several runs is written if nothing else is said."""
    name = "-".join(run.resolve().name for run in runs)
    return Path("reports") / f"{name if len(name) <= 150 else f'{name[:150]}-{len(runs)}-runs'}.html"
