"""Collapse by a learning rate that is too high, and its rescue by the watchdog, on the whole default recipe.

    python benchmarks/watchdog.py sft runs/watchdog --seeds 0 1 2
    python benchmarks/watchdog.py find runs/watchdog --seeds 10 --rates 4e-4 1e-3 2e-3
    python benchmarks/watchdog.py run runs/watchdog --seeds 0 1 2
    python benchmarks/watchdog.py plot runs/watchdog docs/figures/watchdog.svg

Each seed has its own SFT checkpoint, from which all of its runs start. `find` runs other rates without a watchdog that
acts. `run` runs three arms of each seed: the recipe's rate, the high rate, and the high rate with watchdog.action =
rollback. `plot` prints the table and writes the figure. Finished runs are skipped; interrupted ones resume. Everything
is the recipe's but the keys in ARMS; --set KEY=VALUE changes more.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

RECIPE = Path(__file__).parent.parent / "recipes" / "tiny_arithmetic_grpo_cpu.yaml"
HIGH_RATE = "2e-3"
ARMS: dict[str, dict[str, str]] = {
    "healthy": {},
    "collapse": {"train.lr": HIGH_RATE},
    "watchdog": {"train.lr": HIGH_RATE, "watchdog.action": "rollback"},
}
NAMES = {
    "healthy": "rate of the recipe",
    "collapse": "rate x 5",
    "watchdog": "rate x 5, and the watchdog goes back",
}
"""What the legend of the figure says. Each arm has a line for each seed."""
Curve = list[tuple[float, float]]
"""(updates made so far, reward) of a stretch of a run."""


def sft_checkpoint(out: Path, seed: int, threads: str) -> str:
    """The SFT checkpoint that all runs of a seed start from; made if it is missing."""
    from ansatz.config import load_recipe
    from ansatz.loop.pipeline import run_pipeline

    names = {"name": f"sft-{seed}", "out": str(out)}
    config = load_recipe(RECIPE, overrides={"train.steps": "0", "seed": str(seed), "threads": threads, **names})
    if not (config.run_dir / "summary.json").exists():
        run_pipeline(config, resume=config.run_dir.exists())
    return str(json.loads((config.run_dir / "summary.json").read_text(encoding="utf-8"))["model"])


def rl_run(out: Path, name: str, seed: int, settings: Mapping[str, str]) -> None:
    """One RL run from the seed's SFT checkpoint, unless it is finished. One that the watchdog stops is finished."""
    from ansatz.config import load_recipe
    from ansatz.errors import RunStopped
    from ansatz.loop.pipeline import run_pipeline
    from ansatz.track.console import open_console

    model = sft_checkpoint(out, seed, settings.get("threads", "0"))
    start = {"data.sft": "null", "model.path": model, "seed": str(seed)}
    names = {"name": f"{name}-{seed}", "out": str(out)}
    config = load_recipe(RECIPE, overrides={**start, **settings, **names})
    if (config.run_dir / "summary.json").exists() or stopped(config.run_dir):
        return
    try:
        run_pipeline(config, resume=config.run_dir.exists(), console=open_console())
    except RunStopped as error:
        print(error, flush=True)


def stopped(run_dir: Path) -> bool:
    return any(row["kind"] == "stop" for row in rows(run_dir / "rl" / "events.jsonl"))


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def result(out: Path, arm: str, seed: int) -> dict[str, Any]:
    """What one run ended with. pass@1 is that of the last step; `best` that of the checkpoint that save.best kept."""
    from ansatz.track.rollbacks import read_rollbacks

    folder = out / f"{arm}-{seed}"
    before = rows(folder / "model" / "evaluations.jsonl")[-1]
    evaluations = sorted(rows(folder / "rl" / "evaluations.jsonl"), key=lambda row: row["step"])
    rollbacks = read_rollbacks(folder / "rl")
    dropped = sum(len(rows(path)) for path in (folder / "rl" / "rolled_back").glob("*/metrics.jsonl"))
    return {
        "arm": arm,
        "seed": seed,
        "before": before["pass@1"],
        "pass@1": evaluations[-1]["pass@1"],
        "greedy": evaluations[-1]["greedy"],
        "best": max(row["pass@1"] for row in evaluations),
        "step": evaluations[-1]["step"],
        "rollbacks": [f"{each.from_step} -> {each.to_step} ({each.rule})" for each in rollbacks],
        "dropped": dropped,
        "lr_scale": rollbacks[-1].lr_scale if rollbacks else 1.0,
    }


