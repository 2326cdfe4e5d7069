"""Every RL preset on the default task, from the same SFT checkpoint and with the same budget, and their figure.

    python benchmarks/presets.py run runs/tiny_arithmetic_grpo_cpu/sft/checkpoints/step-000660 runs/presets
    python benchmarks/presets.py draw runs/presets docs/figures/presets.svg

`run` appends a line to OUT/results.jsonl for each preset and seed. Two runs work at a time, with one thread each, and
runs that are in the file already are skipped. All presets have the same learning rate; none of them is tuned.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

RECIPE = Path(__file__).parent.parent / "recipes" / "tiny_arithmetic_grpo_cpu.yaml"
BUDGET = {
    "rollout.prompts_per_step": "32",
    "rollout.engine.max_concurrent": "256",
    "train.steps": "12",
    "train.lr": "4e-4",
    "train.decay_steps": "0",
    "train.warmup_steps": "3",
    "evaluate.problems": "120",
    "evaluate.samples_per_prompt": "4",
    "evaluate.k": "4",
    "evaluate.every": "0",
    "save.samples": "false",
    "save.tensorboard": "false",
    "threads": "1",
    "data.sft": "null",
}
WIDTH, ROW = 560, 18  # px of the figure, and of a preset in it


def train_preset(model: str, out: str, preset: str, seed: int) -> dict[str, Any]:
    from ansatz.config import load_recipe
    from ansatz.loop.pipeline import run_pipeline

    name = f"{preset}-{seed}"
    settings = {"model.path": model, "algorithm.preset": preset, "seed": str(seed), "name": name, "out": out}
    run_dir = run_pipeline(load_recipe(RECIPE, overrides=BUDGET | settings), fresh=True)
    metrics = [json.loads(line) for line in (run_dir / "rl" / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((run_dir / "summary.json").read_text())
    before, after = summary["evaluations"][0], summary["evaluations"][-1]
    shutil.rmtree(run_dir / "rl" / "checkpoints")
    return {
        "preset": preset,
        "seed": seed,
        "entropy": [row["train/entropy"] for row in metrics],
        "before": {key: before[key] for key in ("pass@1", "greedy")},
        "after": {key: after[key] for key in ("pass@1", "greedy", "pass@k")},
        "seconds": summary["seconds"],
    }


def run(arguments: argparse.Namespace) -> None:
    from ansatz.objectives.presets import PRESETS

    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    done = {(row["preset"], row["seed"]) for row in results(out)}
    jobs = [
        (preset, seed)
        for seed in arguments.seeds
        for preset in arguments.presets or PRESETS
        if (preset, seed) not in done
    ]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(train_preset, arguments.model, str(out), *job): job for job in jobs}
        for future in as_completed(futures):
            row = future.result()
            with (out / "results.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{row['preset']:24} seed {row['seed']}  pass@1 {row['after']['pass@1']:.3f}", flush=True)


def results(out: Path) -> list[dict[str, Any]]:
    path = out / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def ends(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """By preset, the highest mean first: mean and range over seeds of held-out pass@1 at the end, and mean greedy."""
    by_preset: dict[str, dict[str, float]] = {}
    for preset in dict.fromkeys(row["preset"] for row in rows):
        after = [row["after"] for row in rows if row["preset"] == preset]
        pass_1 = [each["pass@1"] for each in after]
        greedy = fmean(each["greedy"] for each in after)
        by_preset[preset] = {"mean": fmean(pass_1), "low": min(pass_1), "high": max(pass_1), "greedy": greedy}
    return dict(sorted(by_preset.items(), key=lambda entry: -entry[1]["mean"]))


def figure(presets: Mapping[str, Mapping[str, float]]) -> str:
    """A dot for the mean of each preset on a line for its range."""
    from ansatz.track.svg import round_ticks
    from ansatz.track.theme import SVG_STYLE

    low = min(result["low"] for result in presets.values())
    ticks = round_ticks(100 * low, 100 * max(result["high"] for result in presets.values()), count=6)
    left, right, top = 170, WIDTH - 115, 66
    bottom = top + ROW * len(presets)

    def x(value: float) -> float:
        return left + (100 * value - ticks[0]) / (ticks[-1] - ticks[0]) * (right - left)

    parts = [f'<rect class="surface" width="{WIDTH}" height="{bottom + 46}" rx="8"/>']
    parts.append('<text class="heading" x="16" y="26">Held-out pass@1 after 12 steps, by preset</text>')
    parts.append(f'<text class="tick end" x="{WIDTH - 16}" y="{top - 14}">mean (range)</text>')
    for tick in ticks:
        parts.append(_line("grid", x(tick / 100), x(tick / 100), top - 6, bottom))
        parts.append(f'<text class="tick middle" x="{x(tick / 100):.1f}" y="{bottom + 16}">{tick:.0f} %</text>')
    for row, (preset, result) in enumerate(presets.items()):
        y = top + ROW * (row + 0.5)
        parts.append(f'<text class="tick end" x="{left - 10}" y="{y + 4:.1f}">{html.escape(preset)}</text>')
        parts.append(_line("line s0", x(result["low"]), x(result["high"]), y, y))
        parts.append(f'<circle class="dot s0" cx="{x(result["mean"]):.1f}" cy="{y:.1f}" r="3.6"/>')
        text = f"{100 * result['mean']:.0f} ({100 * result['low']:.0f} to {100 * result['high']:.0f})"
        parts.append(f'<text class="tick end" x="{WIDTH - 16}" y="{y + 4:.1f}">{text}</text>')
    parts.append(f'<text class="tick middle" x="{(left + right) / 2}" y="{bottom + 36}">dot: mean, line: range</text>')
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {WIDTH} {bottom + 46}" role="img">'
    return f"{svg}<style>{SVG_STYLE}</style>{''.join(parts)}</svg>\n"


def _line(kind: str, x1: float, x2: float, y1: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>'


def draw(arguments: argparse.Namespace) -> None:
    presets = ends(results(Path(arguments.out)))
    Path(arguments.svg).write_text(figure(presets))
    for preset, result in presets.items():
        print(
            f"{preset:24} {100 * result['mean']:.1f} [{100 * result['low']:.1f}, {100 * result['high']:.1f}]  "
            f"greedy {100 * result['greedy']:.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(required=True)
    runs = verbs.add_parser("run")
    runs.add_argument("model")
    runs.add_argument("out")
    runs.add_argument("--presets", nargs="*")
    runs.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    runs.set_defaults(work=run)
    drawing = verbs.add_parser("draw")
    drawing.add_argument("out")
    drawing.add_argument("svg")
    drawing.set_defaults(work=draw)
    arguments = parser.parse_args()
    arguments.work(arguments)


if __name__ == "__main__":
    main()
