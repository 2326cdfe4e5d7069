"""Verdicts: what the rows of a sweep say about its rules, with the guards first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ansatz.findings.cells import choose_times
from ansatz.findings.statistics import (
    NOT_TESTABLE,
    Interval,
    blocks_to_decide,
    decide,
    mean_interval,
    variance_interval,
)
from ansatz.findings.sweep_file import Rule, Side, SweepFile, label_of
from ansatz.track.jsonl import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A guard in one arm. value: the mean over blocks, None if it was not measured."""

    name: str
    arm: str
    value: float | None
    low: float
    high: float

    @property
    def passed(self) -> bool:
        return self.value is not None and self.low <= self.value <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came out for a rule. values: by block, the difference. missing: blocks without one, and why. needed: how
    many blocks would decide, None if that is not known."""

    rule: Rule
    title: str
    values: Mapping[int, float]
    missing: Sequence[str]
    interval: Interval | None
    verdict: str
    needed: int | None


class Rows:
    """The rows of the blocks, each arm at the value that its tuning has chosen."""

    def __init__(self, sweep: SweepFile, rows: Sequence[Row]) -> None:
        self.sweep, self.chosen = sweep, choose_times(sweep, rows)
        self.blocks = [block for block in sweep.blocks.seeds if any(row["block"] == block for row in rows)]
        self._rows = {(row["block"], row["arm"], row["times"]): row for row in rows}

    def row(self, block: int, arm: str) -> Row | None:
        """Return the row of an arm; None if it has not been run."""
        return self._rows.get((block, arm, self.chosen[arm]))

    def outcomes(self, arm: str, outcome: Mapping[str, Any]) -> dict[int, float]:
        """Return an outcome of an arm by block, where it has one."""
        found = {
            block: row["outcomes"].get(label_of(outcome)) for block in self.blocks if (row := self.row(block, arm))
        }
        return {block: value for block, value in found.items() if value is not None}

    def arm_of(self, side: Side, outcome: Mapping[str, Any]) -> str:
        """Return the arm that a side of a difference stands for: of several, the one with the best mean."""
        if isinstance(side, str):
            return side
        arms = self.sweep.all_arms

        def find_best(names: Sequence[str]) -> str:
            return max(names, key=lambda name: fmean(self.outcomes(name, outcome).values() or [float("-inf")]))

        names = self.sweep.matching(side)
        if "best_at" in side:
            fixed = {key for key in side if key != "best_at"}
            free = {
                key: value
                for key, value in arms[find_best(self.sweep.matching(side["best_at"]))].items()
                if key not in fixed
            }
            names = [name for name in names if all(arms[name][key] == value for key, value in free.items())]
        return find_best(names)

    def difference(self, side: Sequence[Side], outcome: Mapping[str, Any]) -> tuple[dict[int, float], list[str]]:
        """Return the difference of one or two sides by block, and why blocks have none."""
        arms = [self.arm_of(each, outcome) for each in side]
        columns = [self.outcomes(arm, outcome) for arm in arms]
        values = {
            block: columns[0][block] - sum(column[block] for column in columns[1:])
            for block in self.blocks
            if all(block in column for column in columns)
        }
        missing: list[str] = []
        for block in self.blocks:
            for arm, column in zip(arms, columns, strict=True):
                if block not in column:
                    row = self.row(block, arm)
                    why = "has not been run" if row is None else row["why"] or "has no such number"
                    missing.append(f"block {block}, {arm}: {why}")
        return values, missing


def check_guards(sweep: SweepFile, rows: Rows) -> list[Guard]:
    """Return every guard in every arm that it is for."""
    found: list[Guard] = []
    for name, limits in sweep.guards.items():
        low, high = limits if isinstance(limits, tuple) else (limits, float("inf"))
        for arm in [sweep.control] if name.startswith("control_") else sweep.all_arms:
            measured = [row["guards"].get(name) for block in rows.blocks if (row := rows.row(block, arm))]
            values = [value for value in measured if value is not None]
            found.append(Guard(name=name, arm=arm, value=fmean(values) if values else None, low=low, high=high))
    return found


def judge(sweep: SweepFile, rows: Rows, guards: Sequence[Guard]) -> list[Result]:
    """Return what came out for each rule."""
    return [_judge(sweep, rows, rule, all(guard.passed for guard in guards)) for rule in sweep.rule]


def _judge(sweep: SweepFile, rows: Rows, rule: Rule, testable: bool) -> Result:
    outcome, needed = sweep.outcome_of(rule), None
    if rule.ratio_of_variances is not None:
        (first, missing), (second, more) = (rows.difference(pair, outcome) for pair in rule.ratio_of_variances)
        values = {block: value for block, value in first.items() if block in second}
        interval = variance_interval(list(values.values()), [second[block] for block in values], level=rule.level)
        missing = missing + more
        title = " over ".join(f"variance of {a} - {b}" for a, b in rule.ratio_of_variances)
    else:
        found, missing = rows.difference(rule.difference, outcome)
        values = {block: value - rule.than for block, value in found.items()}
        how: dict[str, Any] = {"level": rule.level, "direction": rule.direction, "delta": rule.delta}
        interval = mean_interval(list(values.values()), **how)
        needed = blocks_to_decide(list(values.values()), **how)
        title = " - ".join(rows.arm_of(side, outcome) for side in rule.difference)
        title += f" {'-' if rule.than > 0 else '+'} {abs(rule.than):g}" if rule.than else ""
    verdict = decide(interval, direction=rule.direction, delta=rule.delta) if testable else NOT_TESTABLE
    return Result(
        rule=rule, title=title, values=values, missing=missing, interval=interval, verdict=verdict, needed=needed
    )


def find_changes(sweep: SweepFile, header: Row) -> list[str]:
    """Return the parts of the file that are not what was registered before the first result."""
    registered = header.get("registered", {})
    return [part for part, now in sweep.digests().items() if registered.get(part) != now]


def curves_of(rows: Rows, name: str) -> dict[str, dict[int, list[tuple[float, float]]]]:
    """Return the curve of each arm and block: {arm: {block: [(step, value), ...]}}."""
    found: defaultdict[str, dict[int, list[tuple[float, float]]]] = defaultdict(dict)
    for arm in rows.sweep.all_arms:
        for block in rows.blocks:
            row = rows.row(block, arm)
            if row is not None and row["curves"].get(name):
                found[arm][block] = [(x, y) for x, y in row["curves"][name]]
    return dict(found)
