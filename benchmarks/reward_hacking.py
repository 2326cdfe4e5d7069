"""Draws docs/figures/reward_hacking.svg from RL whose only reward is a reward model after 60 steps of training.

    ansatz train tiny_arithmetic_grpo_cpu --seed 0 --out runs/hacking --name hacked_0 \
      --data.sft null --model.path SFT --data.template tiny --stages '[reward_model, rl]' \
      --reward_model.kind correctness --reward_model.problems 1000 --reward_model.steps 60 --reward_model.lr 1e-3 \
      --rewards.learned.squash sigmoid --rewards.math_answer.weight 0 --train.steps 40 \
      --watchdog.rules.verifier '{metric: rollout/accuracy, falls_by: 0.5, action: warn}'
    python benchmarks/reward_hacking.py runs/hacking docs/figures/reward_hacking.svg

SFT is the last SFT checkpoint of `tiny_arithmetic_grpo_cpu` with the same seed. The runs are called hacked_SEED. The
figure marks the step at which the rule of the watchdog raises its alarm.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean

from ansatz.track.jsonl import read_jsonl
from ansatz.track.svg import Chart, Point, Series, figure


def curve(runs: list[Path], metric: str) -> list[Point]:
    """The mean of a metric over runs, for the steps that all of them have."""
    rows = [read_jsonl(run / "rl" / "metrics.jsonl") for run in runs]
    return [(float(same[0]["step"]), fmean(row[metric] for row in same)) for same in zip(*rows, strict=False)]


def scaled(points: list[Point]) -> list[Point]:
    """The points with their values mapped to 0..1."""
    low, high = min(y for _, y in points), max(y for _, y in points)
    return [(x, (y - low) / (high - low)) for x, y in points]


def main() -> None:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    hacked = sorted(folder.glob("hacked_*"))
    alarms = [
        float(row["step"])
        for run in hacked
        for row in read_jsonl(run / "rl" / "events.jsonl")
        if row.get("rule") == "verifier"
    ]
    chart = Chart(
        title="A learned reward rises while fewer answers are correct",
        series=[
            Series(
                name="learned reward, from its lowest to its highest", points=scaled(curve(hacked, "reward/learned"))
            ),
            Series(name="correct answers", points=curve(hacked, "rollout/accuracy")),
        ],
        is_fraction=True,
        dividers=[(step, "alarm of the watchdog") for step in alarms[:1]],
    )
    out.write_text(figure(chart), encoding="utf-8")


if __name__ == "__main__":
    main()
