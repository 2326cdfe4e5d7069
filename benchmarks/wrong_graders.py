"""The default task under graders that are wrong in different ways, and the figure of what each policy learns.

    python benchmarks/wrong_graders.py run runs/wrong_graders
    python benchmarks/wrong_graders.py draw runs/wrong_graders

`run` trains one SFT checkpoint and then, from it, one policy per seed and grader. What is finished is skipped, so the
command can be repeated after an interruption. `math_answer` has weight 0 where another grader pays: it decides what
counts as correct, in the rollouts and on the held-out problems. `draw` writes docs/graders_training.json, the figure
and the table of docs/graders.md from the runs that are finished.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from ansatz.track.jsonl import read_jsonl
from ansatz.track.svg import Chart, Point, Series, line_chart

sys.path.insert(0, str(Path(__file__).resolve().parent / "graders"))
from page import write_between
from provenance import provenance

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ROOT / "recipes" / "tiny_arithmetic_grpo_cpu.yaml"
ADAPTERS = ROOT / "benchmarks" / "graders" / "adapters.py"
GRADERS = {
    "math_answer": "the verifier",
    "gold_anywhere": "gold anywhere in the response",
    "within_ten_percent": "within 10 % of the gold",
    "one_digit_only": "refuses two digits",
}
"""By the name of its reward or of its function in graders/adapters.py."""
MEASURES = ("pass@1", "greedy", "pass@k")
WINDOW = 3
"""Steps of the running mean in the figure."""
LAST = 5
"""Steps at the end that the table averages."""
BUDGET = {
    "threads": "1",
    "rollout.prompts_per_step": "32",
    "rollout.engine.max_concurrent": "256",
    "train.steps": "30",
    "train.decay_steps": "15",
    "evaluate.samples_per_prompt": "4",
    "evaluate.k": "4",
    "evaluate.every": "0",
    "save.tensorboard": "false",
}


def rewards_of(grader: str) -> str:
    others = {} if grader == "math_answer" else {f"{ADAPTERS}:{grader}": {}}
    return json.dumps({"math_answer": {"mode": "strict", "weight": 0.0 if others else 1.0}, **others})


def train(out: Path, name: str, settings: dict[str, str]) -> Path:
    """The folder of a finished run: an interrupted one is resumed, a finished one kept."""
    from ansatz.config import load_recipe
    from ansatz.loop.pipeline import run_pipeline

    folder = out / name
    if (folder / "summary.json").exists():
        return folder
    config = load_recipe(RECIPE, overrides={**BUDGET, **settings, "name": name, "out": str(out)})
    return run_pipeline(config, resume=(folder / "config.yaml").exists())


def train_grader(out: Path, grader: str, seed: int) -> dict[str, Any]:
    sft = train(out, "sft", {"stages": "[sft]"})
    model = max((sft / "sft" / "checkpoints").glob("step-*"))
    settings = {"seed": str(seed), "model.path": str(model), "data.sft": "null", "data.template": "tiny"}
    run = train(out, f"{grader}_{seed}", {**settings, "stages": "[rl]", "rewards": rewards_of(grader)})
    return {"grader": grader, "seed": seed, "run": run.name, **provenance()}


def run(arguments: argparse.Namespace) -> None:
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    done = {row["run"] for row in read_jsonl(out / "done.jsonl")}
    for seed in arguments.seeds:
        for grader in arguments.graders:
            if f"{grader}_{seed}" in done:
                continue
            row = train_grader(out, grader, seed)
            with (out / "done.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(row, flush=True)


def saved(out: Path, grader: str, seed: int) -> dict[str, Any]:
    """What is kept of a finished run: what the policy got and what was correct, and its evaluations."""
    metrics = read_jsonl(out / f"{grader}_{seed}" / "rl" / "metrics.jsonl")
    last = read_jsonl(out / f"{grader}_{seed}" / "rl" / "evaluations.jsonl")[-1]
    return {
        "paid": [round(row["rollout/rewards"], 4) for row in metrics],
        "correct": [round(row["rollout/accuracy"], 4) for row in metrics],
        "heldout": {key: round(last[key], 4) for key in MEASURES},
    }


def draw(arguments: argparse.Namespace) -> None:
    """Keep the finished runs in a JSON file and draw the means over their seeds."""
    out = Path(arguments.out)
    done = read_jsonl(out / "done.jsonl")
    start = read_jsonl(out / "sft" / "sft" / "evaluations.jsonl")[-1]
    runs = {
        grader: {str(row["seed"]): saved(out, grader, row["seed"]) for row in done if row["grader"] == grader}
        for grader in GRADERS
    }
    record = {
        "commit": done[0]["commit"],
        "processor": done[0]["processor"],
        "sft": {key: round(start[key], 4) for key in MEASURES},
        "graders": runs,
    }
    arguments.json.write_text(json.dumps(record) + "\n", encoding="utf-8")
    arguments.svg.write_text(drawing(record), encoding="utf-8")
    write_between(arguments.page, "benchmarks/wrong_graders.py", table(record))


def mean_curve(runs: dict[str, Any], of: str) -> list[Point]:
    """The mean over seeds, and over the WINDOW steps up to each."""
    mean = [fmean(same) for same in zip(*(run[of] for run in runs.values()), strict=True)]
    return [(float(end), fmean(mean[end - WINDOW : end])) for end in range(WINDOW, len(mean) + 1)]


def drawing(record: dict[str, Any]) -> str:
    """The figure."""
    graders = record["graders"]
    series: list[Series] = []
    for colour, (grader, runs) in enumerate(graders.items()):
        series.append(Series(name=GRADERS[grader], points=mean_curve(runs, "correct"), colour=colour))
        if grader != "math_answer":
            series.append(Series(name="", points=mean_curve(runs, "paid"), colour=colour, dashed=True))
    title = "Correct rollouts (solid) and what the grader pays (dashed)"
    chart = Chart(title=title, series=series, is_fraction=True)
    return line_chart(chart, width=560, height=330, standalone=True)


def table(record: dict[str, Any]) -> str:
    """Means over seeds, of the last LAST steps and of the held-out problems with the lowest and the highest seed."""
    lines = ["| trained by | paid, % | correct, % | held-out pass@1, % | greedy, % |", "|---|---:|---:|---:|---:|"]
    start = record["sft"]
    lines.append(f"| (before RL) | | | {100 * start['pass@1']:.1f} | {100 * start['greedy']:.1f} |")
    for grader, runs in record["graders"].items():
        paid, correct = (fmean(fmean(run[key][-LAST:]) for run in runs.values()) for key in ("paid", "correct"))
        heldout = [100 * run["heldout"]["pass@1"] for run in runs.values()]
        greedy = fmean(100 * run["heldout"]["greedy"] for run in runs.values())
        spread = f"{fmean(heldout):.1f} ({min(heldout):.1f} to {max(heldout):.1f})"
        name = f"{GRADERS[grader]}, `{grader}`"
        lines.append(f"| {name} | {100 * paid:.1f} | {100 * correct:.1f} | {spread} | {greedy:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(required=True)
    runs = verbs.add_parser("run")
    runs.add_argument("out")
    runs.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    runs.add_argument("--graders", nargs="*", default=list(GRADERS))
    runs.set_defaults(work=run)
    drawing = verbs.add_parser("draw")
    drawing.add_argument("out")
    drawing.add_argument("--svg", type=Path, default=ROOT / "docs" / "figures" / "wrong_graders.svg")
    drawing.add_argument("--json", type=Path, default=ROOT / "docs" / "graders_training.json")
    drawing.add_argument("--page", type=Path, default=ROOT / "docs" / "graders.md")
    drawing.set_defaults(work=draw)
    arguments = parser.parse_args()
    arguments.work(arguments)


if __name__ == "__main__":
    main()
