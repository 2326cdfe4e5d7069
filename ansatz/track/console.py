"""The output that the user sees during a run: a progress bar on a terminal, otherwise a plain line every few seconds.

`log.txt` in the run folder holds the plain lines in both cases.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ansatz.files import read_yaml
from ansatz.track.base import ConsoleSink, Evaluation, append_line
from ansatz.visible import visible

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
        width = (options or self.options).max_width
        if isinstance(renderable, Table) and _narrowest(renderable, self) > width:
            renderable = _as_lines(renderable)
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def _narrowest(table: Table, console: Console) -> int:
    """Return the width below which a table would cut or break words and numbers."""
    wide = console.options.update(width=10_000)
    least = Measurement.get(console, wide, table).minimum
    for column in filter(lambda column: column.no_wrap, table.columns):
        sizes = [Measurement.get(console, wide, cell) for cell in (column.header, *column.cells)]
        least += max(size.maximum for size in sizes) - max(size.minimum for size in sizes)
    return least


def _as_lines(table: Table) -> Text:
    """Return a table that is wider than the terminal as lines, a cell in each; the first of a row is its heading."""
    heads, *_ = rows = list(zip(*((column.header, *column.cells) for column in table.columns), strict=True))
    lines = [str(table.title)] if table.title else []
    for first, *cells in rows[1:]:
        lines.append(str(first))
        lines += [f"  {head}: {cell}" for head, cell in zip(heads[1:], cells, strict=True) if str(cell)]
    return Text("\n".join([*lines, *([str(table.caption)] if table.caption else [])]))


def open_console(console: Console | None = None, *, log: Path | None = None) -> ConsoleSink:
    """Return the sink for this output: live on a terminal, plain lines in a pipe, a log file or a notebook.

    log: a file that gets the plain lines too, each with its time.
    """
    target = console or SafeConsole()
    live = target.is_terminal and not target.is_dumb_terminal
    plain = PlainConsole(partial(target.print, markup=False, highlight=False, soft_wrap=True))
    shown = LiveConsole(target) if live else plain
    return shown if log is None else cast("ConsoleSink", _Both(shown, PlainConsole(partial(append_line, log))))


def event_line(stage: str, step: int, text: str) -> str:
    """Return the line of an event."""
    return f"{stage}  step {step}: {text}"


class _Both:
    """Two sinks as one: it has the methods of `ConsoleSink`, and each of them calls both sinks."""

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
        self._stages: Mapping[str, int | None] = {}
        self._shown: float | None = None
        self._told = clock()

    def note(self, text: str) -> None:
        self._write(text)

    def plan(self, text: str, stages: Mapping[str, int | None]) -> None:
        self._stages = stages
        self._write(text)

    def begin(self, stage: str, *, total_steps: int) -> None:
        self._stage, self._shown, self._told = stage, None, self._clock()
        self._pace = Pace(self._clock, total_steps, later=_name_later(stage, self._stages))

    def progress(self, text: str) -> None:
        now = self._clock()
        if now - max(self._told, self._shown or self._told) >= self._every_s:
            self._told = now
            self._line(text)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._pace.step(step)
        now = self._clock()
        if self._shown is not None and now - self._shown < self._every_s and step != self._pace.total:
            return
        word = word_on_loss(metrics) if self._shown is None else ""
        self._shown = now
        self._line(f"step {step}/{self._pace.total}  {self._pace.text()}  {headline(metrics)}{word}")

    def evaluation(self, row: Evaluation) -> None:
        self._line(evaluation_line(row))

    def event(self, step: int, text: str) -> None:
        self._write(event_line(self._stage, step, text))

    def end(self) -> None:
        self._stage = ""

    def _line(self, text: str) -> None:
        self._write(f"{self._stage}  {text}")


class LiveConsole(PlainConsole):
    """A progress bar for the current stage, with rate, remaining time and as many numbers as fit the terminal.

    Everything else is a line, as of `PlainConsole`.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(partial(console.print, markup=False, highlight=False))
        self._console = console
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def progress(self, text: str) -> None:
        if self._progress is None:
            super().progress(text)
        else:
            self._progress.update(self._task, numbers=text)

    def begin(self, stage: str, *, total_steps: int) -> None:
        self.end()
        super().begin(stage, total_steps=total_steps)
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
            if step == 1 and (word := word_on_loss(metrics)):
                self.event(step, word.strip(" ()"))
            self._pace.step(step)
            limit = max(1, min(5, (self._console.width - 50) // 17))
            numbers = headline(metrics, limit=limit)
            self._progress.update(self._task, completed=step, pace=self._pace.text(), numbers=numbers)

    def end(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


class Pace:
    """Rate and remaining time, from the last steps only, so that warm-up and evaluations soon leave the average.

    later: the stages after this one, in words. The time of their steps is not known before they begin.
    """

    WINDOW = 20

    def __init__(self, clock: Callable[[], float], total: int = 0, *, later: str = "") -> None:
        self.total, self._later = total, later
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
        return f"{rate}, {duration(seconds * max(self.total - last, 0))} left{self._later}"


def _name_later(stage: str, stages: Mapping[str, int | None]) -> str:
    """Return the stages after a stage in words, as in ", then rl (60 steps)"."""
    names = list(stages)
    rest = names[names.index(stage) + 1 :] if stage in stages else []
    return "".join(f", then {name}{f' ({stages[name]} steps)' if stages[name] else ''}" for name in rest)


def word_on_loss(metrics: Mapping[str, float]) -> str:
    """Return why the loss of a first step of RL is near 0; empty if it is not, and for other stages."""
    if "rollout/rewards" not in metrics or abs(metrics.get("train/loss", 1.0)) > 1e-3:
        return ""
    return "  (a loss near 0 is expected: advantages sum to 0 in a group, and the first ratio is 1; watch the reward)"


def headline(metrics: Mapping[str, float], *, limit: int = 5) -> str:
    """Return the most important numbers of a step, as in "reward 0.531  length 41.2"."""
    present = [name for name in HEADLINES if name in metrics][:limit]
    return "  ".join(f"{HEADLINES[name]} {short_number(metrics[name])}" for name in present)


def evaluation_line(row: Evaluation) -> str:
    means = [f"{name} {short_number(value)}" for name, value in row.get("rewards", {}).items()]
    sources = [f"{name}: {_score(numbers)}" for name, numbers in row.get("by_source", {}).items()]
    if row["pass@1"] is None:
        numbers = "  ".join([*means, *sources])
        return f"evaluation at step {row['step']} ({row['split']}): mean reward {_reward(row)}  {numbers}"
    low, high = row["pass@1_interval"]
    k = row.get("k", "k")
    numbers = [
        f"[{percent(low)}, {percent(high)}]",
        f"greedy {percent(row['greedy'])}",
        f"pass@{k} {percent(row['pass@k'])}",
        f"maj@{k} {percent(row['maj@k'])}",
        *(means if len(means) > 1 else ()),
        *sources,
    ]
    return f"evaluation at step {row['step']} ({row['split']}): pass@1 {percent(row['pass@1'])} {'  '.join(numbers)}"


def _score(numbers: Mapping[str, Any]) -> str:
    """Return pass@1 of a part of the problems; its mean reward if no reward grades them."""
    return f"{percent(numbers['pass@1'])}" if numbers.get("pass@1") is not None else f"mean reward {_reward(numbers)}"


def _reward(row: Evaluation) -> str:
    """Return the mean reward of an evaluation with its interval; "-" without one."""
    if row.get("reward") is None:
        return "-"
    interval = row.get("reward_interval")
    shown = f" [{short_number(interval[0])}, {short_number(interval[1])}]" if interval else ""
    return f"{short_number(row['reward'])}{shown}"


def _rewards_table(evaluations: Sequence[Evaluation]) -> Group:
    """Return one row per evaluation if no reward says which responses are correct: mean rewards instead of pass@1."""
    names = list(dict.fromkeys(name for row in evaluations for name in row.get("rewards", {})))
    names = names if len(names) > 1 else []
    table = _table(
        "Held-out problems (no reward says which responses are correct)",
        ("step", "mean reward [95 % interval]", *names, "length", "truncated in %"),
    )
    for row in evaluations:
        each = (short_number(row.get("rewards", {}).get(name, 0.0)) for name in names)
        length, cut = f"{row['mean_length']:.1f}", _percent(row["truncated_frac"])
        table.add_row(Text(str(row["stage"])), str(row["step"]), _reward(row), *each, length, cut)
    table.caption = measured_on(evaluations)
    return Group(table)


def results_table(evaluations: Sequence[Evaluation]) -> Group:
    """Return one row per evaluation, and below it pass@1 and greedy by level and source if the problems have several.
    All in per cent.

    Both tables fit a terminal of 80 columns with up to five levels.
    """
    if evaluations and all(row["pass@1"] is None for row in evaluations):
        return _rewards_table(evaluations)
    k = next((row["k"] for row in evaluations if "k" in row), "k")
    heads = ("step", "pass@1 [95 % interval]", "greedy", f"pass@{k}", f"maj@{k}", "length", "truncated")
    overall = _table("Held-out problems, %", heads)
    for row in evaluations:
        low, high = row.get("pass@1_interval") or (None, None)
        overall.add_row(
            Text(str(row["stage"])),
            str(row["step"]),
            f"{_percent(row['pass@1'])} [{_percent(low)}, {_percent(high)}]",
            *(_percent(row[name]) for name in ("greedy", "pass@k", "maj@k")),
            f"{row['mean_length']:.1f}",
            _percent(row["truncated_frac"]),
        )
    overall.caption = measured_on(evaluations)
    tables: list[Any] = [overall]
    for kind in ("level", "source"):
        names = list(dict.fromkeys(name for row in evaluations for name in row.get(f"by_{kind}", {})))
        if names:
            heads = (f"level {name}" if kind == "level" else name for name in names)
            table = _table(f"By {kind}: pass@1 / greedy, %", ("step", *heads))
            for row in evaluations:
                numbers = [row.get(f"by_{kind}", {}).get(name, {}) for name in names]
                cells = (f"{_percent(each.get('pass@1'))} / {_percent(each.get('greedy'))}" for each in numbers)
                table.add_row(Text(str(row["stage"])), str(row["step"]), *cells)
            tables += ["", table]
    return Group(*tables)


def measured_on(evaluations: Sequence[Evaluation]) -> str:
    """Return the problems, samples and temperature of most evaluations, and the differences in others. Empty if no
    evaluation has these numbers."""
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
