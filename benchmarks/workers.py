"""Seconds of a step: in one process without lag, on two workers of one thread each with lag 1, and in an older version.

    python benchmarks/workers.py --steps 12 --repeats 3 --base CHECKOUT --out workers.json

The kinds of run alternate, so that their ratios mean something on a machine that is not quite quiet. All start from the
same SFT model; the first two steps of a run are not counted. --base: a checkout of another version, whose loop without
lag is compared with this one's. --model: the SFT model, which is trained first without this.

Also printed is the fraction of the cores that the run in one process keeps busy. Workers can only use what is left: on
two cores the ratio cannot fall below this fraction, apart from work that is saved.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

RECIPE = "tiny_arithmetic_grpo_cpu"
HERE = Path(__file__).parents[1]
WORKERS = ["--cluster.workers", "2", "--rollout.lag", "1", "--algorithm.correction", "truncate"]


def train(out: Path, name: str, steps: int, model: str | None, *more: str, code: Path = HERE) -> tuple[Path, float]:
    """Run the recipe. Returns the run folder and the fraction of the cores that was busy during its RL steps.

    model: start RL from this folder, without SFT. code: the checkout of Ansatz that runs it.
    """
    start = [] if model is None else ["--data.sft", "null", "--model.path", model]
    command = [sys.executable, "-c", "from ansatz.cli.main import main; main()", "train", RECIPE]
    command += ["--out", str(out), "--name", name, "--fresh"]
    command += ["--train.steps", str(steps), "--train.decay_steps", "0", "--evaluate.every", "0", *start, *more]
    environment = {**os.environ, "PYTHONPATH": str(code), "OMP_WAIT_POLICY": "passive"}
    process = subprocess.Popen(command, cwd=code, env=environment, stdout=subprocess.DEVNULL)
    return out / name, _watch(process, out / name / "rl" / "metrics.jsonl")


def _watch(process: subprocess.Popen[bytes], metrics: Path) -> float:
    """Wait for the run. The fraction of the cores that the machine kept busy between its second step and its last."""
    begun = ended = None
    while process.poll() is None:
        time.sleep(0.1)
        rows = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
        if rows >= 2:
            busy, now = sum(psutil.cpu_times()[:3]), time.monotonic()  # user, nice, system
            begun, ended = begun or (busy, now, rows), (busy, now, rows) if not ended or rows > ended[2] else ended
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}: {process.args}")
    if begun is None or ended is None or ended[1] == begun[1]:
        return float("nan")
    return (ended[0] - begun[0]) / (ended[1] - begun[1]) / (psutil.cpu_count() or 1)


def step_seconds(run: Path) -> float:
    """The median step, from the third on: waiting for rollouts, grading, and the update."""
    rows = [json.loads(line) for line in (run / "rl" / "metrics.jsonl").read_text().splitlines()]
    return statistics.median([row["time/step_s"] for row in rows][2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--out", type=Path, default=Path("workers.json"))
    arguments = parser.parse_args()
    arms: dict[str, dict[str, Any]] = {"one process": {}, "two workers, lag 1": {"more": WORKERS}}
    if arguments.base is not None:
        arms = {"base": {"code": arguments.base.absolute()}, **arms}
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    busy: dict[str, list[float]] = {name: [] for name in arms}
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model and os.path.abspath(arguments.model)
        if model is None:
            run, _ = train(Path(folder), "sft", 0, None)
            model = json.loads((run / "summary.json").read_text())["model"]
        for repeat in range(arguments.repeats):
            for name, arm in arms.items():
                label = f"{name.replace(', ', ' ').replace(' ', '_')}_{repeat}"
                run, fraction = train(
                    Path(folder), label, arguments.steps, model, *arm.get("more", ()), code=arm.get("code", HERE)
                )
                seconds[name].append(step_seconds(run))
                busy[name].append(fraction)
                print(f"{name}: {seconds[name][-1]:.3f} s a step, {fraction:.0%} of the cores busy", flush=True)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    result = {"recipe": RECIPE, "seconds": seconds, "medians": medians, "busy": busy, "time": time.strftime("%Y-%m-%d")}
    result["workers / one process"] = medians["two workers, lag 1"] / medians["one process"]
    if "base" in medians:
        result["one process / base"] = medians["one process"] / medians["base"]
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
