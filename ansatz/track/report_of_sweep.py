"""The page of a sweep: the outcome of each arm on each block. Everything on it comes from the file of its rows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import Any

from ansatz.track.jsonl import Row
from ansatz.track.svg import Chart, Series
from ansatz.track.sweep_rows import at_shared_steps, is_rounding, mean_and_margin, read_rows

SHADES = 9
"""Of the heat map, as page.css has them."""
Cells = Mapping[int, Row]
"""The rows of an arm by block."""


def describe_sweep(path: Path, outcome: str | None = None) -> dict[str, Any]:
    """Return the values for the template `sweep.html`. outcome: the only one to show, or else the first; None: all.

    Raise DataError if the file was changed.
    """
    header, rows = read_rows(path)
    labels = list(dict.fromkeys(label for row in rows for label in row["outcomes"]))
    chosen = labels if outcome is None else [outcome] if outcome in labels else labels[:1]
    arms: dict[str, dict[int, Row]] = {}
    for row in rows:
        if row["block"] not in header.get("tuning", []):
            times = f" with {row['times']:g} times the tuned key" if row["times"] != 1 else ""
            arms.setdefault(row["arm"] + times, {})[row["block"]] = row
    control = header["control"] if header.get("control") in arms else next(iter(arms), "")
    guards = list(dict.fromkeys(guard for row in rows for guard in row["guards"]))
    return {
        "name": path.stem,
        "file": header.get("file", ""),
        "labels": labels,
        "verdicts": header.get("verdicts", []),
        "outcomes": [_describe_outcome(arms, control, label) for label in chosen or [""]],
        "blocks": sorted({block for cells in arms.values() for block in cells}),
        "arms": arms,
        "control": control,
        "guards": guards,
        "guard_means": {
            arm: {name: fmean(found.values()) for name in guards if (found := _numbers(cells, "guards", name))}
            for arm, cells in arms.items()
        },
        "charts": _charts(arms),
    }


def _describe_outcome(arms: Mapping[str, Cells], control: str, label: str) -> dict[str, Any]:
    """Return an outcome by arm and block, its means, and the differences to the control block by block."""
    values = {arm: _numbers(cells, "outcomes", label) for arm, cells in arms.items()}
    differences = {
        arm: [value - values[control][block] for block, value in column.items() if block in values[control]]
        for arm, column in values.items()
        if arm != control
    }
    return {
        "label": label,
        "values": values,
        "means": {arm: mean_and_margin([*column.values()]) for arm, column in values.items() if column},
        "differences": {
            arm: None if is_rounding(each, values[control].values()) else mean_and_margin(each)
            for arm, each in differences.items()
            if each
        },
        "luck": _luck_of_the_best(differences.values()),
        "heat": _heat(values),
    }


def _numbers(cells: Cells, part: str, name: str) -> dict[int, float]:
    """Return an outcome or a guard by block, where it was measured."""
    found = {block: row[part].get(name) for block, row in cells.items()}
    return {block: value for block, value in found.items() if value is not None}


def _luck_of_the_best(differences: Iterable[Sequence[float]]) -> float | None:
    """Return how far the best of these arms would seem to be above the others if all were equal: Blom's approximation
    of the expected maximum, times the mean standard error of a difference. None for fewer than two arms or blocks."""
    errors = [stdev(each) / len(each) ** 0.5 for each in differences if len(each) > 1]
    if len(errors) < 2:
        return None
    return NormalDist().inv_cdf((len(errors) - 0.375) / (len(errors) + 0.25)) * fmean(errors)


def _grid(arms: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the two keys and values of each arm of a grid, which are called "key value, key value"; nothing for other
    arms."""
    found = {arm: re.fullmatch(r"(\S+) (\S+), (\S+) (\S+)", arm) for arm in arms}
    places = {arm: match.groups() for arm, match in found.items() if match}
    return places if len(places) == len(found) and len({place[::2] for place in places.values()}) == 1 else {}


def _heat(values: Mapping[str, Mapping[int, float]]) -> dict[str, Any] | None:
    """Return the means over the two keys of a grid; None without one."""
    places = _grid(arm for arm, column in values.items() if column)
    means = {place[1::2]: fmean(values[arm].values()) for arm, place in places.items()}
    if not means:
        return None
    low, span = min(means.values()), max(means.values()) - min(means.values())
    shades = {place: round((SHADES - 1) * (mean - low) / (span or 1)) for place, mean in means.items()}
    axes = [list(dict.fromkeys(place[axis] for place in means)) for axis in (0, 1)]
    return {"keys": next(iter(places.values()))[::2], "axes": axes, "means": means, "shades": shades}


def _charts(arms: Mapping[str, Cells]) -> list[tuple[str, Chart]]:
    """Draw each curve of the rows: the mean of an arm over its blocks, and the range as a band; a chart for each value
    of the first key of a grid."""
    places, drawn = _grid(arms), list[tuple[str, Chart]]()
    names = dict.fromkeys(name for cells in arms.values() for row in cells.values() for name in row["curves"])
    for name, group in itertools.product(names, dict.fromkeys(place[:2] for place in places.values()) or [()]):
        series: list[Series] = []
        for arm, cells in arms.items():
            at = at_shared_steps([row["curves"][name] for row in cells.values() if row["curves"].get(name)])
            if at and (not group or places[arm][:2] == group):
                points = [(x, fmean(values)) for x, values in at.items()]
                band = [(x, min(values), max(values)) for x, values in at.items()]
                series.append(Series(name=" ".join(places[arm][2:]) if group else arm, points=points, band=band))
        if series:
            chart = Chart(title=name, series=series, is_fraction="pass@" in name)
            drawn.append((f"{name} by step{': ' * bool(group)}{' '.join(group)}", chart))
    return drawn
