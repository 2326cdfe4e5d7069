"""Draws docs/figures/preference.svg: what happens to the chosen responses in four passes of DPO over the same pairs.

    grep -v likelihood: ansatz/recipes/tiny_arithmetic_online_dpo_cpu.yaml > dpo_only.yaml
    OPTIONS="--preference.epochs 4 --preference.losses.dpo.beta 0.1 --out runs/preference"
    ansatz train tiny_arithmetic_online_dpo_cpu --stages '[sft, preference]' $OPTIONS --name with
    ansatz train dpo_only.yaml --stages '[sft, preference]' $OPTIONS --name without
    python benchmarks/preference.py runs/preference docs/figures/preference.svg

It also prints how both runs end.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from ansatz.track.jsonl import read_jsonl
from ansatz.track.svg import Chart, Point, Series, figure

STEPS_OF_A_POINT = 10


def chosen_logp(run: Path) -> list[Point]:
    """(step, nats): the log-prob of the chosen responses, the mean of `STEPS_OF_A_POINT` steps."""
    rows = [row for row in read_jsonl(run / "preference" / "metrics.jsonl") if row["step"] > 0]
    parts = [rows[start : start + STEPS_OF_A_POINT] for start in range(0, len(rows), STEPS_OF_A_POINT)]
    return [_mean(part) for part in parts]


def _mean(rows: list[dict[str, float]]) -> Point:
    return fmean(row["step"] for row in rows), fmean(row["preference/chosen_logp"] for row in rows)


def last(run: Path) -> dict[str, Any]:
    """The last evaluation of the run."""
    return read_jsonl(run / "preference" / "evaluations.jsonl")[-1]


def main() -> None:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    names = {"with": "DPO and the likelihood of chosen responses", "without": "DPO"}
    chart = Chart(
        title="Log-prob of the chosen response, nats",
        series=[Series(name=text, points=chosen_logp(folder / name)) for name, text in names.items()],
    )
    out.write_text(figure(chart), encoding="utf-8")
    for name in names:
        ended = last(folder / name)
        print(f"{name:8}  pass@1 {ended['pass@1']:.1%}  greedy {ended['greedy']:.1%}")


if __name__ == "__main__":
    main()
