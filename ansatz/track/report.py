"""The report of a run: one HTML file with its settings, its scores, its curves and the responses that changed.

A report can be written while the run is in progress. The viewer shows the same things on several pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansatz.errors import DataError
from ansatz.files import write_text
from ansatz.json_text import read_object
from ansatz.track.base import parts_of
from ansatz.track.console import measured_on
from ansatz.track.figures import learning_curve, level_curve, stage_charts
from ansatz.track.health import checks_of
from ansatz.track.jsonl import read_jsonl
from ansatz.track.overlap import overlap
from ansatz.track.page import fill
from ansatz.track.runs import PipelineRun, read_pipeline
from ansatz.track.stored_evaluations import compare_ends, stored_evaluations
from ansatz.types import Problem, problem_from_json

MAX_RECORD_BYTES = 1 << 22
"""The size of a run.json that is read."""


def write_report(run_dir: Path, out: Path | None = None) -> Path:
    """Write the report, by default as report.html of the run folder, and return its path. Raise DataError if it is not
    a run folder."""
    run = read_pipeline(Path(run_dir))
    path = out or run.folder / "report.html"
    write_text(path, render(run))
    return path


def render(run: PipelineRun) -> str:
    """Return the whole page."""
    return fill(
        "report.html",
        run=run,
        splits=describe_splits(run),
        overlap=overlap(run.folder, problems=max((row.get("num_problems", 0) for row in run.evaluations()), default=0)),
        problems={split: _read_problems(run.folder / "problems" / f"{split}.jsonl") for split in run.splits()},
        stages=[(stage, *stage_charts(stage)) for stage in run.stages if stage.metrics],
        checks=checks_of(run),
        **read_record(run.folder),
    )


def describe_splits(run: PipelineRun) -> list[dict[str, Any]]:
    """Return the values that pages show for each split. moments: the first evaluation of the run and the last of each
    stage. changes: see `compare_ends`."""
    out: list[dict[str, Any]] = []
    for split in run.splits():
        rows = [row for row in run.evaluations() if row["split"] == split]
        ends = list({row["stage"]: row for row in rows}.values())
        moments = ends if rows[0] in ends else [rows[0], *ends]
        parts = dict.fromkeys(name for row in moments for name in parts_of(row))
        stored = [each for each in stored_evaluations(run) if each.split == split]
        out.append(
            {
                "split": split,
                "rows": rows,
                "ends": ends,
                "measured": measured_on(rows),
                "curve": learning_curve(run, split),
                "level_curve": level_curve(run, split),
                "moments": [f"{row['stage']}, step {row['step']}" for row in moments],
                "by_part": {name: [parts_of(row).get(name) for row in moments] for name in parts},
                "stored": stored,
                "changes": compare_ends(stored),
            }
        )
    return out


def read_record(folder: Path) -> dict[str, Any]:
    """Return the content of run.json as `facts`, and as `notice` why it cannot be read."""
    path = folder / "run.json"
    if not path.is_file() or path.stat().st_size > MAX_RECORD_BYTES:
        return {"facts": {}, "notice": ""}
    try:
        return {"facts": read_object(path, error=DataError, advice="The recipe is that of config.yaml."), "notice": ""}
    except DataError as error:
        return {"facts": {}, "notice": str(error)}


def _read_problems(path: Path) -> Mapping[str, Problem]:
    """Return the problems of a split by id, as the run has stored them; empty if the file is missing."""
    try:
        return {row["id"]: problem_from_json(row) for row in read_jsonl(path)}
    except (KeyError, TypeError) as error:
        raise DataError(f"{path} was changed since it was written ({error}). Restore or remove it.") from error
