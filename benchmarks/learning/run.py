"""Trains one model with Ansatz and with TRL on the same problems, and compares their rewards, scores and times.

    python benchmarks/learning/run.py --model FOLDER --train train.jsonl --heldout heldout.jsonl --work DIR
        [--trl-python PYTHON] [--steps 25] [--seed 0] [--dtype float32] [--lr 1e-5] [--every 5]

FOLDER is a model that answers in a box, such as the export of a run after SFT. Both sides start from its weights, take
the same problems in the same order, the same prompts as text and the same reward (`ansatz.adapters.trl_reward`), and
minimise what `defaults_of: trl` writes down, with the same optimizer and learning rate. The noise of sampling is each
side's own, so that the curves can differ by what seeds differ. Checkpoints of both are evaluated by `ansatz eval`.

DIR/learning.json holds the settings, a row for each step and one for each evaluation; DIR/learning.svg and the table
that is printed show them. A side whose rows are complete is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ansatz.track.jsonl import read_jsonl
from ansatz.track.svg import Chart, Series, figure

HERE = Path(__file__).parent
REWARDS = {"math_answer": {"mode": "strict"}}
TEMPLATE = {"name": "chat", "user": "none", "system": "Solve the problem."}
OPTIMIZER = {"name": "adamw", "betas": [0.9, 0.999], "weight_decay": 0.0}


def recipe(options: argparse.Namespace) -> dict[str, Any]:
    """Return the recipe of Ansatz' side."""
    return {
        "name": "ansatz",
        "seed": options.seed,
        "stages": ["rl"],
        "data": {
            "unfit": "drop",
            "template": TEMPLATE,
            "train": {"source": "jsonl", "split": "train", "path": str(options.train.resolve())},
            "heldout": {"source": "jsonl", "split": "heldout", "path": str(options.heldout.resolve())},
        },
        "model": {"path": str(options.model.resolve()), "dtype": options.dtype},
        "rollout": {
            "prompts_per_step": options.prompts,
            "samples_per_prompt": options.samples,
            "max_prompt_tokens": 256,
            "max_response_tokens": options.max_tokens,
        },
        "algorithm": {"defaults_of": "trl"},
        "rewards": REWARDS,
        "train": {"steps": options.steps, "lr": options.lr, "max_grad_norm": 1.0, "optimizer": OPTIMIZER},
        "evaluate": {"problems": 8, "samples_per_prompt": 1, "k": 1, "every": 0},
        "save": {"every": options.every, "keep": options.steps},
    }


def run_ansatz(options: argparse.Namespace) -> Path:
    """Train with Ansatz and return the run's folder."""
    file = options.work / "ansatz.yaml"
    file.write_text(yaml.safe_dump(recipe(options), sort_keys=False), encoding="utf-8")
    command = ["train", str(file), "--out", str(options.work), "--threads", str(options.threads)]
    if (options.work / "ansatz").exists():
        command = ["train", "--resume", str(options.work / "ansatz")]
    _run([sys.executable, "-m", "ansatz", *command])
    return options.work / "ansatz"


def rows_in_order(run: Path) -> list[dict[str, str]]:
    """Return prompt and gold answer of each problem of the run, in the order of its steps."""
    files = sorted((run / "rl" / "samples").glob("step-*.groups.jsonl"))
    return [{"prompt": row["prompt"], "answer": row["answer"]} for file in files for row in read_jsonl(file)]


