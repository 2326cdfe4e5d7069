"""Evaluations of the same problems compared with the first, for the terminal, the report and the viewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansatz.config.sampling import SamplingOptions
from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.paired import comparison, paired
from ansatz.evaluate.scores import modes_of
from ansatz.evaluate.sides import Side, read_side
from ansatz.track.report_of_runs import differing_keys

NUM_CHANGED = 20
"""Problems that changed most, which pages of several runs show."""


def compare_sides(paths: Sequence[Path], *, mode: str, num_changed: int) -> list[dict[str, Any]]:
    """Return each path but the first compared with the first: the numbers of `paired.comparison` in a mode (empty: the
    first one), the folders, and `warnings` about other differences. If one of the two has no stored responses,
    `missing` says so, and there are only the two scores that the runs have logged. recipes: of two runs, a sentence for
    each key that differs, and one for the numbers of steps."""
    first, *others = (read_side(path) for path in paths)
    return [_compare(first, other, mode=mode, num_changed=num_changed) for other in others]


def _compare(a: Side, b: Side, *, mode: str, num_changed: int) -> dict[str, Any]:
    names = {"folder_a": a.name, "folder_b": b.name, "recipes": _compare_recipes(a, b)}
    if missing := [side.missing for side in (a, b) if side.missing]:
        return {**names, "missing": missing, "rows": [side.row for side in (a, b)]}
    mode = mode or modes_of(a.responses)[0]
    for side in (a, b):
        if mode not in (modes := modes_of(side.responses)):
            raise ConfigError(
                f"--mode = {mode!r}: {side.name} has verdicts of {', '.join(modes)}. Choose one of these."
            )
    pairs = paired(a.responses, b.responses)
    numbers = comparison(pairs, mode=mode, seed=a.seed, num_changed=num_changed)
    warnings = _differences(a.settings, b.settings)
    if len(pairs) < max(len(a.responses), len(b.responses)):
        count = f"A has {len(a.responses)}, B has {len(b.responses)}"
        warnings.append(f"only the {len(pairs)} problems in both count; {count}")
    return {**names, "mode": mode, "warnings": warnings, **numbers}


def _compare_recipes(a: Side, b: Side) -> list[str]:
    if a.run is None or b.run is None:
        return []
    keys = [f"{key}: A {left}, B {right}" for key, (left, right) in differing_keys([a.run, b.run])]
    steps = [
        ", ".join(f"{stage.name} {stage.last_step}" for stage in run.stages if stage.metrics) or "none"
        for run in (a.run, b.run)
    ]
    trained = f"steps: {steps[0]} in both" if steps[0] == steps[1] else f"steps: A {steps[0]}; B {steps[1]}"
    return [*(keys or ["The recipes are the same."]), trained]


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Return settings other than the model that differ and can cause a difference in scores."""
    keys = ("template", *SamplingOptions.model_fields, "dtype", "engine", "rewards")
    return [f"{key}: A {a.get(key)!r}, B {b.get(key)!r}" for key in keys if a.get(key) != b.get(key)]


def conclusion(numbers: Mapping[str, Any]) -> str:
    """Return a sentence about the difference. Interval and test must agree: with few problems the interval is too
    narrow, and the sign test ignores by how much a problem differs."""
    low, high = numbers["difference_interval"]
    if (low > 0 or high < 0) and numbers["p_value"] < 0.05:
        return f"{'B' if low > 0 else 'A'} is better: the interval of the difference excludes 0, and p < 0.05."
    return "No difference shown: that needs an interval of the difference that excludes 0, and p < 0.05."


def compare_runs(runs: Sequence[Path]) -> list[dict[str, Any]]:
    """Return each run but the first compared with the first, as `compare_sides` does, and its `conclusion`. One that
    cannot be compared has only `missing`, which says why."""
    out = list[dict[str, Any]]()
    for other in runs[1:]:
        try:
            (numbers,) = compare_sides([runs[0], other], mode="", num_changed=NUM_CHANGED)
        except (ConfigError, DataError) as error:
            numbers = {"missing": [f"{other} is not compared with {runs[0]}: {error}"]}
        out.append(numbers if "missing" in numbers else {**numbers, "conclusion": conclusion(numbers)})
    return out
