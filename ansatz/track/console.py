"""What the user sees during a run: a progress bar on a terminal, otherwise a plain line every few seconds.

`log.txt` in the run folder holds the plain lines in both cases.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ansatz.files import read_yaml
from ansatz.track.base import ConsoleSink, Evaluation
from ansatz.visible import visible

LOG = "log.txt"
"""The file of a run folder with the lines of its console."""
HEADLINES: dict[str, str] = read_yaml(Path(__file__).with_name("headlines.yaml"))
"""Metric -> short label, in the order shown. A step shows the first few of those that it has."""


class SafeConsole(Console):
    """A console that shows control characters instead of sending them to the terminal, and reads no markup: names of
    levels, subjects and folders can contain brackets. Its own colours and cursor movements stay."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False)

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(visible(text), **how)  # before the layout, which counts characters

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def open_console(console: Console | None = None, *, log: Path | None = None) -> ConsoleSink:
    """Return the sink for this output: live on a terminal, plain lines in a pipe, a log file or a notebook.

    log: a file that gets the plain lines too, each with its time.
    """
    target = console or SafeConsole()
    live = target.is_terminal and not target.is_dumb_terminal
    plain = PlainConsole(partial(target.print, markup=False, highlight=False, soft_wrap=True))
    shown = LiveConsole(target) if live else plain
    return shown if log is None else cast("ConsoleSink", _Both(shown, PlainConsole(partial(_append, log))))


def _append(path: Path, text: str) -> None:
    """Append a line to a log. A full disk does not end the run for it."""
    with suppress(OSError), path.open("a", encoding="utf-8") as file:
        file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}  {visible(text)}\n")


def event_line(stage: str, step: int, text: str) -> str:
    """Return the line of an event."""
    return f"{stage}  step {step}: {text}"


class _Both:
    """Two sinks as one: it has the methods of `ConsoleSink`, and each calls those of both sinks."""

    def __init__(self, *sinks: ConsoleSink) -> None:
        self._sinks = sinks

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call_each(*arguments: Any, **settings: Any) -> None:
            for sink in self._sinks:
                getattr(sink, name)(*arguments, **settings)

        return call_each


