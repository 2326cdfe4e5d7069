"""Seconds of a step with two workers of one thread each and lag 1, as a fraction of those in one process without lag.

    python benchmarks/workers.py --steps 12 --repeats 3 --out workers.json

The two kinds of run alternate. Each starts from the same SFT model; the first two steps of a run are not counted. Only
valid on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECIPE = "tiny_arithmetic_grpo_cpu"
ALONE: list[str] = []
WORKERS = ["--cluster.workers", "2", "--rollout.lag", "1", "--algorithm.correction", "truncate"]


def train(out: Path, name: str, steps: int, model: str | None, *more: str) -> Path:
    """Run the recipe and return the run folder. model: start RL from this folder, without SFT."""
    start = [] if model is None else ["--data.sft", "null", "--model.path", model]
    command = [
        sys.executable,
        "-c",
        "from ansatz.cli.main import main; main()",
        "train",
        RECIPE,
        "--out",
        str(out),
        "--name",
        name,
        "--fresh",
    ]
    command += ["--train.steps", str(steps), "--train.decay_steps", "0", "--evaluate.every", "0", *start, *more]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return out / name


def step_seconds(run: Path) -> list[float]:
    """Seconds of each step, from the third on: waiting for rollouts, grading, and the update."""
    rows = [json.loads(line) for line in (run / "rl" / "metrics.jsonl").read_text().splitlines()]
    return [row["time/step_s"] for row in rows][2:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("workers.json"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        first = train(out, "sft", 0, None)
        model = json.loads((first / "summary.json").read_text())["model"]
        ratios = list[float]()
        for repeat in range(arguments.repeats):
            alone = step_seconds(train(out, f"alone{repeat}", arguments.steps, model, *ALONE))
            workers = step_seconds(train(out, f"workers{repeat}", arguments.steps, model, *WORKERS))
            ratios.append(statistics.median(workers) / statistics.median(alone))
            print(f"repeat {repeat}: {ratios[-1]:.3f}", flush=True)
    row = {"recipe": RECIPE, "ratios": ratios, "median": statistics.median(ratios), "time": time.strftime("%Y-%m-%d")}
    arguments.out.write_text(json.dumps(row, indent=2) + "\n")


if __name__ == "__main__":
    main()
