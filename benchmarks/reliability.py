"""Signals at random moments: each must leave a checkpoint and no process, and the run must end in the same bits.

    python benchmarks/reliability.py --signals 20 --out reliability.json

One run is left alone. A second one is stopped by a signal at a random moment, resumed, stopped again, and so on; then
it runs to its end and is compared with the first. docs/reliability.md has a table of results.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from ansatz.loop.interrupts import SIGNALS
from ansatz.track.jsonl import read_jsonl
from ansatz.train.checkpoint import DIGESTS_FILE, STATE_FILE, list_checkpoints, verify_digests

ROOT = Path(__file__).parents[1]
STAGES = ("model", "sft", "rl")
LONGEST_WAIT_S = 60.0

_STORIES = {"source": "word_problems", "max_steps": 2, "max_value": 50}
RECIPE: dict[str, Any] = {
    "name": "reliability",
    "threads": 1,
    "data": {
        "template": "tiny",
        "sft": {**_STORIES, "split": "train", "count": 200, "seed": 1},
        "train": {**_STORIES, "split": "train", "count": 100, "seed": 2},
        "heldout": {**_STORIES, "split": "heldout", "count": 20, "seed": 3},
    },
    "model": {
        "dtype": "float32",
        "tiny": {
            "vocab_size": 400,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 2,
            "num_kv_heads": 1,
            "head_dim": 16,
            "intermediate_size": 64,
        },
    },
    "sft": {"steps": 200, "batch_size": 16},
    "rollout": {
        "prompts_per_step": 8,
        "samples_per_prompt": 4,
        "max_response_tokens": 64,
        "partial_rollout_tokens": 24,
    },
    "train": {"steps": 700, "updates_per_step": 2},
    "evaluate": {"problems": 10, "samples_per_prompt": 2, "k": 2, "every": 10},
    "save": {"every": 1000, "grace": 0.2},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalOutcome:
    """What a signal did. code: of the exit. orphans: pids that outlived the process. saved: the newest checkpoint.

    seconds: from the signal to the exit. logged: the last step in the metrics of that stage.
    """

    signal: str
    code: int
    seconds: float
    orphans: tuple[int, ...]
    saved: str | None
    logged: int


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """The real command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", "from ansatz.cli.main import main; main()", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(*arguments: str | Path) -> None:
    process = start(*arguments)
    _, err = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"exit code {process.returncode}: {err[-2000:]}")


def signal_chain(
    recipe: Path, run: Path, *, count: int, seed: int, longest_delay_s: float = 0.7
) -> list[SignalOutcome]:
    """Start the run, and stop and resume it `count` times, by each of the signals in turn.

    A signal comes up to longest_delay_s after the first step of the process. The run must be long enough for all.
    """
    moments = random.Random(seed)
    outcomes = list[SignalOutcome]()
    while len(outcomes) < count:
        process = start("train", *(("--resume", run) if (run / "run.json").exists() else (recipe,)))
        _wait_until_busy(process, run)
        time.sleep(moments.uniform(0, longest_delay_s))
        outcomes.append(_send(process, SIGNALS[len(outcomes) % len(SIGNALS)], run))
    return outcomes