class PlainConsole:
    """At most one line every `every_s` seconds, and always one for the first step, the last step and evaluations.

    write: takes each line.
    """

    def __init__(
        self, write: Callable[[str], None], *, every_s: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._every_s = every_s
        self._clock = clock
        self._pace = Pace(clock)
        self._stage = ""
        self._shown: float | None = None

    def note(self, text: str) -> None:
        self._write(text)

    def begin(self, stage: str, *, total_steps: int) -> None:
        self._stage, self._pace, self._shown = stage, Pace(self._clock, total_steps), None

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._pace.step(step)
        now = self._clock()
        if self._shown is not None and now - self._shown < self._every_s and step != self._pace.total:
            return
        self._shown = now
        self._line(f"step {step}/{self._pace.total}  {self._pace.text()}  {headline(metrics)}")

    def evaluation(self, row: Evaluation) -> None:
        self._line(evaluation_line(row))

    def event(self, step: int, text: str) -> None:
        self._write(event_line(self._stage, step, text))

    def end(self) -> None:
        self._stage = ""

    def _line(self, text: str) -> None:
        self._write(f"{self._stage}  {text}")


class LiveConsole:
    """A progress bar for the current stage, with rate, remaining time and as many numbers as fit the terminal."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._pace = Pace(clock)
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._stage = ""

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def begin(self, stage: str, *, total_steps: int) -> None:
        self.end()
        self._stage, self._pace = stage, Pace(self._clock, total_steps)
        if total_steps == 0:  # a stage that only evaluates has no progress to show
            return
        self._progress = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(bar_width=24 if self._console.width >= 100 else 8),
            MofNCompleteColumn(),
            TextColumn("{task.fields[pace]}", style="dim", markup=False),
            TextColumn("{task.fields[numbers]}", markup=False),
            console=self._console,
        )
        self._task = self._progress.add_task(stage, total=total_steps, pace="", numbers="")
        self._progress.start()

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._progress is not None:
            self._pace.step(step)
            limit = max(1, min(5, (self._console.width - 50) // 17))
            numbers = headline(metrics, limit=limit)
            self._progress.update(self._task, completed=step, pace=self._pace.text(), numbers=numbers)

    def evaluation(self, row: Evaluation) -> None:
        self._console.print(f"{self._stage}  {evaluation_line(row)}", markup=False, highlight=False)

    def event(self, step: int, text: str) -> None:
        self._console.print(event_line(self._stage, step, text), markup=False, highlight=False)

    def end(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


class Pace:
    """Rate and remaining time, from the last steps only, so that warm-up and evaluations soon leave the average."""

    WINDOW = 20

    def __init__(self, clock: Callable[[], float], total: int = 0) -> None:
        self.total = total
        self._clock = clock
        self._marks: list[tuple[int, float]] = []
        self._began = clock()

    def step(self, step: int) -> None:
        if not self._marks:
            self._marks.append((step - 1, self._began))
        self._marks = [*self._marks, (step, self._clock())][-self.WINDOW - 1 :]

    def text(self) -> str:
        (first, start), (last, now) = self._marks[0], self._marks[-1]
        seconds = max((now - start) / max(last - first, 1), 1e-9)
        rate = f"{seconds:.1f} s/step" if seconds >= 1 else f"{1 / seconds:.1f} step/s"
        return f"{rate}, {duration(seconds * max(self.total - last, 0))} left"


def headline(metrics: Mapping[str, float], *, limit: int = 5) -> str:
    """Return the most important numbers of a step, as in "reward 0.531  length 41.2"."""
    present = [name for name in HEADLINES if name in metrics][:limit]
    return "  ".join(f"{HEADLINES[name]} {short_number(metrics[name])}" for name in present)


def evaluation_line(row: Evaluation) -> str:
    low, high = row["pass@1_interval"]
    k = row.get("k", "k")
    return (
        f"evaluation at step {row['step']} ({row['split']}): pass@1 {percent(row['pass@1'])} "
        f"[{percent(low)}, {percent(high)}]  greedy {percent(row['greedy'])}  "
        f"pass@{k} {percent(row['pass@k'])}  maj@{k} {percent(row['maj@k'])}"
    )


def results_table(evaluations: Sequence[Evaluation]) -> Group:
    """Return one row per evaluation, and below it pass@1 and greedy by level if the problems have levels. All in per
    cent.

    Both tables fit a terminal of 80 columns with up to five levels.
    """
    k = next((row["k"] for row in evaluations if "k" in row), "k")
    heads = ("step", "pass@1 [95 % interval]", "greedy", f"pass@{k}", f"maj@{k}", "length", "truncated")
    overall = _table("Held-out problems, %", heads)
    for row in evaluations:
        low, high = row["pass@1_interval"]
        overall.add_row(
            Text(str(row["stage"])),
            str(row["step"]),
            f"{_percent(row['pass@1'])} [{_percent(low)}, {_percent(high)}]",
            *(_percent(row[name]) for name in ("greedy", "pass@k", "maj@k")),
            f"{row['mean_length']:.1f}",
            _percent(row["truncated_frac"]),
        )
    overall.caption = measured_on(evaluations)
    levels = list(dict.fromkeys(level for row in evaluations for level in row.get("by_level", {})))
    if not levels:
        return Group(overall)
    by_level = _table("By level: pass@1 / greedy, %", ("step", *(f"level {level}" for level in levels)))
    for row in evaluations:
        numbers = [row.get("by_level", {}).get(level, {}) for level in levels]
        cells = (f"{_percent(each.get('pass@1'))} / {_percent(each.get('greedy'))}" for each in numbers)
        by_level.add_row(Text(str(row["stage"])), str(row["step"]), *cells)
    return Group(overall, "", by_level)


def measured_on(evaluations: Sequence[Evaluation]) -> str:
    """Return the problems, samples and temperature of most evaluations, and what differs in others. Empty if they say
    nothing."""
    places: dict[tuple[str, ...], list[str]] = {}
    for row in evaluations:
        numbers = [row.get(name) for name in ("num_problems", "samples_per_prompt", "temperature")]
        if None not in numbers:
            problems, samples, temperature = numbers
            texts = (f"{problems} problems", f"{samples} samples each", f"temperature {temperature:g}")
            places.setdefault(texts, []).append(f"{row['stage']} at step {row['step']}")
    if not places:
        return ""
    usual = max(places, key=lambda texts: len(places[texts]))
    others = [
        f"{' and '.join(where)}: {', '.join(text for text in texts if text not in usual)}"
        for texts, where in places.items()
        if texts != usual
    ]
    return "; ".join([", ".join(usual), *others])


def _table(title: str, heads: Sequence[str]) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        caption_justify="left",
        header_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        collapse_padding=True,
        show_edge=False,
        pad_edge=False,
    )
    table.add_column("stage", no_wrap=True)
    for head in heads:
        table.add_column(Text(head), justify="right", no_wrap=True)  # Text: brackets in a level are not markup
    return table


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def percent(fraction: float | None) -> str:
    """Write 0.8125 as "81.2 %" and None as "-"."""
    return "-" if fraction is None else f"{_percent(fraction)} %"


def short_number(value: float) -> str:
    """Write a number with about three significant digits, without an exponent where possible."""
    size = abs(value)
    if value == 0 or 1e-3 <= size < 100:
        return f"{value:.3g}" if size >= 1 else f"{value:.3f}"
    return f"{value:,.0f}" if 100 <= size < 1e7 else f"{value:.1e}"


def duration(seconds: float) -> str:
    """Write seconds as 42 s, 3:07 or 1:02:30."""
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    minutes, seconds_left = divmod(total, 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours}:{minutes_left:02d}:{seconds_left:02d}" if hours else f"{minutes}:{seconds_left:02d}"
