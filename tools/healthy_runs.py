"""Store the metrics of a healthy run of a packaged recipe, which tests hold against the rules of the watchdog.

    python -m tools.healthy_runs STAGE_FOLDER RECIPE "PROCESSOR, COMMIT, WHAT WAS CHANGED"

STAGE_FOLDER is that of a stage of RL, such as runs/NAME/rl. The file holds all metrics but times and rates, with three
digits, one metric a line; one that never changes is a single number.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ansatz import files
from ansatz.track.jsonl import Row, read_jsonl

FOLDER = Path(__file__).parents[1] / "tests" / "track" / "healthy_runs"
LEFT_OUT = ("step", "seconds", "time/", "perf/")


def healthy_run(rows: Sequence[Row], *, recipe: str, origin: str) -> str:
    """Return the text of a file. rows: of every step, from the first on."""
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if not name.startswith(LEFT_OUT)]
    lines = [f"  {json.dumps(name)}: {json.dumps(_curve([row.get(name) for row in rows]))}" for name in names]
    head = f'{{"recipe": {json.dumps(recipe)},\n"origin": {json.dumps(origin)},\n"metrics": {{\n'
    return head + ",\n".join(lines) + "\n}}\n"


def _curve(values: Sequence[float | None]) -> list[float | None] | float | None:
    rounded = [None if value is None else float(f"{value:.3g}") for value in values]
    return rounded[0] if len(set(rounded)) == 1 else rounded


if __name__ == "__main__":
    stage, recipe, origin = sys.argv[1:]
    text = healthy_run(read_jsonl(Path(stage) / "metrics.jsonl"), recipe=recipe, origin=origin)
    files.write_text(FOLDER / f"{recipe}.json", text)
