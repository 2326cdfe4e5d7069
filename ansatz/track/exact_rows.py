"""The exact part of a stored evaluation, read back: how likely each worked solution was (see `rollout_rows`)."""

from __future__ import annotations

from pathlib import Path

from ansatz.errors import DataError
from ansatz.track.jsonl import read_jsonl
from ansatz.track.rollout_rows import SOLUTION_LOGPS


def read_solution_logps(path: Path, *, temperature: float) -> dict[str, float]:
    """Return the log-prob of the worked solution of each problem that has one, in the order of the problems.

    Raise DataError for a row that no run writes, and if no problem has a log-prob at this temperature.
    """
    found, known = dict[str, float](), set[str]()
    for number, row in enumerate(read_jsonl(path), start=1):
        logps = row.get(SOLUTION_LOGPS, {})
        if not isinstance(logps, dict) or not all(isinstance(logp, int | float) for logp in logps.values()):
            raise DataError(
                f"{path}, line {number}: {SOLUTION_LOGPS!r} is {logps!r:.60}, which no run writes. Restore the file, "
                "or remove it."
            )
        known |= logps.keys()
        if (logp := logps.get(f"{temperature:g}")) is not None:
            found[str(row["problem"])] = float(logp)
    if not found:
        have = f"those at {', '.join(sorted(known))}" if known else "none"
        raise DataError(
            f"{path}: expected log-probs of worked solutions at temperature {temperature:g}, found {have}. Set "
            "evaluate.temperature, and use held-out problems with worked solutions."
        )
    return found
