"""The rows of a sweep: NAME.jsonl in the folder of its runs, about 2 kB for each cell.

The first row registers the sweep: the digests of its parts before the first result, its control, and the blocks that
arms are tuned on. Once there are results, it has the verdicts on the rules too. Each other row is a cell:

    {"block": 0, "arm": "other", "times": 1.0, "status": "done", "why": "", "outcomes": {"exact_pass@k k=1": 0.71},
     "guards": {"exact": 0.7}, "curves": {"exact_pass@1": [[0, 0.5], [10, 0.6]]}, "recipe": DIGEST, "commit": "1a2b3c4",
     "processor": "..."}

status: done; collapsed, if the run was stopped by its watchdog or became nan; failed, for any other error of training.
Rows are ordered by block and arm, and hold no time, so that a sweep which was killed ends with the same bytes. The CPU
seconds of the cells are in NAME.cost.jsonl.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from ansatz.errors import ConfigError, DataError
from ansatz.findings.cells import Cell, code_commit
from ansatz.findings.outcomes import bind_guard, bind_outcome, curve
from ansatz.findings.sweep_file import SweepFile, label_of
from ansatz.findings.verdicts import Rows, describe, find_changes, judge
from ansatz.models.arithmetic import processor_name
from ansatz.track.jsonl import Row, append_jsonl, read_jsonl, write_jsonl
from ansatz.track.rollout_rows import round_number
from ansatz.track.runs import read_pipeline
from ansatz.track.sweep_rows import NO_DIFFERENCE, is_rounding, read_rows

CURVE_POINTS = 40
"""Points of a curve in a row, at even distances, so that runs of equal length keep the same steps."""
REGISTER = "registered.jsonl"
"""In a folder of rows: the digests of each sweep before its first result, which stay when its rows are made again."""


def make_row(sweep: SweepFile, cell: Cell, folder: Path, *, status: str, why: str) -> Row:
    """Return the row of a cell whose run has ended. If the run has collapsed or failed, the row holds the numbers that
    can be measured."""
    measured: dict[str, dict[str, float | None]] = {"outcomes": {}, "guards": {}}
    curves: dict[str, list[list[float]]] = {}
    try:
        run = read_pipeline(folder)
        measured["outcomes"] = {label_of(each): round_number(bind_outcome(each)(run)) for each in sweep.outcomes}
        measured["guards"] = {name: round_number(bind_guard(name)(run)) for name in sweep.measured}
        for name in sweep.curves:
            points = curve(run, name)
            kept = {place * (len(points) - 1) // (CURVE_POINTS - 1) for place in range(CURVE_POINTS) if points}
            curves[name] = [[x, float(f"{y:.5g}")] for x, y in (points[place] for place in sorted(kept))]
    except DataError:
        if status == "done":
            raise
    return {
        "block": cell.block,
        "arm": cell.arm,
        "times": cell.times,
        "status": status,
        "why": why.replace(str(folder), "RUN"),
        **measured,
        "curves": curves,
        "recipe": cell.digest,
        "commit": code_commit(),
        "processor": processor_name(),
    }


class RowFile:
    """The rows of a sweep, which are replaced as a whole whenever a cell ends."""

    def __init__(self, folder: Path, sweep: SweepFile, file: Path) -> None:
        self.path, self._sweep = folder / f"{sweep.name}.jsonl", sweep
        self._costs = folder / f"{sweep.name}.cost.jsonl"
        self.header, self.rows = read_rows(self.path)
        self._register = folder / REGISTER
        known = {line["name"]: line["registered"] for line in reversed(read_jsonl(self._register))}
        first = known.get(sweep.name, sweep.digests())
        self._is_known = sweep.name in known
        new = {"sweep": sweep.name, "file": str(file), "registered": first, "control": sweep.control}
        self.header = self.header or new | ({"tuning": list(sweep.tune.seeds)} if sweep.tune else {})

    def has(self, cell: Cell) -> bool:
        """Tell whether the cell has a row. Raise ConfigError if another recipe or another commit has made it."""
        row = next((row for row in self.rows if (row["block"], row["arm"], row["times"]) == cell.key), None)
        if row is not None and row["recipe"] != cell.digest:
            raise ConfigError(
                f"{self.path}: the row of {cell.title} was made with another recipe than {self.header['file']} gives "
                "now. Restore the file, or give the sweep another name."
            )
        if row is not None and row["commit"] != (now := code_commit()):
            raise ConfigError(
                f"{self.path}: the row of {cell.title} was made by commit {row['commit']}, and this is {now}. Rows of "
                "two commits are not mixed: check out the first one, or move the file away and run all again."
            )
        return row is not None

    def add(self, row: Row, *, cpu_s: float) -> None:
        """Add the row of a cell in its place, and its cost."""
        arms = list(self._sweep.all_arms)
        if not self._is_known:
            append_jsonl(self._register, {"name": self._sweep.name, "registered": self.header["registered"]})
            self._is_known = True
        self.rows.append(row)
        self.rows.sort(key=lambda each: (each["block"], arms.index(each["arm"]), each["times"]))
        write_jsonl(self.path, [self.header, *self.rows])
        self.add_cost(row["block"], row["arm"], row["times"], cpu_s)

    def add_cost(self, block: int, arm: str, times: float, cpu_s: float) -> None:
        """Add the cost of a cell or a start."""
        append_jsonl(self._costs, {"block": block, "arm": arm, "times": times, "cpu_s": round(cpu_s, 1)})

    def costs(self) -> list[float]:
        """Return the CPU seconds of the cells, without starts."""
        return [float(row["cpu_s"]) for row in read_jsonl(self._costs) if row["arm"]]

    def judge(self) -> Iterator[str]:
        """Yield a line with the verdict on each rule, and keep the verdicts in the first row, for pages."""
        sweep, rows = self._sweep, Rows(self._sweep, self.rows)
        changed = find_changes(rows, self.header)
        verdicts: list[Row] = []
        results = judge(rows)
        for result, verdict in zip(results, describe(results), strict=True):
            interval = result.interval
            measured = interval and [round_number(x) for x in (interval.value, interval.low, interval.high)]
            verdicts.append(
                {
                    "rule": result.rule.name or result.title,
                    "outcome": label_of(sweep.outcome_of(result.rule)),
                    "verdict": verdict + (f" (exploratory: {', '.join(changed)} changed)" if changed else ""),
                    "measured": measured,
                    "blocks": len(result.values),
                    "failed_guards": sorted({guard.name for guard in result.guards if not guard.passed}),
                }
            )
        if self.rows and verdicts != self.header.get("verdicts", []):
            self.header["verdicts"] = verdicts
            write_jsonl(self.path, [self.header, *self.rows])
        for row, result in zip(verdicts, results, strict=True):
            value = NO_DIFFERENCE if result.values and result.only_rounding else "no interval"
            value = "{:+.4g} [{:+.4g}, {:+.4g}]".format(*row["measured"]) if row["measured"] else value
            guards_text = f"; guards that failed: {', '.join(row['failed_guards'])}" if row["failed_guards"] else ""
            yield f"{row['rule']} ({row['outcome']}): {row['verdict']}, {value}, n = {row['blocks']}{guards_text}"

    def summarise(self) -> Iterator[str]:
        """Yield a line for each arm: the mean of the outcome over the blocks, and of its difference to the control."""
        sweep, label, rows = self._sweep, label_of(self._sweep.outcome), Rows(self._sweep, self.rows)
        control = rows.outcomes(sweep.control, sweep.outcome)
        for arm in sweep.all_arms:
            column = rows.outcomes(arm, sweep.outcome)
            pairs = [value - control[block] for block, value in column.items() if block in control]
            mean = f"{fmean(column.values()):.4g}" if column else "none"
            by = f"{fmean(pairs):+.4g} to" if not is_rounding(pairs, column.values()) else f"{NO_DIFFERENCE} to"
            difference = f", {by} {sweep.control}" if pairs and arm != sweep.control else ""
            yield f"{arm:32} {label}: {mean}{difference}, n = {len(column)}"
