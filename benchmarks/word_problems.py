"""Compares RL with more SFT of the same time, with pretrained weights: smollm2_135m_word_problems_cpu and its control.

    python benchmarks/word_problems.py --model SmolLM2-135M-Instruct.Q4_1.gguf --asdiv asdiv.jsonl --svamp svamp.jsonl
        --work DIR [--seeds 0 1 2] [--rates 5e-5 2e-5] [--control-steps 90] [--figure docs/figures/smollm2.svg]

For each seed the recipe is trained, and its SFT then goes on from the checkpoint before RL, on the same demonstrations,
for --control-steps steps, which should take as long as RL. The first seed tries each of --rates, the others the better
one. The control is the model with the highest pass@1 on problems of ASDiv that neither side trains on (from the 1,901st
on), and may be the one before these steps. All scores that are printed are those of SVAMP. A run that is there is
resumed or not run again, so the script can be stopped at any time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from demo import line_of

from ansatz.track.jsonl import read_jsonl
from ansatz.track.svg import Chart, Series, figure

RECIPE = "smollm2_135m_word_problems_cpu"
NUM_TRAINED = 1900
SCORES = {"pass@1": "pass@1", "greedy": "greedy", "maj@k": "maj@8", "pass@k": "pass@8"}


def train(options: argparse.Namespace, name: str, settings: dict[str, Any]) -> Path:
    """Train the recipe with settings in a folder, or go on with it. Return the folder of the run."""
    run = options.work / name
    begin = (
        ["--resume", str(run)] if (run / "run.json").exists() else [RECIPE, "--out", str(options.work), "--name", name]
    )
    data = {
        "data.sft.of": {"source": "jsonl", "path": str(options.asdiv), "limit": NUM_TRAINED},
        "data.train": {"source": "jsonl", "split": "train", "path": str(options.asdiv), "limit": NUM_TRAINED},
    }
    given = {} if begin[0] == "--resume" else {**data, **settings}
    written = [part for key, value in given.items() for part in (f"--{key}", json.dumps(value))]
    subprocess.run([str(Path(sys.executable).with_name("ansatz")), "train", *begin, *written], check=True)
    return run


def scores_of(run: Path, stage: str, name: str = "") -> dict[str, Any]:
    """Return the last evaluation of a stage, on one of several held-out sets or on the only one."""
    last = list(read_jsonl(run / stage / "evaluations.jsonl"))[-1]
    return last["by_source"][name] if name else last


def control(options: argparse.Namespace, seed: int, rate: str, start: Path) -> Path:
    """Continue SFT from a checkpoint. Return the folder of the run."""
    validation = options.work / "validation.jsonl"
    lines = options.asdiv.read_text(encoding="utf-8").splitlines(keepends=True)
    validation.write_text("".join(lines[NUM_TRAINED:]), encoding="utf-8")
    sets = {"svamp": options.svamp, "asdiv": validation}
    settings = {
        "seed": seed,
        "model.path": str(start),
        "data.heldout": {
            name: {"source": "jsonl", "split": "heldout", "path": str(path)} for name, path in sets.items()
        },
        "sft": {"steps": options.control_steps, "batch_size": 16, "lr": float(rate), "warmup_steps": 2},
        "train.steps": 0,
        "evaluate.problems": 400,  # the sets take turns
    }
    return train(options, f"control_{rate}_seed_{seed}", settings)


def report(rows: dict[str, list[dict[str, Any]]]) -> None:
    """Print the scores of every seed, and the mean difference between RL and its control with its standard error."""
    print(f"{'':12}" + "".join(f"{label:>26}" for label in SCORES.values()))
    for name, of_seeds in rows.items():
        print(f"{name:12}" + "".join(f"{', '.join(f'{100 * row[key]:.1f}' for row in of_seeds):>26}" for key in SCORES))
    for key, label in SCORES.items():
        gains = [100 * (rl[key] - sft[key]) for rl, sft in zip(rows["RL"], rows["more SFT"], strict=True)]
        error = f" ± {stdev(gains) / len(gains) ** 0.5:.1f}" if len(gains) > 1 else ""
        print(f"RL - more SFT, {label}: {fmean(gains):+.1f}{error} points")


def draw(runs: list[Path], rows: dict[str, list[dict[str, Any]]]) -> str:
    """Return the figure: the scores of RL over its steps, and the control, dashed, over the same CPU time."""
    lines = list[Series]()
    for colour, (key, label) in enumerate({"pass@k": "pass@8", "greedy": "greedy", "pass@1": "pass@1"}.items()):
        line = line_of(runs, key, label, colour=colour)
        ends = fmean(row[key] for row in rows["after SFT"]), fmean(row[key] for row in rows["more SFT"])
        points = list(zip((line.points[0][0], line.points[-1][0]), ends, strict=True))
        lines += [line, Series(name=f"{label}, more SFT", points=points, dashed=True, colour=colour)]
    title = "SmolLM2-135M on SVAMP: RL, and more SFT of the same time"
    return figure(Chart(title=title, series=lines, x_label="step of RL", is_fraction=True, y_range=(0, 0.5)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "asdiv", "svamp", "work"):
        parser.add_argument(f"--{name}", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rates", nargs="+", default=["5e-5", "2e-5"])
    parser.add_argument("--control-steps", type=int, default=90)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[dict[str, Any]]] = {"after SFT": [], "RL": [], "more SFT": []}
    rates, runs = options.rates, list[Path]()
    for seed in options.seeds:
        heldout = {"source": "jsonl", "split": "heldout", "path": str(options.svamp)}
        run = train(options, f"seed_{seed}", {"seed": seed, "model.path": str(options.model), "data.heldout": heldout})
        start = max((run / "sft" / "checkpoints").glob("step-*"))
        controls = {rate: control(options, seed, rate, start) for rate in rates}
        rates = [max(rates, key=lambda rate: scores_of(controls[rate], "sft", "asdiv")["pass@1"])]
        chosen = max(("model", "sft"), key=lambda stage: scores_of(controls[rates[0]], stage, "asdiv")["pass@1"])
        runs.append(run)
        rows["after SFT"] += [scores_of(run, "sft")]
        rows["RL"] += [scores_of(run, "rl")]
        rows["more SFT"] += [scores_of(controls[rates[0]], chosen, "svamp")]
        report(rows)
    if options.figure:
        options.figure.write_text(draw(runs, rows), encoding="utf-8")


if __name__ == "__main__":
    main()
