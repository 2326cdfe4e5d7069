"""The pages of the viewer about whole runs and their steps: a template and the values that fill it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from starlette.datastructures import QueryParams
from starlette.responses import Response

from ansatz.data.pairs import REJECTED
from ansatz.data.store import read_problems
from ansatz.links import is_own_file, open_file, read_text
from ansatz.track.base import LOG
from ansatz.track.console import event_line
from ansatz.track.figures import Drawn, Panel, panel_chart, stage_charts
from ansatz.track.filters import All, Compare
from ansatz.track.jsonl import Row
from ansatz.track.report import describe_splits, read_record
from ansatz.track.report_of_sweep import describe_sweep
from ansatz.track.rollout_table import FIELDS, TRAIN, read_questions
from ansatz.track.runs import SHOWN_TEXTS, StageRun
from ansatz.track.step_files import EVALUATIONS, SAMPLES
from ansatz.track.sweep_rows import begin_of_run
from ansatz.track.word_diff import word_diff
from ansatz.ui.library import Library, RunSummary
from ansatz.ui.open_run import NotFound, OpenRun, Page
from ansatz.ui.response import WORDS
from ansatz.ui.response_pages import RESPONSE_PAGES, SAVED, draw_bins, group_place, read_number
from ansatz.visible import visible

PAIRS, PAGE_PAIRS = "pairs.jsonl", 20
"""The file of a stage with the pairs of responses that it learned from, and how many a page shows."""
MAX_OF_STEP = 20_000
"""Responses of a step that its page shows, those of the first groups."""
MAX_LOG_BYTES, MAX_LOG_LINES = 1 << 22, 1000
"""How much of the end of a log is read, and how many of its lines a page shows."""
LOG_LINE = re.compile(r"\n(?=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  )")
"""Where a line of a log begins."""


RUN_ORDERS: Mapping[str, Callable[[RunSummary], Any]] = {
    "run": lambda run: run.name,
    "state": lambda run: run.state,
    "date": lambda run: run.begun,
    "pass@1": lambda run: (run.ends[1]["pass@1"] if run.ends else None) or 0.0,
    "wall time": lambda run: run.run.seconds if run.run else 0.0,
}
"""The columns that the list of runs can be sorted by, and the sort key of each."""


def routes(library: Library) -> dict[str, Callable[..., Page | Response]]:
    """Return the functions that make the pages, by address. at: the run that it names. query: its parameters."""
    return {
        **RESPONSE_PAGES,
        "/": partial(show_runs, library),
        "/help": show_help,
        "/compare": partial(compare, library),
        "/sweep/{name}": partial(show_sweep, library),
        "/sweep/{name}/rows.jsonl": partial(export_rows, library),
        "/run/{run}": show_overview,
        "/run/{run}/metrics": show_metrics,
        "/run/{run}/health": show_health,
        "/run/{run}/recipe": show_recipe,
        "/run/{run}/logs": show_logs,
        "/run/{run}/step/{stage}/{step:int}": show_step,
        "/run/{run}/pairs/{stage}": show_pairs,
        "/api/state": partial(report_state, library),
        "/api/run/{run}/state": partial(report_state, library),
    }


def show_runs(library: Library, query: Mapping[str, str]) -> Page:
    runs = [library.summarise(name, path) for name, path in library.find_runs().items()]
    order = query.get("sort", "-date")
    if (key := RUN_ORDERS.get(order.removeprefix("-"))) is not None:
        runs.sort(key=key, reverse=order.startswith("-"))
    return "runs.html", {
        "order": order,
        "runs": runs,
        "sweeps": list(library.find_sweeps()),
        "folders": library.folders,
        "live": {"address": "/api/state", **library.describe_state()},
    }


def show_help(query: Mapping[str, str]) -> Page:
    return "help.html", {"fields": FIELDS, "saved": SAVED}


def show_overview(at: OpenRun, query: Mapping[str, str]) -> Page:
    run = at.read()
    events = [(stage.name, event) for stage in run.stages for event in stage.events]
    sampled = [stage for stage in run.stages if stage.curve("rollout/rewards")]
    return "overview.html", {
        **at.context("overview"),
        "splits": describe_splits(run),
        "asked": read_questions(at.path),
        "has_responses": any((of.folder / name).is_dir() for of in run.stages for name in (SAMPLES, EVALUATIONS)),
        "paired": [stage.name for stage in run.stages if (stage.folder / PAIRS).is_file()],
        "curves": _draw_reading(sampled[-1]) if sampled else [],
        "checks": [(stage, each) for stage, found in at.summary.checks.items() for each in found if not each.fine],
        "events": events,
        "stages": run.stages,
    }


def show_metrics(at: OpenRun, query: Mapping[str, str]) -> Page:
    first, last = read_number(query.get("from", "")) or 0, read_number(query.get("to", ""))
    found = (_cut(stage, first, last) for stage in at.read().stages)
    stages = [(stage, *stage_charts(stage)) for stage in found if stage.metrics]
    return "metrics.html", {**at.context("metrics"), "stages": stages, "first": first, "last": last}


def show_health(at: OpenRun, query: Mapping[str, str]) -> Page:
    at.read()
    return "health.html", {**at.context("health"), "checks": at.summary.checks}


def show_recipe(at: OpenRun, query: Mapping[str, str]) -> Page:
    texts = {"text": at.read().config_text, "shown": _read_shown(at.path)}
    return "recipe.html", {**at.context("recipe"), **texts, **read_record(at.path)}


def show_logs(at: OpenRun, query: Mapping[str, str]) -> Page:
    log, is_whole = _read_log(at.path / LOG)
    lines = _merge(log, at.read().stages)
    text = query.get("q", "")
    shown = [line for line in lines if text.casefold() in " ".join(map(str, line)).casefold()]
    found = {"lines": shown[:MAX_LOG_LINES], "total": len(shown), "all": len(lines), "q": text}
    return "logs.html", {**at.context("logs"), **found, "is_whole": is_whole}


def show_step(at: OpenRun, stage: str, step: int, query: Mapping[str, str]) -> Page:
    tree = All((Compare("stage", "=", stage), Compare("step", "=", step), Compare("split", "=", TRAIN)))
    what = f"responses of step {step} of {stage!r}"
    found = at.select(tree, limit=MAX_OF_STEP, what=what, whole="group")
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in found.rows:
        groups.setdefault(row["group"], []).append(row)
    run = next(each for each in at.read().stages if each.name == stage)
    steps = [number for number, _ in run.sample_files()]
    metrics = next((row for row in run.metrics if row["step"] == step), {})
    bins = at.index.summarise(tree, numbers=("tokens",)).bins["tokens"]
    return "step.html", {
        **at.context("step"),
        "stage": stage,
        "step": step,
        "groups": groups,
        "shown": len(found.rows),
        "total": found.total,
        "before": max((each for each in steps if each < step), default=None),
        "after": min((each for each in steps if each > step), default=None),
        "metrics": {key: value for key, value in metrics.items() if key not in ("step", "seconds")},
        "lengths": draw_bins(bins),
        "ends": (bins[0][0], bins[-1][1]) if bins else (),
        "group_place": group_place,
    }


def show_pairs(at: OpenRun, stage: str, query: Mapping[str, str]) -> Page:
    path = next((each.folder / PAIRS for each in at.read().stages if each.name == stage), at.path / PAIRS)
    if not path.is_file():
        raise NotFound(f"the run {at.name!r} stores no pairs of {stage!r}.")
    pairs = read_problems(path)
    page = max(1, read_number(query.get("page", "")) or 1)
    shown = pairs[PAGE_PAIRS * (page - 1) : PAGE_PAIRS * page]
    diffs = [word_diff(str(pair.meta.get(REJECTED, pair.solution)), pair.solution or "") for pair in shown]
    return "pairs.html", {
        **at.context("pairs"),
        "stage": stage,
        "total": len(pairs),
        "pairs": [(pair, *diff) for pair, diff in zip(shown, diffs, strict=True)],
        "page": page,
        "pages": max(1, -(-len(pairs) // PAGE_PAIRS)),
    }


def compare(library: Library, query: QueryParams) -> Page:
    from ansatz.evaluate.comparisons import compare_runs
    from ansatz.track.report_of_runs import describe_runs

    wanted = list(dict.fromkeys(filter(None, ",".join(query.getlist("runs")).split(","))))
    known = library.find_runs()
    if len(wanted) < 2 or not known.keys() >= set(wanted):
        raise NotFound(f"compare two or more of the runs {', '.join(known)}: /compare?runs=A,B.")
    runs = [OpenRun.find(library, name).read() for name in wanted]
    comparisons = compare_runs([known[name] for name in wanted])
    return "compare.html", describe_runs(runs, wanted, comparisons=comparisons)


def export_rows(library: Library, name: str, query: Mapping[str, str]) -> Response:
    return Response(read_text(_find_sweep(library, name)), media_type="application/jsonl")


def show_sweep(library: Library, name: str, query: Mapping[str, str]) -> Page:
    runs = list(library.find_runs())

    def find_run(row: Row) -> str:
        """Return the name of a cell's run; empty if it is not there any more, or if several could be it."""
        begin = f"block-{row['block']:04d}-{begin_of_run(row['arm'], row['times'])}"
        found = [run for run in runs if run.rpartition("-")[0] == begin]
        return found[0] if len(found) == 1 else ""

    return "sweep.html", {**describe_sweep(_find_sweep(library, name), query.get("outcome", "")), "find_run": find_run}


