"""Compares all curricula on the default task: steps and rollouts to a held-out pass@1, one SFT checkpoint per seed.

    python benchmarks/curriculum.py run runs/curriculum
    python benchmarks/curriculum.py plot runs/curriculum docs/figures/curriculum.svg --page PAGE.md

`run` makes the SFT checkpoint of each seed, then runs the RL of each arm from it, two runs in parallel with one thread
each, and appends a line to OUT/results.jsonl for each arm and seed. Finished runs are skipped; interrupted runs resume
from their last checkpoint. All settings are the recipe's, except data.curriculum and the evaluation. A run ends at the
cap of steps, with the learning rate still on the recipe's schedule. The rollouts include those that dynamic sampling
discards.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

RECIPE = Path(__file__).parent.parent / "recipes" / "tiny_arithmetic_grpo_cpu.yaml"
ARMS = {
    "none": "null",
    "uniform": "{sampler: uniform}",
    "easy_to_hard": "{sampler: easy_to_hard}",
    "one_minus_success": "{sampler: one_minus_success}",
    "variance": "{sampler: variance}",
    "thompson": "{sampler: thompson}",
    "variance_pause_dynamic": "{sampler: variance, drop_after_solved: 3, pause_after_failed: 2, dynamic_sampling: 3}",
}
COMMON = {
    "evaluate.problems": "200",
    "evaluate.samples_per_prompt": "2",
    "evaluate.k": "2",
    "save.samples": "false",
    "save.tensorboard": "false",
    "threads": "1",
}
START, END = "<!-- written by benchmarks/curriculum.py plot -->", "<!-- end -->"


class CapReached(Exception):
    """The run has its last evaluation."""


class UntilStep:
    """A silent console that ends the RL stage with CapReached at the evaluation of step `cap`."""

    def __init__(self, cap: int) -> None:
        self._cap = cap

    def note(self, text: str) -> None: ...

    def begin(self, stage: str, *, total_steps: int) -> None: ...

    def step(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def event(self, step: int, text: str) -> None: ...

    def end(self) -> None: ...

    def evaluation(self, row: Mapping[str, Any]) -> None:
        if row["stage"] == "rl" and row["step"] >= self._cap:
            raise CapReached


def one_sft(recipe: str, out: str, seed: int, settings: Mapping[str, str]) -> str:
    """The SFT checkpoint of a seed; made if it is missing."""
    from ansatz.config import load_recipe
    from ansatz.loop.pipeline import run_pipeline

    overrides = {"train.steps": "0", "seed": str(seed), "name": f"sft-{seed}", "out": out}
    config = load_recipe(recipe, overrides=COMMON | settings | overrides)
    run_dir = run_pipeline(config, resume=config.run_dir.exists())
    return str(json.loads((run_dir / "summary.json").read_text())["model"])


def one_run(
    recipe: str, model: str, out: str, arm: str, seed: int, cap: int, every: int, settings: Mapping[str, str]
) -> dict[str, Any]:
    """A line of results.jsonl: the evaluations by step, and the rollouts sampled up to each."""
    from ansatz.config import load_recipe
    from ansatz.loop.pipeline import run_pipeline

    arm_settings = {"data.sft": "null", "model.path": model, "data.curriculum": ARMS[arm], "evaluate.every": str(every)}
    overrides = {**arm_settings, "seed": str(seed), "name": f"{arm}-{seed}", "out": out}
    config = load_recipe(recipe, overrides=COMMON | settings | overrides)
    if last_evaluation(config.run_dir) < cap:
        with suppress(CapReached):
            run_pipeline(config, resume=config.run_dir.exists(), console=UntilStep(cap))
    before, *later = rows(config.run_dir / "model" / "evaluations.jsonl") + evaluations(config.run_dir)
    steps = rows(config.run_dir / "rl" / "metrics.jsonl")
    shutil.rmtree(config.run_dir / "rl" / "checkpoints", ignore_errors=True)
    return {
        "arm": arm,
        "seed": seed,
        "steps": [0, *(row["step"] for row in later)],
        "pass@1": [before["pass@1"], *(row["pass@1"] for row in later)],
        "drawn": [0, *(drawn(steps, row["step"], config.rollout) for row in later)],
        "signal": fmean(row["rollout/groups_with_signal_frac"] for row in steps),
        "seconds": steps[-1]["seconds"],
    }


def drawn(steps: Sequence[Mapping[str, Any]], until: int, rollout: Any) -> int:
    """Rollouts sampled in the steps up to `until`, including those of discarded groups."""
    return sum(
        (rollout.prompts_per_step + round(row.get("data/groups_discarded", 0))) * rollout.samples_per_prompt
        for row in steps
        if row["step"] <= until
    )


def reached(row: Mapping[str, Any], target: float) -> int | None:
    """Index of the first evaluation that reaches the target and is followed by another that does, or None."""
    high = [value >= target for value in row["pass@1"]]
    return next((index for index in range(len(high) - 1) if high[index] and high[index + 1]), None)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def evaluations(run_dir: Path) -> list[dict[str, Any]]:
    return sorted(rows(run_dir / "rl" / "evaluations.jsonl"), key=lambda row: row["step"])


def last_evaluation(run_dir: Path) -> int:
    return max((row["step"] for row in evaluations(run_dir)), default=-1)


def run(arguments: argparse.Namespace) -> None:
    out, settings = Path(arguments.out), dict(setting.split("=", 1) for setting in arguments.set)
    out.mkdir(parents=True, exist_ok=True)
    done = {(row["arm"], row["seed"]) for row in rows(out / "results.jsonl")}
    jobs = [(arm, seed) for seed in arguments.seeds for arm in arguments.arms if (arm, seed) not in done]
    with ProcessPoolExecutor(arguments.parallel_runs, mp_context=get_context("spawn")) as pool:
        started = time.perf_counter()
        seeds = list(dict.fromkeys(seed for _, seed in jobs))
        checkpoints = [pool.submit(one_sft, arguments.recipe, str(out), seed, settings) for seed in seeds]
        models = {seed: checkpoint.result() for seed, checkpoint in zip(seeds, checkpoints, strict=True)}
        print(f"SFT of {len(models)} seeds: {time.perf_counter() - started:.0f} s", flush=True)
        futures = [
            pool.submit(
                one_run, arguments.recipe, models[seed], str(out), arm, seed, arguments.cap, arguments.every, settings
            )
            for arm, seed in jobs
        ]
        for future in as_completed(futures):
            row = future.result()
            with (out / "results.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{row['arm']:22} seed {row['seed']}  {row['seconds']:.0f} s  {_curve(row)}", flush=True)


def _curve(row: Mapping[str, Any]) -> str:
    return " ".join(f"{step}:{100 * value:.1f}" for step, value in zip(row["steps"], row["pass@1"], strict=True))


def summary(results: Sequence[Mapping[str, Any]], target: float) -> list[dict[str, Any]]:
    """One row per arm, in the order of the results.

    steps, drawn: medians over the seeds. A seed that does not reach the target counts as later than all that do; None
    if that holds for half of the seeds or more.
    """
    table = []
    for arm in dict.fromkeys(row["arm"] for row in results):
        of_arm = sorted((row for row in results if row["arm"] == arm), key=lambda row: row["seed"])
        targets = [reached(row, target) for row in of_arm]
        ends = [row["pass@1"][-1] for row in of_arm]
        table.append(
            {
                "arm": arm,
                "seeds": len(of_arm),
                "reached": sum(index is not None for index in targets),
                "steps": _median([_at(row["steps"], index) for row, index in zip(of_arm, targets, strict=True)]),
                "drawn": _median([_at(row["drawn"], index) for row, index in zip(of_arm, targets, strict=True)]),
                "steps_by_seed": [_at(row["steps"], index) for row, index in zip(of_arm, targets, strict=True)],
                "drawn_by_seed": [_at(row["drawn"], index) for row, index in zip(of_arm, targets, strict=True)],
                "cap": of_arm[0]["steps"][-1],
                "end": fmean(ends),
                "end_range": [min(ends), max(ends)],
                "signal": fmean(row["signal"] for row in of_arm),
                "seconds": fmean(row["seconds"] for row in of_arm),
            }
        )
    return table


def _at(values: Sequence[int], index: int | None) -> int | None:
    return None if index is None else values[index]


def _median(values: Sequence[int | None]) -> float | None:
    middle = median(float("inf") if value is None else value for value in values)
    return None if middle == float("inf") else middle


def markdown(table: Sequence[Mapping[str, Any]], target: float) -> str:
    goal = f"{100 * target:g} %"
    lines = [
        f"| curriculum | steps to {goal} (seeds) | rollouts to it | groups with signal | pass@1 at the cap |",
        "|---|---|---|---|---|",
    ]
    for row in table:
        seeds = ", ".join(f">{row['cap']}" if step is None else str(step) for step in row["steps_by_seed"])
        steps = f">{row['cap']}" if row["steps"] is None else f"{row['steps']:g}"
        samples = "" if row["drawn"] is None else f"{row['drawn']:,.0f}"
        low, high = (f"{100 * end:.1f}" for end in row["end_range"])
        lines.append(
            f"| `{row['arm']}` | {steps} ({seeds}) | {samples} | {100 * row['signal']:.0f} % | "
            f"{100 * row['end']:.1f} ({low} to {high}) |"
        )
    return "\n".join(lines)


def written_into(page: str, text: str) -> str:
    """The page with the text between its two markers. ValueError for a page without them."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"the page lacks the lines {START} and {END}; add them where the table goes")
    return f"{before}{START}\n{text}\n{END}{after}"


