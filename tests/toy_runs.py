"""A recipe that runs in seconds, and the real command to run, kill and resume it with."""

from __future__ import annotations

import copy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from warm_commands import WarmCommand, start_warm

from ansatz.config.layers import merge
from ansatz.config.load import check
from ansatz.config.schema import Config
from ansatz.track.jsonl import read_jsonl
from benchmarks.faults.fingerprint import differences
from benchmarks.faults.processes import COMMAND, environment
from benchmarks.faults.tiny_recipe import TINY

REPOSITORY = Path(__file__).parents[1]

TOY: dict[str, Any] = merge(
    TINY,
    {
        "name": "toy",
        "data": {"train": {"count": 100}},
        "sft": {"steps": 4},
        "rollout": {"max_response_tokens": 24},
        "train": {"steps": 4},
        "evaluate": {"every": 2},
        "save": {"every": 2},
    },
)


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


def start(*arguments: str | Path, workers: bool = False) -> subprocess.Popen[str] | WarmCommand:
    """The real command in a process of its own, from the repository's folder.

    workers: those for algebra start with a run, and those of a sweep load all anew, as they do elsewhere."""
    return start_warm([*map(str, arguments)], environment(), workers=workers) or start_anew(*arguments)


def start_anew(*arguments: str | Path) -> subprocess.Popen[str]:
    """The same in an interpreter of its own, which is slower."""
    return subprocess.Popen(
        [sys.executable, *COMMAND, *map(str, arguments)],
        cwd=REPOSITORY,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def command(*arguments: str | Path, timeout_s: float = 240, workers: bool = False) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of the real command. workers: as for `start`."""
    process = start(*arguments, workers=workers)
    try:
        out, err = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
    return process.wait(), out, err


def cut_off(run: Path, folder: Path, *, stage: str, step: int) -> Path:
    """A copy of a finished run under `folder`, as if it had been killed after the checkpoint of a step of its last
    stage and before the next one: rows of later steps are there."""
    copied = Path(shutil.copytree(run, folder / run.name))
    later = [path for path in (copied / stage / "checkpoints").glob("step-*") if int(path.name[5:]) > step]
    assert later
    for path in later:
        shutil.rmtree(path)
    for name in (f"{stage}/done.json", "summary.json"):
        (copied / name).unlink()
    return copied


def different_results(left: Path, right: Path) -> list[str]:
    """The files that differ between two finished runs, except their recipes: the section cluster changes no result."""
    return [
        name for name in differences(left, right) if Path(name).name not in ("card.json", "config.yaml", "run.json")
    ]


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
