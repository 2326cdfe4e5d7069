"""The counts of campaigns: a row for each disturbed run, rows of one commit added up, and a table of all."""

from __future__ import annotations

import functools
import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansatz.models.arithmetic import processor_name

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

    def add(self, run: DisturbedRun, *, commit: str = "") -> None:
        """commit: of another trainer than Ansatz."""
        faults = Counter(fault.fault for fault in run.faults)
        killed = Counter(fault.of for fault in run.faults if fault.fault == "kill")
        row = {
            "kind": run.kind,
            "commit": commit or version(),
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
            total |= {name: total.get(name, 0) + row.get(name, 0) for name in COUNTED}
            total["killed"] = dict(sorted((Counter(total.get("killed", {})) + Counter(row["killed"])).items()))
        lines = [json.dumps(merged[key]) + "\n" for key in sorted(merged)]
        self.path.write_text("".join(lines), encoding="utf-8")

    def table(self) -> str:
        """Markdown: a row for each kind of run and one for all, then what was killed, and where."""
        counts, killed, where = defaultdict[str, Counter[str]](Counter), Counter[str](), Counter[tuple[str, ...]]()
        for row in self.rows():
            for kind in (row["kind"], "all"):
                counts[kind].update({name: row.get(name, 0) for name in COUNTED})  # older rows have no stops
            killed.update(row["killed"])
            where[row["date"], row["commit"], row["processor"]] += row["kill"]
        heads = ("runs", "kills", "signals", "damages", "full disks", "stops", "differences", "unexpected")
        lines = [f"| kind of run | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
        for kind in sorted(counts, key=lambda kind: (kind == "all", kind)):
            lines.append(f"| {kind} | {' | '.join(str(counts[kind][name]) for name in COUNTED)} |")
        lines += ["", "| killed | times |", "|---|---|", *(f"| {of} | {times} |" for of, times in killed.most_common())]
        lines += ["", "| date | commit | processor | kills |", "|---|---|---|---|"]
        return "\n".join([*lines, *(f"| {' | '.join(key)} | {where[key]} |" for key in sorted(where)), ""])


@functools.cache
def version() -> str:
    """The last commit that changed the package, with a plus sign if files of it have changed since."""
    commit = _git("log", "-1", "--abbrev=7", "--format=%h", "--", "ansatz")
    return commit + "+" * bool(_git("status", "--porcelain", "--", "ansatz"))


def processor() -> str:
    """Its name, and its widest vectors, which decide how sums are rounded."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    vectors = next((f" with {title}" for flag, title in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in text), "")
    return processor_name() + vectors


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