def _find_sweep(library: Library, name: str) -> Path:
    known = library.find_sweeps()
    if name not in known:
        raise NotFound(f"{name!r} is not a sweep. The sweeps are {', '.join(known) or 'none'}.")
    return known[name]


def report_state(library: Library, query: Mapping[str, str], at: OpenRun | None = None) -> Response:
    """Return how far a run is, or all runs."""
    return Response(json.dumps(library.describe_state([at.name] if at else [])), media_type="application/json")


def _cut(stage: StageRun, first: int, last: int | None) -> StageRun:
    """Return the stage with the metrics of some of its steps."""
    if not first and last is None:
        return stage
    rows = tuple(row for row in stage.metrics if first <= row["step"] <= (row["step"] if last is None else last))
    return replace(stage, metrics=rows)


def _draw_reading(stage: StageRun) -> list[Drawn]:
    """Return the curves to read first, as far as the stage has them."""
    panels = [Panel(**row) for row in WORDS["reading"]]
    return [panel_chart(stage, each) for each in panels if any(stage.curve(name) for name, _ in each.metrics)]


def _read_shown(run: Path) -> str:
    path = run / SHOWN_TEXTS
    return read_text(path, errors="replace") if is_own_file(path) else ""


def _read_log(path: Path) -> tuple[list[str], bool]:
    """Return the newest lines of a log with their times, from the first whole one on, and whether these are all; none
    without a log. A line that has no time belongs to the one before it."""
    if not is_own_file(path):  # a link could lead to any file of this machine
        return [], True
    with open_file(path) as file:
        file.seek(max(os.fstat(file.fileno()).st_size - MAX_LOG_BYTES, 0))
        start, text = file.tell(), file.read().decode("utf-8", errors="replace")
    return [line for line in LOG_LINE.split(text.rstrip("\n"))[1 if start else 0 :] if line], not start


def _merge(log: Sequence[str], stages: Sequence[StageRun]) -> list[tuple[str, str, str]]:
    """Return (time, text, event) of the lines of a log, the newest first, then the events that it does not have."""
    events: dict[str, list[str]] = {}
    for name, event in ((stage.name, event) for stage in stages for event in stage.events):
        line = visible(event_line(name, event.row["step"], event.row["text"]))
        dropped = f", dropped by rollback {event.dropped_by}" if event.dropped_by else ""
        events.setdefault(line, []).append(f"event: {event.row['kind'].replace('_', ' ')}{dropped}")
    timed = [(time, text) for time, _, text in (line.partition("  ") for line in reversed(log))]
    merged = [(time, text, events[text].pop() if events.get(text) else "") for time, text in timed]
    return merged + [("", text, event) for text in reversed(events) for event in reversed(events[text])]