def run_trl(options: argparse.Namespace, rows: Sequence[Mapping[str, str]]) -> Path:
    """Train with TRL in its own environment and return the folder with its rows and checkpoints."""
    out = options.work / "trl"
    out.mkdir(exist_ok=True)
    settings = {
        "model": str(options.model.resolve()),
        "rows": list(rows),
        "rewards": REWARDS,
        "optimizer": OPTIMIZER,
        **{name: getattr(options, name) for name in ("prompts", "samples", "max_tokens", "steps", "lr", "every")},
        **{name: getattr(options, name) for name in ("seed", "dtype", "threads", "microbatches")},
    }
    (out / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    if len(steps_of_trl(out)) < options.steps:
        packages = HERE.parents[1]
        path = os.pathsep.join([str(packages), str(packages / "packages" / "verify")])
        _run([str(options.trl_python), str(HERE / "peer_trl.py"), str(out)], PYTHONPATH=path)
    return out


def steps_of_trl(out: Path) -> list[dict[str, float]]:
    file = out / "steps.json"
    return json.loads(file.read_text(encoding="utf-8"))["steps"] if file.exists() else []


def steps_of_ansatz(run: Path) -> list[dict[str, float]]:
    return [
        {
            "step": row["step"],
            "reward": row["rollout/rewards"],
            "tokens": row["rollout/response_length"],
            "grad_norm": row["train/grad_norm"],
            "seconds": row["time/step_s"],
        }
        for row in read_jsonl(run / "rl" / "metrics.jsonl")
    ]


def evaluations(options: argparse.Namespace, side: str, checkpoints: Mapping[int, Path]) -> list[dict[str, Any]]:
    """Evaluate checkpoints by step, with samples and with greedy answers."""
    rows: list[dict[str, Any]] = []
    for step, path in checkpoints.items():
        found: dict[str, Any] = {"side": side, "step": step}
        for name, temperature, samples in (("sampled", 1.0, options.evaluate_samples), ("greedy", 0.0, 1)):
            out = options.work / "evals" / f"{side}-{step}-{name}"
            command = ["eval", str(path), "--suite", str(options.heldout.resolve()), "--out", str(out)]
            command += ["--problems", str(options.problems), "--samples-per-prompt", str(samples)]
            command += ["--temperature", str(temperature), "--top-p", "1", "--template", json.dumps(TEMPLATE)]
            command += ["--max-response-tokens", str(options.max_tokens), "--threads", str(options.threads)]
            command += ["--dtype", options.dtype]
            if not (out / "results.json").exists():
                _run([sys.executable, "-m", "ansatz", *command])
            found[name] = json.loads((out / "results.json").read_text(encoding="utf-8"))
        rows.append(found)
    return rows


def _run(command: Sequence[str], **variables: str) -> None:
    print("$", *command, flush=True)
    subprocess.run(command, check=True, env={**os.environ, **variables})


def table(steps: Mapping[str, Sequence[Mapping[str, float]]], scores: Sequence[Mapping[str, Any]]) -> str:
    """Return the Markdown table of the evaluations, with the seconds of training until then."""
    lines = ["| side | step | training, s | reward, last 5 steps | pass@1, % | greedy | maj@k |", "|" + "---|" * 7]
    for row in scores:
        done = [each for each in steps.get(row["side"], []) if each["step"] <= row["step"]]
        last = [each["reward"] for each in done[-5:]]
        reward = f"{sum(last) / len(last):.2f}" if last else ""
        strict = row["sampled"]["scores"]["strict"]
        low, high = (f"{100 * bound:.1f}" for bound in strict["pass@1_interval"])
        majority = list(strict["maj@k"].values())[-1]
        greedy = row["greedy"]["scores"]["strict"]["pass@1"]
        numbers = f"{100 * strict['pass@1']:.1f} [{low}, {high}] | {100 * greedy:.1f} | {100 * majority:.1f}"
        seconds = f"{sum(each['seconds'] for each in done):.0f}"
        lines.append(f"| {row['side']} | {row['step']} | {seconds} | {reward} | {numbers} |")
    return "\n".join(lines)


def chart(steps: Mapping[str, Sequence[Mapping[str, float]]]) -> Chart:
    """Return the chart of the mean rewards of both sides over training steps."""
    return Chart(
        title="Mean reward of a step",
        series=[
            Series(name=name, points=[(row["step"], row["reward"]) for row in rows], dashed=name == "TRL")
            for name, rows in steps.items()
        ],
        is_fraction=True,
        y_range=(0.0, max(row["reward"] for rows in steps.values() for row in rows)),
    )


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--model", "--train", "--heldout", "--work"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--trl-python", type=Path, default=HERE.parents[1] / ".venv-peers" / "bin" / "python")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--lr", type=float, default=1e-5)
    counts = {"steps": 25, "seed": 0, "every": 5, "prompts": 16, "samples": 8, "max-tokens": 64, "threads": 2}
    counts |= {"microbatches": 4, "problems": 100, "evaluate-samples": 8}
    for name, default in counts.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def main() -> None:
    options = read_options()
    options.work.mkdir(parents=True, exist_ok=True)
    run = run_ansatz(options)
    trl = run_trl(options, rows_in_order(run))
    steps = {
        "Ansatz": steps_of_ansatz(run),
        "TRL": steps_of_trl(trl),
    }
    due = range(options.every, options.steps + 1, options.every)
    scores = [
        *evaluations(options, "start", {0: options.model}),
        *evaluations(options, "Ansatz", {step: run / "rl" / "checkpoints" / f"step-{step:06d}" for step in due}),
        *evaluations(options, "TRL", {step: trl / f"step-{step:06d}" for step in due}),
    ]
    found = {"settings": {name: str(value) for name, value in vars(options).items()}, "steps": steps, "scores": scores}
    (options.work / "learning.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (options.work / "learning.svg").write_text(figure(chart(steps)), encoding="utf-8")
    print(table(steps, scores))


if __name__ == "__main__":
    main()
