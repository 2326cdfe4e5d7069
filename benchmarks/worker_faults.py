"""`tiny_arithmetic_grpo_cpu` on two workers with lag 1: its score, and its bits after kills of a worker and of the run.

    python benchmarks/worker_faults.py runs/worker_faults --out worker_faults.json

One run is undisturbed. In the other, a worker is killed with SIGKILL at one step, later the command and everything that
it has started, and then it is resumed. Finished runs in the folder are used again. --sft-of-whole starts the disturbed
run from the SFT stage of the undisturbed one instead of training it again. Other options go to both runs, such as
--train.steps 6 --sft.steps 20.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from faults.fingerprint import fingerprint
from faults.processes import OwnProcess, finish, kill_tree, left_alive

from ansatz.track.jsonl import read_jsonl

RECIPE = "tiny_arithmetic_grpo_cpu"
SETTINGS = ["--cluster.workers", "2", "--rollout.lag", "1", "--algorithm.correction", "truncate"]
LIMIT_S = 3600.0
"""No run may take longer."""
KINDS = {
    "weights": ("rl/checkpoints/", ".safetensors"),
    "metrics without times": ("rl/metrics", ".jsonl"),
    "rollouts": ("rl/samples/", ".jsonl"),
    "evaluations": ("rl/evaluations", ".jsonl"),
}
"""The files that are compared: how their names begin and end."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--worker-at", type=int, default=20, help="rows of metrics at which a worker is killed")
    parser.add_argument("--run-at", type=int, default=40, help="rows of metrics at which the whole run is killed")
    parser.add_argument("--sft-of-whole", action="store_true", help="train the SFT stage only once")
    parser.add_argument("--out", type=Path, default=Path("worker_faults.json"))
    arguments, settings = parser.parse_known_args()
    whole, disturbed = (arguments.folder / name / "run" for name in ("whole", "disturbed"))
    if not is_finished(whole):
        finish(start("train", RECIPE, "--out", whole.parent, "--name", "run", "--fresh", *SETTINGS, *settings))
    kills: list[dict[str, Any]] = []
    if not is_finished(disturbed):
        shutil.rmtree(disturbed, ignore_errors=True)
        command = ["train", RECIPE, "--out", disturbed.parent, "--name", "run", "--fresh", *SETTINGS, *settings]
        if arguments.sft_of_whole:
            shutil.copytree(whole, disturbed, ignore=lambda folder, names: {"rl"} if Path(folder) == whole else set())
            command = ["train", "--resume", disturbed]
        kills = disturb(command, disturbed, worker_at=arguments.worker_at, run_at=arguments.run_at)
        finish(start("train", "--resume", disturbed))
    digests = {name: digests_of(run) for name, run in (("whole", whole), ("disturbed", disturbed))}
    result = {
        "recipe": [RECIPE, *SETTINGS, *settings],
        "scores": {name: scores(run) for name, run in (("whole", whole), ("disturbed", disturbed))},
        "seconds": {name: seconds(run) for name, run in (("whole", whole), ("disturbed", disturbed))},
        "kills": kills,
        "sha256": digests,
        "equal": digests["whole"] == digests["disturbed"],
    }
    arguments.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


def disturb(command: list[str | Path], run: Path, *, worker_at: int, run_at: int) -> list[dict[str, Any]]:
    """Start the run, kill one of its workers and later everything. What was killed, and what was alive afterwards."""
    process = start(*command)
    wait_for_rows(run, worker_at, process)
    tree = psutil.Process(process.pid).children(recursive=True)
    worker = next(each for each in tree if each.name().startswith("ray::Actor"))
    os.kill(worker.pid, signal.SIGKILL)
    kills = [{"killed": "a worker", "rows": num_rows(run)}]
    wait_for_rows(run, run_at, process)
    below = [each.pid for each in psutil.Process(process.pid).children(recursive=True)]
    rows = num_rows(run)
    if (code := kill_tree(process)) != -signal.SIGKILL:
        raise RuntimeError(f"exit code {code} before the kill: {process.error()[-3000:]}")
    orphans = left_alive(below, within_s=10)
    return [*kills, {"killed": "the run", "rows": rows, "processes": 1 + len(below), "left after 10 s": len(orphans)}]


def start(*arguments: str | Path) -> OwnProcess:
    return OwnProcess(*arguments, limit_s=LIMIT_S)


def wait_for_rows(run: Path, rows: int, process: OwnProcess) -> None:
    deadline = time.monotonic() + LIMIT_S
    while num_rows(run) < rows:
        if process.process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{rows} rows were not reached: {process.error()[-3000:]}")
        time.sleep(0.05)


def num_rows(run: Path) -> int:
    return len(read_jsonl(run / "rl" / "metrics.jsonl"))


def is_finished(run: Path) -> bool:
    return (run / "summary.json").exists()


def digests_of(run: Path) -> dict[str, str]:
    """SHA-256 of the files of each kind of the RL stage, with their names. Of checkpoints, only the newest counts:
    others are kept for a rollback or because they are the best."""
    newest = max((run / "rl" / "checkpoints").iterdir()).name
    files = {
        name: digest
        for name, digest in fingerprint(run).items()
        if "/checkpoints/" not in name or f"/{newest}/" in name
    }
    return {kind: _digest_of_kind(files, *ends) for kind, ends in KINDS.items()}


def _digest_of_kind(files: Mapping[str, str], begin: str, end: str) -> str:
    chosen = {name: digest for name, digest in files.items() if name.startswith(begin) and name.endswith(end)}
    assert chosen, (begin, end)
    return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()


def scores(run: Path) -> list[dict[str, Any]]:
    """pass@1 of every evaluation."""
    rows = json.loads((run / "summary.json").read_text(encoding="utf-8"))["evaluations"]
    return [{"stage": row["stage"], "step": row["step"], "pass@1": row["pass@1"]} for row in rows]


def seconds(run: Path) -> float:
    return json.loads((run / "summary.json").read_text(encoding="utf-8"))["seconds"]


if __name__ == "__main__":
    main()
