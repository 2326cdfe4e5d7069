"""Draws docs/figures/reward_models.svg, process_reward.svg and iterative.svg from runs of the recipes of these names.

    for seed in 0 1 2; do
      ansatz train tiny_arithmetic_reward_model_cpu --seed $seed --out runs/reward_models --name outcome_$seed
      ansatz train tiny_arithmetic_process_reward_cpu --seed $seed --out runs/reward_models --name process_$seed
      ansatz train tiny_arithmetic_grpo_cpu --seed $seed --out runs/reward_models --name grpo_$seed
    done
    ansatz train tiny_arithmetic_iterative_grpo_cpu --out runs/reward_models --name iterative_0
    python benchmarks/reward_models.py runs/reward_models docs/figures

It also prints after how many rollouts each run of RL has reached 85 % of correct rollouts, as a mean of WINDOW steps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from ansatz.config.load import load_run
from ansatz.track.jsonl import Row, read_jsonl
from ansatz.track.svg import Chart, Point, Series, figure

GOAL = 0.85
WINDOW = 5
"""Steps. Accuracy on 64 problems varies by 2 or 3 points from step to step."""


def metrics(run: Path, stage: str) -> list[Row]:
    return read_jsonl(run / stage / "metrics.jsonl")


def mean_of(curves: Sequence[Sequence[Point]]) -> list[Point]:
    """The mean of several curves, as far as all of them go."""
    return [(same[0][0], fmean(y for _, y in same)) for same in zip(*curves, strict=False)]


def selection_curve(runs: Sequence[Path], metric: str) -> list[Point]:
    """(n, fraction of problems): a measure of the last reward model for n = 1, 2, 4, ... responses."""
    stages = [sorted(path.name for path in run.glob("reward_model*"))[-1] for run in runs]
    last = [metrics(run, stage)[-1] for run, stage in zip(runs, stages, strict=True)]
    numbers = sorted(int(name.rpartition("_")[2]) for name in last[0] if name.startswith(f"reward_model/{metric}_"))
    return [(float(place), fmean(row[f"reward_model/{metric}_{n}"] for row in last)) for place, n in enumerate(numbers)]


def selection_chart(runs: Sequence[Path]) -> Chart:
    names = {"best_of": "best by the outcome model", "weighted_vote": "vote weighted by it", "maj": "majority"}
    series = [Series(name=name, points=selection_curve(runs, metric), dots=True) for metric, name in names.items()]
    ticks = [(place, str(2 ** int(place))) for place, _ in series[0].points]
    return Chart(
        title="Correct answers to held-out problems",
        series=series,
        x_label="responses n",
        x_ticks=ticks,
        is_fraction=True,
    )


def rollouts_per_step(run: Path) -> int:
    section = load_run(run).rollout
    return section.prompts_per_step * section.samples_per_prompt


def accuracy(run: Path, stage: str = "rl") -> list[Point]:
    """(rollouts in thousands, fraction correct): the mean of the last WINDOW steps."""
    rows, number = metrics(run, stage), rollouts_per_step(run)
    values = [row["rollout/accuracy"] for row in rows]
    return [
        (row["step"] * number / 1000, fmean(values[end - WINDOW : end]))
        for end, row in enumerate(rows, start=1)
        if end >= WINDOW
    ]


def thousands_until_goal(run: Path) -> float | None:
    return next((x for x, y in accuracy(run) if y >= GOAL), None)


def process_chart(process: Sequence[Path], outcome: Sequence[Path]) -> Chart:
    return Chart(
        title="GRPO with rewards of steps and of answers",
        series=[
            Series(name="steps and answers", points=mean_of([accuracy(run) for run in process])),
            Series(name="answers only", points=mean_of([accuracy(run) for run in outcome])),
        ],
        x_label="thousand rollouts",
        is_fraction=True,
        marks=(GOAL,),
    )


def rounds(run: Path, points: Callable[[str, int], list[Point]]) -> list[Point]:
    """The curve of both rounds one after the other. points: of a stage, from a step on."""
    steps = len(metrics(run, "rl"))
    return [*points("rl", 0), *points("rl_2", steps)]


def iterative_chart(run: Path) -> Chart:
    def of_metric(metric: str) -> list[Point]:
        return rounds(run, lambda stage, first: [(first + row["step"], row[metric]) for row in metrics(run, stage)])

    def evaluated(stage: str, first: int) -> list[Point]:
        return [(first + row["step"], row["pass@1"]) for row in read_jsonl(run / stage / "evaluations.jsonl")]

    steps = len(metrics(run, "rl"))
    return Chart(
        title="Iterative GRPO",
        series=[
            Series(name="rollouts that are correct", points=of_metric("rollout/accuracy")),
            Series(name="reward of the process model", points=of_metric("reward/process"), dashed=True),
            Series(name="held-out pass@1", points=rounds(run, evaluated), dots=True),
        ],
        is_fraction=True,
        dividers=[(0.0, "round 1"), (float(steps), "round 2")],
    )


def main() -> None:
    folder, figures = Path(sys.argv[1]), Path(sys.argv[2])
    named = {name: sorted(folder.glob(f"{name}_*")) for name in ("outcome", "process", "grpo", "iterative")}
    for name in ("process", "grpo"):
        for run in named[name]:
            print(f"{run.name}: {GOAL:.0%} after {thousands_until_goal(run)} thousand rollouts")
    charts = {
        "reward_models": selection_chart(named["outcome"]),
        "process_reward": process_chart(named["process"], named["grpo"]),
        "iterative": iterative_chart(named["iterative"][0]),
    }
    for name, chart in charts.items():
        (figures / f"{name}.svg").write_text(figure(chart), encoding="utf-8")


if __name__ == "__main__":
    main()
