"""Faults of every kind of run: kills and signals at random moments, damaged files, and disks that are full.

    python benchmarks/reliability.py --kills 100 --signals 20 --damage 200 --disk --out reliability.json
    python benchmarks/reliability.py --worker-kills 20

Kills and signals are aimed at the phases of a run in turn, so that each is hit; an undisturbed run of the same recipe
shows which there are. Every disturbed run is continued to its end and compared with it. docs/reliability.md has the
results.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from faults.damage import STAGE, damaged_runs, flipped_bytes
from faults.full_disk import CASES, full_disks
from faults.kills import KilledRun, killed_run
from faults.kinds import KINDS, ON_WORKERS
from faults.marked import HELD
from faults.moments import ANY, DisturbedRuns
from faults.processes import Forks
from faults.signals import SignalledRun, signalled_run
from faults.worker_kills import run_with_killed_workers

from ansatz.train.checkpoint import list_checkpoints

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from judge_server import judge_server

FAULTS_PER_RUN = 4
"""How often a run is disturbed before it is continued to its end and another one is begun."""

Disturb = Callable[[DisturbedRuns, str, Sequence[str], random.Random], "KilledRun | SignalledRun"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=0, help="SIGKILLs, divided among the kinds of run")
    parser.add_argument("--signals", type=int, default=0, help="signals that save the run, divided likewise")
    parser.add_argument(
        "--worker-kills", type=int, default=0, help="SIGKILLs of workers and ranks, while the run lives"
    )
    parser.add_argument("--damage", type=int, default=0, help="flipped bytes of a checkpoint, and every other damage")
    parser.add_argument("--disk", action="store_true", help="files that cannot be written")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--interpreters",
        action="store_true",
        help="start every command in an interpreter of its own, not as a fork of one that has imported everything",
    )
    parser.add_argument("--out", type=Path, default=Path("reliability.json"))
    arguments = parser.parse_args()
    shares_of = {what: shares(getattr(arguments, what), arguments.kinds) for what in ("kills", "signals")}
    results: dict[str, list[Any]] = {}
    with tempfile.TemporaryDirectory() as name, judge_server(error_frac=0.5) as url:
        for kind in arguments.kinds:
            if not any(share[kind] for share in shares_of.values()):
                continue
            with disturbed_runs(kind, Path(name) / kind, url=url, interpreters=arguments.interpreters) as runs:
                for what, disturb in (("kills", killed_run), ("signals", signalled_run)):
                    draw = random.Random(f"{arguments.seed} {what} {kind}")
                    some = disturbed(runs, disturb, what=what, count=shares_of[what][kind], draw=draw)
                    results.setdefault(what, []).extend(map(asdict, some))
                    arguments.out.write_text(json.dumps(results, indent=2), encoding="utf-8")
        for kind, count in shares(arguments.worker_kills, ON_WORKERS).items():
            with disturbed_runs(kind, Path(name) / "workers" / kind, interpreters=True) as runs:
                draw = random.Random(f"{arguments.seed} worker kills {kind}")
                for number, first in enumerate(range(0, count, FAULTS_PER_RUN)):
                    killed = run_with_killed_workers(runs, str(number), min(FAULTS_PER_RUN, count - first), draw)
                    results.setdefault("worker kills", []).append(printed(asdict(killed)))
                    arguments.out.write_text(json.dumps(results, indent=2), encoding="utf-8")
        if arguments.damage:
            with disturbed_runs("grpo", Path(name) / "damage", interpreters=arguments.interpreters) as runs:
                draw = random.Random(f"{arguments.seed} damage")
                newest = list_checkpoints(runs.whole / STAGE)[-1]
                results["unnoticed flips"] = flipped_bytes(newest, arguments.damage, draw)
                results["damage"] = [printed(asdict(each)) for each in damaged_runs(runs, draw)]
        for kind in CASES if arguments.disk else ():
            with disturbed_runs(kind, Path(name) / "disk" / kind, interpreters=arguments.interpreters) as runs:
                results.setdefault("disk", []).extend(printed(asdict(each)) for each in full_disks(runs))
        arguments.out.write_text(json.dumps(results, indent=2), encoding="utf-8")
    print_counts(results)


@contextmanager
def disturbed_runs(kind: str, folder: Path, *, url: str = "", interpreters: bool) -> Iterator[DisturbedRuns]:
    """The undisturbed run comes from another interpreter than the others, so the hashes of strings differ."""
    if interpreters:
        yield DisturbedRuns(kind, folder, url=url)
        return
    with Forks() as forks, Forks() as others:
        yield DisturbedRuns(kind, folder, url=url, start=forks.start, start_whole=others.start)


def printed(result: dict[str, Any]) -> dict[str, Any]:
    print(result, flush=True)
    return result


def disturbed(
    runs: DisturbedRuns, disturb: Disturb, *, what: str, count: int, draw: random.Random
) -> Iterator[KilledRun | SignalledRun]:
    """Runs that are disturbed `count` times in all. A moment that a run has passed before it came is drawn again."""
    number = 0
    while count > 0:
        phases = [ANY, *(phase for phase in runs.phases if what == "kills" or phase not in HELD)]
        dealt = draw.sample(phases, len(phases))
        while dealt and count > 0:
            aims, dealt = dealt[: min(FAULTS_PER_RUN, count)], dealt[min(FAULTS_PER_RUN, count) :]
            run = disturb(runs, f"{what} {number}", aims, draw)
            print(run, flush=True)
            yield run
            number += 1
            count -= len(run.kills if isinstance(run, KilledRun) else run.signals)


def shares(total: int, kinds: Sequence[str]) -> dict[str, int]:
    """The total divided among the kinds, the first ones getting what is left over."""
    return {kind: total // len(kinds) + (index < total % len(kinds)) for index, kind in enumerate(kinds)}


def print_counts(results: dict[str, list[Any]]) -> None:
    for what in ("kills", "signals"):
        runs = results.get(what, [])
        if faults := [fault for run in runs for fault in run[what]]:
            same = sum(not run["differences"] for run in runs)
            print(f"{len(faults)} {what} in {len(runs)} runs, of which {same} ended in the same bits")
            print(f"  processes left: {sum(len(fault['orphans']) for fault in faults)}")
            print(f"  in progress: {dict(Counter(phase for fault in faults for phase in fault['phases']))}")
            if what == "kills" and (landed := sum(run["landed"] for run in runs)):
                print(f"  reused of the groups that had landed: {sum(run['reused'] for run in runs)} of {landed}")
            if what == "signals":
                print(f"  exit codes: {dict(Counter(fault['code'] for fault in faults))}")
                print(f"  in time: {sum(fault['in_time'] for fault in faults)}")
                print(f"  longest: {max(fault['seconds'] for fault in faults)} s")
    if runs := results.get("worker kills"):
        same = sum(not run["differences"] for run in runs)
        kills = sum(len(run["kills"]) for run in runs)
        print(f"{kills} kills of workers in {len(runs)} runs, of which {same} ended in the same bits")
        print(f"  processes left: {sum(len(run['orphans']) for run in runs)}")
    if "damage" in results:
        print(f"flipped bytes that were not noticed: {len(results['unnoticed flips'])}")
    for what in ("damage", "disk"):
        if each := results.get(what):
            print(f"{len(each)} cases of {what}: {dict(Counter(case['effect'] for case in each))}")


if __name__ == "__main__":
    main()
