"""The counts of campaigns: a row for each disturbed run, rows of one commit added up, and a table of all."""

from __future__ import annotations

import json
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .adapters import WEIGHTS
from .campaign import DisturbedRun
from .processes import ROOT

COUNTED = ("runs", *WEIGHTS, "differences", "unexpected")
"""Counts of a row: disturbed runs, faults, runs that ended differently, and what else should not have happened."""
_KEY = ("kind", "commit", "processor", "date")


@dataclass(frozen=True, slots=True)
class Store:
    """A file with a line of JSON for each row. Several campaigns may add to one."""

    path: Path

    def rows(self) -> list[dict[str, Any]]:
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def add(self, run: DisturbedRun) -> None:
        faults = Counter(fault.fault for fault in run.faults)
        killed = Counter(fault.of for fault in run.faults if fault.fault == "kill")
        row = {
            "kind": run.kind,
            "commit": version(),
            "processor": processor(),
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "runs": 1,
            **{fault: faults[fault] for fault in WEIGHTS},
            "differences": int(bool(run.differences)),
            "unexpected": len(run.unexpected),
            "killed": dict(sorted(killed.items())),
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def kills(self) -> Counter[str]:
        """By kind of run."""
        counts = Counter[str]()
        for row in self.rows():
            counts[row["kind"]] += row["kill"]
        return counts

    def merge(self, others: Iterable[Store]) -> None:
        """Add the rows of other stores, and add up those of the same kind of run, commit, processor and date."""
        merged: dict[tuple[str, ...], dict[str, Any]] = {}
        for row in [*self.rows(), *(row for other in others for row in other.rows())]:
            key = tuple(row[name] for name in _KEY)
            total = merged.setdefault(key, dict(zip(_KEY, key, strict=True)))
            total |= {name: total.get(name, 0) + row[name] for name in COUNTED}
            total["killed"] = dict(sorted((Counter(total.get("killed", {})) + Counter(row["killed"])).items()))
        lines = [json.dumps(merged[key]) + "\n" for key in sorted(merged)]
        self.path.write_text("".join(lines), encoding="utf-8")

    def table(self) -> str:
        """Markdown: a row for each kind of run, and one for all."""
        heads = ("runs", "kills", "signals", "damages", "full disks", "differences", "unexpected")
        counts: dict[str, Counter[str]] = {}
        for row in self.rows():
            counts.setdefault(row["kind"], Counter()).update({name: row[name] for name in COUNTED})
        counts = dict(sorted(counts.items())) | {"all": sum(counts.values(), Counter[str]())}
        lines = [f"| kind of run | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
        lines += [f"| {kind} | {' | '.join(str(count[name]) for name in COUNTED)} |" for kind, count in counts.items()]
        return "\n".join([*lines, "", *self._sources()]) + "\n"

    def _sources(self) -> list[str]:
        """A line for each commit and processor."""
        kills = Counter[tuple[str, str, str]]()
        victims = Counter[str]()
        for row in self.rows():
            kills[row["date"], row["commit"], row["processor"]] += row["kill"]
            victims.update(row["killed"])
        lines = [
            f"- {date}, commit {commit}, {name}: {count} kills" for (date, commit, name), count in sorted(kills.items())
        ]
        return [
            *lines,
            "",
            "Killed were: " + ", ".join(f"{name} {count}" for name, count in victims.most_common()) + ".",
        ]


def version() -> str:
    """The commit, with a plus sign if files have changed since."""
    commit = _git("rev-parse", "--short=7", "HEAD")
    return commit + "+" * bool(_git("status", "--porcelain", "--untracked-files=no"))


def processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
