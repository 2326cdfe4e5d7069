"""Kills a run of a whole recipe at chosen moments, for recipes that take too long to be run once for every kill.

    python benchmarks/killed_recipe.py tiny_arithmetic_process_reward_cpu FOLDER \
      --at sft:500 reward_model/responses:3000 reward_model:900 rl:50 -- --seed 1

One run is never disturbed, but at each moment its processes are stopped with SIGSTOP while its folder is copied. A copy
is what SIGKILL at that moment would have left. Afterwards each copy is resumed to the end of the stage in which it was
made, killed there, and every file up to that stage is compared with the undisturbed run. With --whole it is resumed to
the end of the run. A moment is a folder of the run and a number of rows: of its metrics, or of its responses. While
responses are sampled, the end is the first step of training, and the responses are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from ansatz.config.load import load_run
from ansatz.loop.run_folder import read_done
from ansatz.loop.stages.plan import folder_names
from benchmarks.faults.fingerprint import differences, fingerprint, without_older_checkpoints
from benchmarks.faults.processes import OwnProcess, descendants, finish, is_alive, kill_tree

LIMIT_S = 4 * 3600.0
LOOKS_EVERY_S = 0.2


def is_sampling(place: str) -> bool:
    return place.endswith("/responses")


def rows_at(place: Path) -> int:
    """The rows of metrics in a stage's folder, or the responses in a folder of responses."""
    files = place.glob("*.jsonl") if is_sampling(str(place)) else (place / "metrics.jsonl",)
    return sum(path.read_bytes().count(b"\n") for path in files if path.exists())


def copy_stopped(process: OwnProcess, run: Path, copy: Path) -> None:
    """Copy the folder while the command and all that it has started are stopped."""
    pids = [process.pid, *descendants(process.pid)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        shutil.copytree(run, copy, symlinks=True)
    finally:
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)


def undisturbed(recipe: str, out: Path, moments: list[str], options: list[str]) -> tuple[Path, dict[str, Path]]:
    """The folder of the run, and the copy of each moment."""
    process = OwnProcess("train", recipe, "--out", out / "undisturbed", *options, limit_s=LIMIT_S)
    copies, waiting = dict[str, Path](), list(moments)
    while waiting and is_alive(process.pid):
        time.sleep(LOOKS_EVERY_S)
        for run in (out / "undisturbed").glob("[!.]*"):
            place, _, rows = waiting[0].rpartition(":")
            if rows_at(run / place) >= int(rows):
                moment = waiting.pop(0)
                copies[moment] = out / f"killed_{len(copies) + 1}" / run.name
                copy_stopped(process, run, copies[moment])
                break
    finish(process)
    if waiting:
        raise SystemExit(f"The run ended before {waiting[0]}.")
    return next((out / "undisturbed").glob("[!.]*")), copies


def resumed(copy: Path, place: str, *, whole: bool) -> None:
    """Resume the copy to the end of what was being done at the place, or to the end of the run."""
    stage = place.split("/")[0]

    def is_over() -> bool:
        return rows_at(copy / stage) > 0 if is_sampling(place) else read_done(copy / stage) is not None

    process = OwnProcess("train", "--resume", copy, limit_s=LIMIT_S)
    while is_alive(process.pid) and (whole or not is_over()):
        time.sleep(LOOKS_EVERY_S)
    if is_alive(process.pid):
        kill_tree(process)
    else:
        finish(process)


def compared(run: Path, copy: Path, place: str, *, whole: bool) -> dict[str, object]:
    """How many files of the run up to this place there are, and which of them differ in the copy."""
    stage, folders = place.split("/")[0], folder_names(load_run(run))
    earlier = folders[: folders.index(stage)]

    def counts(name: str) -> bool:
        folder = name.split("/")[0]
        is_of_stage = folder == stage and (not is_sampling(place) or name.startswith(f"{place}/"))
        return whole or folder in earlier or is_of_stage

    files = without_older_checkpoints(filter(counts, fingerprint(run)), run)
    different = without_older_checkpoints(filter(counts, differences(run, copy)), run)
    return {"files": len(files), "different": different}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--at", nargs="+", required=True, metavar="PLACE:ROWS")
    parser.add_argument("--whole", action="store_true")
    given = sys.argv[1:]
    split = given.index("--") if "--" in given else len(given)
    arguments = parser.parse_args(given[:split])
    run, copies = undisturbed(arguments.recipe, arguments.folder.resolve(), arguments.at, given[split + 1 :])
    for moment, copy in copies.items():
        place = moment.rpartition(":")[0]
        resumed(copy, place, whole=arguments.whole)
        row = {"moment": moment, **compared(run, copy, place, whole=arguments.whole)}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
