"""A campaign of faults: runs of every kind are killed, signalled, stopped, damaged and left without disk space.

    python benchmarks/reliability.py --minutes 60 --folder FOLDER
    python benchmarks/reliability.py --minutes 60 --folder FOLDER --trainer my_trainer.yaml --store my_trainer.jsonl
    python benchmarks/reliability.py --merge campaign.jsonl

The kind with the fewest kills so far comes next. Each run is disturbed up to ten times, continued to its end, and
compared with an undisturbed one. A run that differs stays in the folder with result.json, and the campaign goes on. Its
counts are added to the store. --merge adds other stores to it, and writes the table of docs/reliability.md.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.faults.adapters import Adapter, CommandAdapter
from benchmarks.faults.campaign import DisturbedRun, Disturber
from benchmarks.faults.kind_adapter import kind_adapters
from benchmarks.faults.kinds import KINDS
from benchmarks.faults.store import Store
from examples.judge_server import judge_server

STORE = Path(__file__).parent / "faults" / "campaign.jsonl"
PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- written by `python benchmarks/reliability.py --merge` -->\n", "<!-- end -->\n"
"""Around the table on the page."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--folder", type=Path, default=Path("campaign"), help="of the runs")
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--merge", type=Path, nargs="*", help="start nothing, but add these stores")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--trainer", type=Path, nargs="+", help="files that describe other trainers")
    parser.add_argument("--seed", type=int, help="left out: a fresh one, which is printed")
    arguments = parser.parse_args()
    store = Store(arguments.store)
    if arguments.merge is not None:
        store.merge(map(Store, arguments.merge))
        before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{begin}{store.table()}{END}{rest.partition(END)[2]}", encoding="utf-8")
        return
    for number in (signal.SIGINT, signal.SIGHUP):  # what nohup and a shell's & ignore, the runs would ignore, too
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    with ExitStack() as stack:
        if arguments.trainer:
            adapters: Sequence[Adapter] = [CommandAdapter.read(path) for path in arguments.trainer]
        else:
            url = stack.enter_context(judge_server(error_frac=0.5))
            adapters = stack.enter_context(kind_adapters(arguments.kinds, url=url))
        run_campaign(adapters, arguments.folder.resolve(), store, minutes=arguments.minutes, seed=seed)
    print(store.table())


def run_campaign(adapters: Sequence[Adapter], folder: Path, store: Store, *, minutes: float, seed: int) -> None:
    draw, until, prepared = random.Random(seed), time.monotonic() + 60 * minutes, set[str]()
    while not prepared or time.monotonic() < until:
        kills = store.kills()
        adapter = min(adapters, key=lambda each: (kills[each.name], secrets.randbits(16)))
        runs = folder / adapter.name.replace(" ", "_")
        if adapter.name not in prepared:
            shutil.rmtree(runs / "whole", ignore_errors=True)
            adapter.prepare(runs)
            prepared.add(adapter.name)
            print(f"{adapter.name}: undisturbed in {adapter.life_s:.1f} s", flush=True)
        store.add(disturbed(adapter, runs, draw.getrandbits(32)), commit=adapter.commit)


def disturbed(adapter: Adapter, runs: Path, seed: int) -> DisturbedRun:
    """Disturb a run, and remove it unless there is something to look at."""
    run = runs / f"{seed:08x}" / "run"
    disturber = Disturber(adapter, run, seed)
    try:
        result = disturber.disturb()
    except Exception:  # the campaign goes on
        result = disturber.result
        result.unexpected.append(traceback.format_exc())
    print(json.dumps(asdict(result)), flush=True)
    if result.differences or result.unexpected:
        (run.parent / "result.json").write_text(json.dumps(asdict(result), indent=2), encoding="utf-8")
    else:
        shutil.rmtree(run.parent)
    return result


if __name__ == "__main__":
    main()