def plot(arguments: argparse.Namespace) -> None:
    from ansatz.track.svg import Chart, Series, figure

    results = rows(Path(arguments.out) / "results.jsonl")
    if not results:
        sys.exit(f"{arguments.out}/results.jsonl has no rows yet. Use `run` first.")
    series = []
    for arm in dict.fromkeys(row["arm"] for row in results):
        of_arm = [row for row in results if row["arm"] == arm]
        shortest = min(len(row["steps"]) for row in of_arm)
        points = [
            (fmean(row["drawn"][i] for row in of_arm) / 1000, 100 * fmean(row["pass@1"][i] for row in of_arm))
            for i in range(shortest)
        ]
        series.append(Series(name=arm, points=points, dots=True, dashed=arm == "none"))
    seeds = len({row["seed"] for row in results})
    everywhere = [x for each in series for x, _ in each.points]
    target = 100 * arguments.target
    ends = [(min(everywhere), target), (max(everywhere), target)]
    chart = Chart(
        title=f"Held-out pass@1 (%) by curriculum, mean of {seeds} seeds",
        series=[*series, Series(name=f"target {target:.0f} %", points=ends, dashed=True)],
        x_label="sampled rollouts (thousands)",
        y_range=(50, 90),
    )
    svg = Path(arguments.svg)
    svg.parent.mkdir(parents=True, exist_ok=True)
    svg.write_text(figure(chart))
    table = summary(results, arguments.target)
    (Path(arguments.out) / "summary.json").write_text(json.dumps(table, indent=2) + "\n")
    text = markdown(table, arguments.target)
    print(text)
    if arguments.page:
        page = Path(arguments.page)
        page.write_text(written_into(page.read_text(encoding="utf-8"), text), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runs = verbs.add_parser("run")
    runs.add_argument("out")
    runs.add_argument("--arms", nargs="*", choices=list(ARMS), default=list(ARMS))
    runs.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    runs.add_argument("--cap", type=int, default=40, help="RL steps; a multiple of --every")
    runs.add_argument("--every", type=int, default=5, help="steps between evaluations")
    runs.add_argument("--parallel-runs", type=int, default=2)
    runs.add_argument("--recipe", default=str(RECIPE))
    runs.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further settings of the recipe")
    runs.set_defaults(work=run)
    plotting = verbs.add_parser("plot")
    plotting.add_argument("out")
    plotting.add_argument("svg")
    plotting.add_argument("--page", help="page with the two markers between which the table goes")
    plotting.add_argument("--target", type=float, default=0.85)
    plotting.set_defaults(work=plot)
    arguments = parser.parse_args()
    arguments.work(arguments)


if __name__ == "__main__":
    main()
