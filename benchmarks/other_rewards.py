"""Draws docs/figures/judge.svg, code.svg and reasoning_gym.svg from those runs of their recipes that there are.

python examples/judge_server.py --port 8199 &
ansatz train tiny_arithmetic_judge_cpu
ansatz train tiny_code_grpo_cpu
ansatz train tiny_reasoning_gym_cpu
python benchmarks/other_rewards.py runs docs/figures
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from ansatz.track.jsonl import read_jsonl
from ansatz.track.svg import Chart, Point, Series, figure


def by_step(run: Path, metric: str) -> list[Point]:
    """A metric of the RL stage."""
    return [(float(row["step"]), row[metric]) for row in read_jsonl(run / "rl" / "metrics.jsonl")]


def pass_at_1(run: Path) -> Series:
    """On held-out problems, at the start of RL (step 0) and at each evaluation."""
    stages = [stage for stage in ("model", "sft") if (run / stage / "evaluations.jsonl").exists()]
    start = read_jsonl(run / stages[-1] / "evaluations.jsonl")[-1]
    rows = [{**start, "step": 0}, *read_jsonl(run / "rl" / "evaluations.jsonl")]
    points = [(float(row["step"]), row["pass@1"]) for row in rows]
    return Series(name="held-out pass@1", points=points, dots=True)


def judge_chart(run: Path) -> Chart:
    return Chart(
        title="GRPO with a judge",
        series=[
            Series(name="accepted by the judge", points=by_step(run, "reward/judge")),
            Series(name="by the verifier", points=by_step(run, "reward/math_answer")),
            Series(name="they agree", points=by_step(run, "reward/agreement"), dashed=True),
            pass_at_1(run),
        ],
        is_fraction=True,
    )


def code_chart(run: Path) -> Chart:
    return Chart(
        title="GRPO with tests of code",
        series=[Series(name="rollouts that pass", points=by_step(run, "reward/code_tests")), pass_at_1(run)],
        is_fraction=True,
    )


def reasoning_gym_chart(run: Path) -> Chart:
    return Chart(
        title="GRPO with the scorer of a task of reasoning-gym",
        series=[Series(name="score of the rollouts", points=by_step(run, "reward/reasoning_gym")), pass_at_1(run)],
        is_fraction=True,
    )


CHARTS: dict[str, tuple[str, Callable[[Path], Chart]]] = {
    "judge": ("tiny_arithmetic_judge_cpu", judge_chart),
    "code": ("tiny_code_grpo_cpu", code_chart),
    "reasoning_gym": ("tiny_reasoning_gym_cpu", reasoning_gym_chart),
}
"""The recipe and the drawing of each figure."""


def main() -> None:
    runs, figures = Path(sys.argv[1]), Path(sys.argv[2])
    for name, (recipe, chart) in CHARTS.items():
        if (runs / recipe).exists():
            (figures / f"{name}.svg").write_text(figure(chart(runs / recipe)), encoding="utf-8")


if __name__ == "__main__":
    main()
