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
WIDTH, HEIGHT, LABELS = 960, 660, 300
WINDOW = 5  # steps of the running mean


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
        "rewards": [row["rollout/rewards"] for row in metrics],
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


def curves(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By preset, the highest curve first: the mean over seeds, and the mean and range of held-out pass@1 at the end."""
    by_preset: dict[str, dict[str, Any]] = {}
    for preset in dict.fromkeys(row["preset"] for row in rows):
        runs = [row for row in rows if row["preset"] == preset]
        mean = [fmean(values) for values in zip(*(row["rewards"] for row in runs), strict=True)]
        smooth = [fmean(mean[max(0, step + 1 - WINDOW) : step + 1]) for step in range(len(mean))]
        ends = [row["after"]["pass@1"] for row in runs]
        greedy = fmean(row["after"]["greedy"] for row in runs)
        by_preset[preset] = {"curve": smooth, "end": fmean(ends), "low": min(ends), "high": max(ends), "greedy": greedy}
    return dict(sorted(by_preset.items(), key=lambda entry: -entry[1]["curve"][-1]))


def draw(arguments: argparse.Namespace) -> None:
    from ansatz.track.theme import SVG_STYLE

    presets = curves(results(Path(arguments.out)))
    steps = max(len(result["curve"]) for result in presets.values())
    values = [value for result in presets.values() for value in (*result["curve"], result["end"])]
    low, high = int(min(values) * 20) / 20, int(max(values) * 20 + 1) / 20
    left, right, top, bottom = 56, WIDTH - LABELS, 66, HEIGHT - 44

    def x(step: float) -> float:
        return left + (step - 1) / (steps - 1) * (right - left)

    def y(value: float) -> float:
        return bottom - (value - low) / (high - low) * (bottom - top)

    parts = [f'<rect class="surface" width="{WIDTH}" height="{HEIGHT}" rx="8"/>']
    parts.append(
        '<text class="heading" x="16" y="26">Reward of the rollouts by step, mean of the seeds; all presets</text>'
    )
    for tick in range(round(low * 20), round(high * 20) + 1):
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y(tick / 20):.1f}" y2="{y(tick / 20):.1f}"/>')
        parts.append(f'<text x="{left - 8}" y="{y(tick / 20) + 4:.1f}" text-anchor="end">{5 * tick} %</text>')
    for step in range(5, steps + 1, 5):
        parts.append(f'<text x="{x(step):.1f}" y="{bottom + 18}" text-anchor="middle">{step}</text>')
    parts.append(f'<text x="{(left + right) / 2}" y="{bottom + 36}" text-anchor="middle">RL step</text>')
    parts.append(f'<text x="{right + 22}" y="{top - 18}">held-out pass@1 at the end, mean (range), %</text>')
    gap = (bottom - top) / max(1, len(presets) - 1)
    for place, (preset, result) in enumerate(presets.items()):
        colour = f"s{place % 7}"
        points = " ".join(f"{x(step + 1):.1f},{y(value):.1f}" for step, value in enumerate(result["curve"]))
        parts.append(
            f'<polyline class="line {colour}" fill="none" points="{points}"><title>{preset}</title></polyline>'
        )
        label = top + place * gap
        end = y(result["curve"][-1])
        parts.append(
            f'<line class="line {colour}" style="stroke-width:1;stroke-opacity:.6" x1="{right + 1}" x2="{right + 18}" '
            f'y1="{end:.1f}" y2="{label:.1f}"/>'
        )
        text = f"{preset}  {100 * result['end']:.0f} ({100 * result['low']:.0f} to {100 * result['high']:.0f})"
        parts.append(f'<text x="{right + 22}" y="{label + 4:.1f}">{html.escape(text)}</text>')
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    Path(arguments.svg).write_text(f"{svg}<style>{SVG_STYLE}</style>{''.join(parts)}</svg>\n")
    for preset, result in presets.items():
        print(
            f"{preset:24} {100 * result['end']:.1f} [{100 * result['low']:.1f}, {100 * result['high']:.1f}]  "
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
