"""The report of a run: one HTML file with its settings, what it learned, its curves and what changed.

A report can be written while the run is in progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ansatz.config.watchdog import WatchdogSection
from ansatz.files import write_text
from ansatz.track.console import duration, measured_on, percent
from ansatz.track.figures import Panel, learning_curve, level_curve, panel_chart, panel_note, stage_panels
from ansatz.track.health import health_checks, section_of
from ansatz.track.jsonl import Row
from ansatz.track.overlap import overlap
from ansatz.track.page import both_widths, header, page, table, text
from ansatz.track.report_changes import heldout_changes
from ansatz.track.rollbacks import Event
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
    body = [_header(run)]
    body += [_split(run, split) for split in run.splits()]
    body += [heldout_changes(run, split) for split in run.splits()]
    watchdog = section_of(run.config_text)
    body += [_stage(stage, watchdog) for stage in run.stages if stage.metrics]
    body += [_events(stage) for stage in run.stages if stage.events]
    body += [_files(run), _config(run)]
    return page(f"{run.name} - Ansatz report", body)


def _header(run: PipelineRun) -> str:
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
    cells = "".join(
        f'<div class="card tile"><b>{text(big)}</b><span>{text(small)}</span></div>' for big, small in tiles
    )
    state = f"Trained model: {run.summary['model']}" if "model" in run.summary else ""
    if (best := next((stage.best for stage in reversed(run.stages) if stage.best), None)) is not None:
        state += (
            f". Best checkpoint by held-out pass@1: {best['stage']}/checkpoints/step-{best['step']:06d} "
            f"({percent(best['pass@1'])}; as the best of several evaluations on the same problems, a little optimistic)"
        )
    if not run.summary:
        state = "The run is still in progress; this is its state so far."
    return header("Ansatz report", run.name, lede, f'<div class="tiles">{cells}</div><p class="soft">{text(state)}</p>')


def _split(run: PipelineRun, split: str) -> str:
    rows = [row for row in run.evaluations() if row["split"] == split]
    hero = learning_curve(run, split)
    levels = level_curve(run, split)
    return (
        f"<section><h2>What was learned: {text(split)}</h2>"
        f"<p>{text(_describe_problems(run, rows))} Stages and their steps go from left to right.</p>"
        f'<div class="card full">{both_widths(hero)}</div>'
        + (f'<div class="card full"><h3>pass@1 by level</h3>{both_widths(levels)}</div>' if levels else "")
        + _results(rows)
        + (_by_level(rows) if levels else "")
        + "</section>"
    )


def _describe_problems(run: PipelineRun, rows: Sequence[Row]) -> str:
    """Return whether the model was trained on the problems too, as far as their questions tell."""
    found = overlap(run.folder, problems=max(row.get("num_problems", 0) for row in rows))
    return "Accuracy on held-out problems." + (f" {found.sentence()}" if found else "")


def _results(rows: Sequence[Row]) -> str:
    k = next((row["k"] for row in rows if "k" in row), "k")
    heads = ("stage", "step", "pass@1", "95 % interval", "greedy", f"pass@{k}", f"maj@{k}", "length", "truncated")
    ends = _stage_ends(rows)
    lines: list[str] = []
    for row in rows:
        cells = (
            str(row["step"]),
            percent(row["pass@1"]),
            _interval(row),
            *(percent(row[name]) for name in ("greedy", "pass@k", "maj@k")),
            f"{row['mean_length']:.1f}",
            percent(row["truncated_frac"]),
        )
        mark = ' class="result"' if row in ends else ""
        cell_text = "".join(f"<td>{text(cell)}</td>" for cell in cells)
        lines.append(f'<tr{mark}><th scope="row">{text(row["stage"])}</th>{cell_text}</tr>')
    return table("Every evaluation", heads, lines, _describe_measurement(rows))


def _by_level(rows: Sequence[Row]) -> str:
    """Return the first evaluation of the run and the last one of each stage, level by level."""
    ends = _stage_ends(rows)
    chosen = ends if rows[0] in ends else [rows[0], *ends]
    levels = list(dict.fromkeys(level for row in chosen for level in row.get("by_level", {})))
    heads = ("level", "problems", *(f"{row['stage']}, step {row['step']}" for row in chosen))
    lines: list[str] = []
    for level in levels:
        numbers = [row.get("by_level", {}).get(level) for row in chosen]
        counts = (each["num_problems"] for each in reversed(numbers) if each and "num_problems" in each)
        count = next(counts, "-")
        cells = "".join(_level_cell(each) for each in numbers)
        lines.append(f'<tr><th scope="row">{text(level)}</th><td>{count}</td>{cells}</tr>')
    return table("Before and after, by level", heads, lines, "pass@1, its 95 % interval, and greedy accuracy.")


def _level_cell(numbers: Row | None) -> str:
    if not numbers:
        return "<td>-</td>"
    greedy = f"greedy {percent(numbers['greedy'])}"
    return f"<td>{percent(numbers['pass@1'])}<small>{_interval(numbers)}</small><small>{greedy}</small></td>"


def _stage(stage: StageRun, watchdog: WatchdogSection) -> str:
    main, others = stage_panels(stage)
    marks = "".join(
        f'<li class="{"fine" if check.fine else "warn"}"><b>{"✓" if check.fine else "!"} {text(check.title)}</b> '
        f"{text(check.text)}</li>"
        for check in health_checks(stage, watchdog)
    )
    more = (
        f"<details><summary>All other curves ({len(others)})</summary>"
        f'<div class="grid">{"".join(_panel(stage, panel) for panel in others)}</div></details>'
        if others
        else ""
    )
    return (
        f"<section><h2>Curves: {text(stage.name)}</h2>"
        f"<p>{stage.last_step} steps in {duration(stage.seconds)}. Faint lines show every step, bold lines a running "
        "mean. Dotted lines mark the edge of the healthy range.</p>"
        + (f'<ul class="health_checks">{marks}</ul>' if marks else "")
        + f'<div class="grid">{"".join(_panel(stage, panel) for panel in main)}</div>{more}</section>'
    )


def _events(stage: StageRun) -> str:
    """Return what the run did by itself, in order."""
    lines = [
        f'<tr><th scope="row">{event.row["step"]}</th><td>{text(event.row["kind"].replace("_", " "))}</td>'
        f'<td class="prose">{text(event.row["text"])}</td><td>{_describe_dropped(event)}</td></tr>'
        for event in stage.events
    ]
    note = "Alarms come from the rules of the watchdog (docs/watchdog.md). Curves show only the steps that count."
    rows = table("In the order in which they happened", ("step", "event", "what happened", ""), lines, note)
    return f"<section><h2>Events: {text(stage.name)}</h2>{rows}</section>"


def _describe_dropped(event: Event) -> str:
    return f"dropped by rollback {event.dropped_by}" if event.dropped_by else ""


def _panel(stage: StageRun, panel: Panel) -> str:
    healthy, meaning = panel_note(panel)
    note = (
        f"<p><b>Healthy:</b> {text(healthy)}.</p><details><summary>What a change means</summary>"
        f"<p>{text(meaning)}</p></details>"
        if healthy
        else ""
    )
    return f'<div class="card"><h3>{text(panel.title)}</h3>{line_chart(panel_chart(stage, panel))}{note}</div>'


def _files(run: PipelineRun) -> str:
    lines = [f"<li>{text(f'{split}: {_origin(file)}')}</li>" for split, files in run.files.items() for file in files]
    lines += [_list_left_out(split, rows) for split, rows in run.unfit.items()]
    return f"<section><h2>What was trained on</h2><ul>{''.join(lines)}</ul></section>" if lines else ""


def _list_left_out(split: str, rows: Sequence[Row]) -> str:
    """Return the rows of a split that could not be used, folded up."""
    items = "".join(f"<li>{text(row['place'])}: gold {text(row['gold'])}: {text(row['reason'])}</li>" for row in rows)
    head = f"{split}: {len(rows)} rows that cannot be used were left out (data.unfit: drop)"
    return f"<li><details><summary>{text(head)}</summary><ul>{items}</ul></details></li>"


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


def _config(run: PipelineRun) -> str:
    if not run.config_text:
        return ""
    return (
        "<section><h2>What was run</h2><details><summary>The resolved recipe (config.yaml)</summary>"
        f'<div class="card"><pre>{text(run.config_text)}</pre></div></details></section>'
    )


def _describe_measurement(rows: Sequence[Row]) -> str:
    where = measured_on(rows)
    return where and f"{where}. Intervals by bootstrap over problems. Bold: the last evaluation of a stage."


def _stage_ends(rows: Sequence[Row]) -> list[Row]:
    return list({row["stage"]: row for row in rows}.values())


def _interval(row: Row) -> str:
    low, high = row["pass@1_interval"]
    return f"{percent(low)} to {percent(high)}"