def _wait_until_busy(process: subprocess.Popen[str], run: Path) -> None:
    """Until the process has logged a step, evaluated or written anything else in a stage."""
    before, deadline = _traces(run), time.monotonic() + LONGEST_WAIT_S
    while _traces(run) == before:
        if process.poll() is not None:
            raise RuntimeError(f"the run ended with code {process.returncode}: {process.communicate()[1][-2000:]}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"no progress in {run} for {LONGEST_WAIT_S} s")
        time.sleep(0.005)


def _traces(run: Path) -> list[tuple[str, int]]:
    return [(stage, len(read_jsonl(run / stage / "metrics.jsonl"))) for stage in STAGES]


def _send(process: subprocess.Popen[str], number: signal.Signals, run: Path) -> SignalOutcome:
    """Send the signal, wait for the end, and look at what is left. The newest checkpoint must be undamaged."""
    children, sent = descendants(process.pid), time.monotonic()
    process.send_signal(number)
    process.communicate(timeout=LONGEST_WAIT_S)
    seconds = time.monotonic() - sent
    while time.monotonic() - sent < seconds + 5 and any(map(_alive, children)):
        time.sleep(0.02)
    stage = next((run / name for name in reversed(STAGES) if (run / name / "metrics.jsonl").exists()), None)
    saved = list_checkpoints(stage)[-1:] if stage is not None else []
    for checkpoint in saved:
        verify_digests(checkpoint)
    rows = [] if stage is None else read_jsonl(stage / "metrics.jsonl")
    return SignalOutcome(
        signal=number.name,
        code=process.returncode,
        seconds=round(seconds, 2),
        orphans=tuple(pid for pid in children if _alive(pid)),
        saved=str(saved[0].relative_to(run)) if saved else None,
        logged=rows[-1]["step"] if rows else 0,
    )


def descendants(pid: int) -> list[int]:
    """The processes below this one."""
    parents = dict[int, int]()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(status.parent.name)] = int(fields[1])
    below = list[int]()
    for process in [pid]:
        below += [child for child, parent in parents.items() if parent == process]
    for process in below:
        below += [child for child, parent in parents.items() if parent == process and child not in below]
    return below


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def difference(left: Path, right: Path) -> str | None:
    """The first difference between two finished runs; None if all their numbers and final weights are equal."""
    for stage in (name for name in STAGES if (left / name).exists()):
        for name in ("metrics.jsonl", "evaluations.jsonl"):
            rows = [_untimed(read_jsonl(run / stage / name)) for run in (left, right)]
            if rows[0] != rows[1]:
                return f"{stage}/{name}"
        if stage == "model":
            continue
        last = [list_checkpoints(run / stage)[-1] for run in (left, right)]
        if last[0].name != last[1].name:
            return f"{stage}/{last[1].name}"
        digests = [_digests(folder) for folder in last]
        if changed := [name for name in digests[0] | digests[1] if digests[0].get(name) != digests[1].get(name)]:
            return f"{stage}/{last[0].name}/{changed[0]}"
        states = [json.loads((folder / STATE_FILE).read_text(encoding="utf-8")) for folder in last]
        if any(states[0][part] != states[1][part] for part in ("trainer", "loop")):  # nothing here uses "random"
            return f"{stage}/{last[0].name}/{STATE_FILE}"
    return None


def _digests(checkpoint: Path) -> dict[str, str]:
    """Of every file but the state, part of which nothing in these runs uses."""
    lines = (checkpoint / DIGESTS_FILE).read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines) if STATE_FILE not in name}


def _untimed(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if key != "seconds" and not key.startswith(("time/", "perf/"))}
        for row in rows
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--signals", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("reliability.json"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipes = {run: folder / f"{run}.yaml" for run in ("whole", "stopped")}
        for run, path in recipes.items():
            path.write_text(yaml.safe_dump({**RECIPE, "name": run, "out": str(folder)}), encoding="utf-8")
        finish("train", recipes["whole"])
        outcomes = signal_chain(recipes["stopped"], folder / "stopped", count=arguments.signals, seed=arguments.seed)
        finish("train", "--resume", folder / "stopped")
        result = {
            "signals": [asdict(outcome) for outcome in outcomes],
            "difference": difference(folder / "whole", folder / "stopped"),
        }
    arguments.out.write_text(json.dumps(result, indent=2), encoding="utf-8")
    clean = sum(outcome.code == 75 and not outcome.orphans for outcome in outcomes)
    print(f"{clean} of {len(outcomes)} signals: exit code 75, no process left. Difference: {result['difference']}")


if __name__ == "__main__":
    main()
