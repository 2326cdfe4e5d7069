"""Faults of every kind of run at random moments, for as long as is wished: kills, signals, damages and full disks.

    python benchmarks/reliability.py --minutes 60 --folder /tmp/campaign
    python benchmarks/reliability.py --minutes 60 --folder /tmp/campaign --trainer my_trainer.yaml

The kind with the fewest kills so far comes next. A run is disturbed several times, continued to its end, and compared
with an undisturbed one. What differs is kept in the folder. docs/reliability.md has the results.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import secrets
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]
from judge_server import judge_server

from ansatz.loop.interrupts import EXIT_CODE, SIGNALS
from benchmarks.faults.adapters import FAULTS, Adapter, CommandAdapter, KindAdapter
from benchmarks.faults.campaign import DisturbedRun, Disturber, as_json
from benchmarks.faults.kinds import KINDS, ON_WORKERS
from benchmarks.faults.processes import Forks, start_marked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--folder", type=Path, required=True, help="of the runs; those that differ are kept there")
    parser.add_argument("--store", type=Path, default=Path(__file__).parent / "faults" / "campaign.jsonl")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--trainer", type=Path, nargs="+", default=[], help="files that describe other trainers")
    parser.add_argument("--seed", type=int, help="fresh, if it is not given")
    arguments = parser.parse_args()
    seeds = random.Random(secrets.randbits(64) if arguments.seed is None else arguments.seed)
    until = time.monotonic() + 60 * arguments.minutes
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    commit = version()
    with ExitStack() as stack:
        adapters = list(
            map(CommandAdapter.read, arguments.trainer) if arguments.trainer else kinds(arguments.kinds, folder, stack)
        )
        prepared = set[str]()
        while time.monotonic() < until:
            counts = kills(arguments.store)
            adapter = min(adapters, key=lambda each: (counts[each.name], secrets.randbits(16)))
            if adapter.name not in prepared:
                adapter.prepare()
                prepared.add(adapter.name)
                print(f"{adapter.name}: undisturbed in {adapter.life_s:.1f} s", flush=True)
            result = disturbed(adapter, folder, seeds.getrandbits(32))
            with arguments.store.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row(result, commit)) + "\n")


def kinds(names: list[str], folder: Path, stack: ExitStack) -> Iterator[Adapter]:
    url = stack.enter_context(judge_server(error_frac=0.5))
    forks, others = stack.enter_context(Forks()), stack.enter_context(Forks())
    for name in names:
        own = name in ON_WORKERS
        yield KindAdapter(
            name=name,
            folder=folder / name.replace(" ", "_"),
            url=url,
            start=start_marked if own else forks.start,
            start_whole=start_marked if own else others.start,
            signals=[each.name for each in SIGNALS],
            stop_codes=(EXIT_CODE, 0),
            stop_s=15.0,
            refusal_codes=(2,),
            faults=[each for each in FAULTS if not (own and each == "full disk")],
        )


def disturbed(adapter: Adapter, folder: Path, seed: int) -> DisturbedRun:
    run = folder / adapter.name.replace(" ", "_") / f"{seed:08x}" / "run"
    try:
        result = Disturber(adapter, run, seed).disturb()
    except Exception as error:
        result = DisturbedRun(kind=adapter.name, seed=seed, unexpected=[repr(error)])
        import traceback

        traceback.print_exc()
    print(json.dumps(as_json(result)), flush=True)
    if result.differences or result.unexpected:
        (run.parent / "result.json").write_text(json.dumps(as_json(result), indent=2), encoding="utf-8")
    else:
        shutil.rmtree(run.parent)
    return result


def row(result: DisturbedRun, commit: str) -> dict[str, Any]:
    counts = Counter(fault.fault for fault in result.faults)
    return {
        "commit": commit,
        "processor": processor(),
        "date": f"{date.today()}",
        "kind": result.kind,
        "seed": result.seed,
        "runs": 1,
        **{name: counts[name] for name in FAULTS},
        "killed": Counter(fault.of for fault in result.faults if fault.fault == "kill"),
        "differences": int(bool(result.differences)),
        "unexpected": len(result.unexpected),
    }


def kills(store: Path) -> Counter[str]:
    counts = Counter[str]()
    for line in store.read_text(encoding="utf-8").splitlines() if store.exists() else ():
        each = json.loads(line)
        counts[each["kind"]] += each["kill"]
    return counts


def version() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain") else "")


def processor() -> str:
    names = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main()
