"""A recipe that runs in seconds, and the real command to run, kill and resume it with."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ansatz.config.load import check, merge
from ansatz.config.schema import Config
from ansatz.track.jsonl import read_jsonl

REPOSITORY = Path(__file__).parents[1]

_STORIES = {"source": "word_problems", "max_steps": 2, "max_value": 50}
TOY: dict[str, Any] = {
    "name": "toy",
    "threads": 1,
    "data": {
        "template": "tiny",
        "sft": {**_STORIES, "split": "train", "count": 200, "seed": 1},
        "train": {**_STORIES, "split": "train", "count": 100, "seed": 2},
        "heldout": {**_STORIES, "split": "heldout", "count": 20, "seed": 3},
    },
    "model": {
        "path": None,
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
    "sft": {"steps": 4, "batch_size": 8},
    "rollout": {"prompts_per_step": 4, "samples_per_prompt": 4, "max_response_tokens": 48},
    "train": {"steps": 4},
    "evaluate": {"problems": 6, "samples_per_prompt": 2, "k": 2, "every": 2},
    "save": {"every": 2},
}


def toy(folder: Path, changes: Mapping[str, Any] | None = None, *, without: str = "") -> dict[str, Any]:
    """The toy recipe's mapping with its runs under `folder`, nested changes laid over it, one dotted key left out."""
    recipe = merge({**copy.deepcopy(TOY), "out": str(folder / "runs")}, changes or {})
    section: Any = recipe
    *parents, last = without.split(".")
    for name in parents:
        section = section[name]
    section.pop(last, None)
    return recipe


def toy_config(folder: Path, changes: Mapping[str, Any] | None = None) -> Config:
    return check(toy(folder, changes))


def toy_recipe(folder: Path, changes: Mapping[str, Any] | None = None, *, without: str = "") -> Path:
    """The same as a file."""
    path = folder / "toy.yaml"
    path.write_text(yaml.safe_dump(toy(folder, changes, without=without), sort_keys=False), encoding="utf-8")
    return path


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """The real command in a process of its own, from the repository's folder."""
    return subprocess.Popen(
        [sys.executable, "-c", "from ansatz.cli.main import main; main()", *map(str, arguments)],
        cwd=REPOSITORY,
        env={**os.environ, "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def command(*arguments: str | Path, timeout_s: float = 240) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of the real command."""
    process = start(*arguments)
    try:
        out, err = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
    return process.returncode, out, err


def kill_in(stage: Path, *, after: int, arguments: Sequence[str | Path]) -> list[int]:
    """Run the command until the stage has logged `after` steps, kill it with SIGKILL, and return the steps logged."""
    process = start(*arguments)
    deadline = time.monotonic() + 200
    while not (stage / "metrics.jsonl").exists() or len(read_jsonl(stage / "metrics.jsonl")) < after:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (stage / "done.json").exists()
    return [row["step"] for row in read_jsonl(stage / "metrics.jsonl")]


def untimed(value: Any) -> Any:
    """JSON without the numbers that differ from run to run: seconds, and the metrics time/ and perf/."""
    if isinstance(value, dict):
        timed = ("time/", "perf/")
        return {key: untimed(each) for key, each in value.items() if key != "seconds" and not key.startswith(timed)}
    return [untimed(each) for each in value] if isinstance(value, list) else value
