"""The report of a run: one HTML file with its settings, what it learned, its curves and what changed.

A report can be written while the run is in progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ansatz.files import write_text
from ansatz.track.console import duration, measured_on, percent
from ansatz.track.figures import Panel, learning_curve, level_curve, panel_chart, panel_note, stage_panels
from ansatz.track.health import health_checks, section_of
from ansatz.track.jsonl import Row
from ansatz.track.overlap import overlap
from ansatz.track.page import both_widths, fill, page
from ansatz.track.report_changes import heldout_changes
from ansatz.track.runs import PipelineRun, StageRun, read_pipeline
from ansatz.track.svg import line_chart


def write_report(run_dir: Path, out: Path | None = None) -> Path:
    """Write the report, by default as report.html of the run folder, and return its path. Raise DataError if it is not
    a run folder."""
    run = read_pipeline(Path(run_dir))
    path = out or run.folder / "report.html"
    write_text(path, render(run))
    return path


def render(run: PipelineRun) -> str:
    """Return the whole page."""
    watchdog = section_of(run.config_text)
    stages = [
        (stage, *([draw_panel(stage, panel) for panel in panels] for panels in stage_panels(stage)), checks)
        for stage in run.stages
        if stage.metrics
        for checks in [health_checks(stage, watchdog)]
    ]
    body = fill(
        "report.html",
        run=run,
        **_describe_ends(run),
        splits=[_describe_split(run, split) for split in run.splits()],
        changed={split: heldout_changes(run, split) for split in run.splits()},
        stages=stages,
        files=[f"{split}: {_origin(file)}" for split, files in run.files.items() for file in files],
    )
    return page(f"{run.name} - Ansatz report", [body])


def _describe_ends(run: PipelineRun) -> dict[str, Any]:
    """Return the lede, the tiles and the state of the head of the page."""
    rows = [row for row in run.evaluations() if row["split"] == next(iter(run.splits()))]
    lede = "No evaluation yet."
    tiles: list[tuple[str, str]] = []
    if rows:
        first, last = rows[0], rows[-1]
        start, end = percent(first["pass@1"]), percent(last["pass@1"])
        lede = f"pass@1 on held-out problems: {start} at the start, {end} at the end."
        ends = {row["stage"]: row for row in rows}
        tiles += [(percent(row["pass@1"]), f"pass@1 after {stage}, step {row['step']}") for stage, row in ends.items()]
        if last["greedy"] is not None:
            tiles.append((percent(last["greedy"]), "greedy at the end"))
    tiles.append((duration(run.seconds), "wall time" if run.summary else "wall time of the steps so far"))
    state = f"Trained model: {run.summary['model']}" if "model" in run.summary else ""
    if (best := next((stage.best for stage in reversed(run.stages) if stage.best), None)) is not None:
        state += (
            f". Best checkpoint by held-out pass@1: {best['stage']}/checkpoints/step-{best['step']:06d} "
            f"({percent(best['pass@1'])}; as the best of several evaluations on the same problems, a little optimistic)"
        )
    if not run.summary:
        state = "The run is still in progress; this is its state so far."
    return {"lede": lede, "tiles": tiles, "state": state}


def _describe_split(run: PipelineRun, split: str) -> dict[str, Any]:
    """Return what the page says about a split. moments: the first evaluation of the run and the last of each stage."""
    rows = [row for row in run.evaluations() if row["split"] == split]
    ends = _stage_ends(rows)
    moments = ends if rows[0] in ends else [rows[0], *ends]
    curve = level_curve(run, split)
    levels = list(dict.fromkeys(level for row in moments for level in row.get("by_level", {})))
    numbers = {level: [row.get("by_level", {}).get(level) for row in moments] for level in levels}
    return {
        "split": split,
        "about": _describe_problems(run, rows),
        "hero": both_widths(learning_curve(run, split)),
        "levels": curve and both_widths(curve),
        "k": next((row["k"] for row in rows if "k" in row), "k"),
        "rows": rows,
        "ends": ends,
        "measured": _describe_measurement(rows),
        "moments": [f"{row['stage']}, step {row['step']}" for row in moments],
        "by_level": [(level, _count_problems(of), of) for level, of in numbers.items()],
    }


def _count_problems(numbers: Sequence[Row | None]) -> int | str:
    """Return the number of problems in the last evaluation that says it."""
    return next((each["num_problems"] for each in reversed(numbers) if each and "num_problems" in each), "-")


def draw_panel(stage: StageRun, panel: Panel) -> tuple[str, Markup, str, str]:
    """Return the title, the chart, the healthy range, and what a change means."""
    return panel.title, Markup(line_chart(panel_chart(stage, panel))), *panel_note(panel)


def _describe_problems(run: PipelineRun, rows: Sequence[Row]) -> str:
    """Return whether the model was trained on the problems too, as far as their questions tell."""
    found = overlap(run.folder, problems=max(row.get("num_problems", 0) for row in rows))
    return "Accuracy on held-out problems." + (f" {found.sentence()}" if found else "")


def _origin(file: Row) -> str:
    """Return one line: what a problem file was decontaminated against, and how many rows that removed."""
    reports = [
        f"decontaminated{_by_rule(report)} against {', '.join(report['against'])}, {report['dropped']} of "
        f"{report['rows']} rows removed"
        for report in file["decontaminated"]
    ]
    return f"{file['path']}: {'; '.join(reports) or 'no decontamination report'}"


def _by_rule(report: Row) -> str:
    """Return the rule, if it is that of n-grams."""
    return f" by {report['ngram']}-grams" if report.get("rule") == "ngram" else ""


def _describe_measurement(rows: Sequence[Row]) -> str:
    where = measured_on(rows)
    return where and f"{where}. Intervals by bootstrap over problems. Bold: the last evaluation of a stage."


def _stage_ends(rows: Sequence[Row]) -> list[Row]:
    return list({row["stage"]: row for row in rows}.values())
