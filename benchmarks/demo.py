"""Draws docs/figures/demo.svg from runs of the demo with several seeds: pass@1, greedy and pass@8 on held-out problems.

    ansatz train tiny_arithmetic_think_cpu --seed 0 --out runs/demo --name seed_0
    python benchmarks/demo.py runs/demo docs/figures/demo.svg

A line is the mean of the runs, and its band goes from the lowest to the highest.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from ansatz.track.jsonl import read_jsonl
from ansatz.track.svg import Chart, Series, figure


def line_of(runs: list[Path], name: str, label: str, *, colour: int, dashed: bool = False) -> Series:
    """Return the mean over runs of a score after SFT (step 0) and at each evaluation of RL, with a band that goes from
    the lowest to the highest."""
    steps = _by_step(runs, name)
    return Series(
        name=label,
        points=[(step, fmean(values)) for step, values in steps],
        band=[(step, min(values), max(values)) for step, values in steps],
        dots=True,
        dashed=dashed,
        colour=colour,
    )


def _by_step(runs: list[Path], name: str) -> list[tuple[float, list[float]]]:
    """Return the values of all runs after SFT, and at each evaluation of RL that all of them have."""
    curves = [
        {
            row["step"] if stage == "rl" else 0: _score(row, name)
            for stage in ("sft", "rl")
            for row in read_jsonl(run / stage / "evaluations.jsonl")
        }
        for run in runs
    ]
    steps = sorted(set.intersection(*(set(curve) for curve in curves)))
    return [(float(step), [curve[step] for curve in curves]) for step in steps]


def _score(row: dict[str, Any], name: str) -> float:
    score, _, level = name.partition(" of level ")
    return row["by_level"][level][score] if level else row[score]


def main() -> None:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    runs = sorted(folder.glob("seed_*"))
    names = {"pass@k": "pass@8", "greedy": "greedy", "greedy of level 6": "greedy, 6 steps", "pass@1": "pass@1"}
    chart = Chart(
        title="RL teaches a model to work problems out",
        series=[
            line_of(runs, name, label, colour=index, dashed="level" in name)
            for index, (name, label) in enumerate(names.items())
        ],
        x_label="step of RL",
        is_fraction=True,
    )
    out.write_text(figure(chart), encoding="utf-8")


if __name__ == "__main__":
    main()