def reward_curves(folder: Path) -> list[Curve]:
    """(updates made so far, reward) of every stretch between two rollbacks, those that were dropped included.

    A stretch that follows a rollback begins where the one before it ended, so that the x axis is the work done.
    """
    from ansatz.track.rollbacks import read_rollbacks

    rollbacks = read_rollbacks(folder)
    stretches = [rows(folder / "rolled_back" / str(number + 1) / "metrics.jsonl") for number in range(len(rollbacks))]
    kept = rows(folder / "metrics.jsonl")
    if rollbacks:  # what the first rollback left, then what each later one dropped, then the end
        stretches[0] = [row for row in kept if row["step"] <= rollbacks[0].to_step] + stretches[0]
        stretches.append([row for row in kept if row["step"] > rollbacks[-1].to_step])
    else:
        stretches = [kept]
    curves, offset = list[Curve](), 0
    for stretch in stretches:
        curves.append([(offset + index + 1, row["rollout/rewards"]) for index, row in enumerate(stretch)])
        offset += len(stretch)
    return curves


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """The results in Markdown, in per cent."""
    lines = ["| arm | seed | before | end: pass@1 | greedy | best | rollbacks | dropped steps | rate at the end |"]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for row in results:
        numbers = " | ".join(f"{100 * row[name]:.1f}" for name in ("before", "pass@1", "greedy", "best"))
        rollbacks = ", ".join(row["rollbacks"]) or "-"
        lines.append(
            f"| {row['arm']} | {row['seed']} | {numbers} | {rollbacks} | {row['dropped']} | x {row['lr_scale']:g} |"
        )
    for arm in dict.fromkeys(row["arm"] for row in results):
        ends = [row["pass@1"] for row in results if row["arm"] == arm]
        lines.append(f"| {arm} | mean | | {100 * fmean(ends):.1f} | | | | | |")
    return "\n".join(lines)


def figure(out: Path, seeds: Sequence[int]) -> str:
    """Training reward against the updates made, one line for each run."""
    from ansatz.track.svg import Chart
    from ansatz.track.svg import figure as drawing

    series = list[Any]()
    for colour, arm in enumerate(ARMS):
        runs = [reward_curves(out / f"{arm}-{seed}" / "rl") for seed in seeds]
        series += named(NAMES[arm], [run[-1] for run in runs], colour=colour, dashed=False)
        series += named(
            "before it went back", [curve for run in runs for curve in run[:-1]], colour=colour, dashed=True
        )
    title = f"Training reward with a learning rate that is too high, {len(seeds)} seeds"
    return drawing(Chart(title=title, series=series, x_label="updates", is_fraction=True))


def named(name: str, curves: Sequence[Curve], *, colour: int, dashed: bool) -> list[Any]:
    """Lines of one kind, the first of which has an entry in the legend."""
    from ansatz.track.svg import Series

    return [
        Series(name=name if index == 0 else "", points=curve, colour=colour, dashed=dashed)
        for index, curve in enumerate(curves)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("sft", "find", "run", "plot"))
    parser.add_argument("out", type=Path)
    parser.add_argument("figure", type=Path, nargs="?")
    parser.add_argument("--rates", nargs="+", default=["4e-4", "1e-3", "2e-3"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=tuple(ARMS), default=list(ARMS))
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in arguments.set)
    if arguments.verb == "sft":
        for seed in arguments.seeds:
            sft_checkpoint(arguments.out, seed, settings.get("threads", "0"))
    elif arguments.verb == "find":
        for rate in arguments.rates:
            rl_run(arguments.out, f"rate_{rate}", arguments.seeds[0], settings | {"train.lr": rate})
        for rate in arguments.rates:
            row = result(arguments.out, f"rate_{rate}", arguments.seeds[0])
            print(f"train.lr {rate}: pass@1 {100 * row['before']:.1f} -> {100 * row['pass@1']:.1f} %", flush=True)
    elif arguments.verb == "run":
        for seed in arguments.seeds:
            for arm in arguments.arms:
                rl_run(arguments.out, arm, seed, settings | ARMS[arm])
    else:
        print(table([result(arguments.out, arm, seed) for arm in arguments.arms for seed in arguments.seeds]))
        if arguments.figure is not None:
            arguments.figure.write_text(figure(arguments.out, arguments.seeds), encoding="utf-8")


if __name__ == "__main__":
    main()
