"""Makes the steps of a card again, and says where the bits differ and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansatz.config.fields import as_mapping
from ansatz.config.schema import Config
from ansatz.errors import ConfigError, RunInterrupted
from ansatz.loop.chain import Row, listening
from ansatz.loop.held_run import DIGESTS_FILE, read_digests
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.run_record import read_record
from ansatz.repeat.card import Card, Step, installed_versions
from ansatz.track.base import ConsoleSink

_WORDS = {"rollouts": "tokens", "logps": "log-probs", "weights": "weights"}


class Compared(RunInterrupted):
    """The comparison has ended a run: nothing that follows is to be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The steps to compare: of one stage, from the first to the last; None: to the end of the stage."""

    stage: str
    first: int
    last: int | None


@dataclass(slots=True, kw_only=True)
class Comparison:
    """The comparison so far. same: steps with equal digests. unknown: steps without a digest in the card.

    first: the stage and the step where each kind of bits (`weights`, `log-probs`, `tokens`) first differs; step 0 has
    the weights before the first step. detail: how the responses of the first such steps differ, by their traces.
    here: the arithmetic class of the process that made the first of these steps.
    """

    card: Card
    span: Span | None
    until_differs: bool
    same: int = 0
    unknown: int = 0
    first: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    detail: str = ""
    here: dict[str, Any] = field(default_factory=dict[str, Any])
    _rows: dict[tuple[str, int, bool], Step] = field(init=False)
    _arithmetic: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        named = ((stage, row) for stage, rows in self.card.stages.items() for row in rows)
        self._rows = {(stage, row.step, row.arithmetic is not None): row for stage, row in named}

    def observe(self, stage: str, row: Row) -> None:
        """Compare a new row of the chain. Raise Compared after the last one that is asked for."""
        now, span = Step.model_validate(row), self.span
        if now.arithmetic is not None:
            self._arithmetic = now.arithmetic
        if span is None or (stage == span.stage and now.step >= span.first):
            self._compare(stage, now)
        if "tokens" in self.first and self.until_differs:
            raise Compared("ended by ansatz repeat, because tokens differ.")
        if span is not None and stage == span.stage and now.step == span.last:
            raise Compared(f"ended by ansatz repeat after step {now.step} of {stage}.")

    def _compare(self, stage: str, now: Step) -> None:
        before = self._rows.get((stage, now.step, now.arithmetic is not None))
        pairs = {name: (getattr(before, name), getattr(now, name)) for name in _WORDS} if before is not None else {}
        known = {name: pair for name, pair in pairs.items() if None not in pair}
        new = [name for name, (left, right) in known.items() if left != right and _WORDS[name] not in self.first]
        if new and not self.first:
            self.here = self._arithmetic
        self.first |= {_WORDS[name]: (stage, now.step) for name in new}
        if before is not None and {"rollouts", "logps"} & {*new}:
            self.detail = compare_traces(before, now) or self.detail
        if now.step > 0:
            self.same += bool(known) and all(left == right for left, right in known.values())
            self.unknown += not known


def compare_traces(before: Step, now: Step) -> str:
    """Name the first token that differs and its response, and say how much log-probs differ up to there. Empty without
    traces, and if the traced responses are equal."""
    if before.trace is None or now.trace is None:
        return ""
    traced = list(zip(before.trace.responses(), now.trace.responses(), strict=False))
    sample = next((place for place, (old, new) in enumerate(traced) if old[0] != new[0]), None)
    if sample is None:
        sample = _first_difference(before.trace.marks(), now.trace.marks())
    tokens, gap = "", 0.0
    if sample is not None:
        token = _first_difference(*(each[0] for each in traced[sample])) if sample < len(traced) else None
        tokens = f"first different token {'(not in the card)' if token is None else token} of sample {sample}; "
    for (old, old_logps), (new, new_logps) in traced:
        equal = _first_difference(old, new)
        gaps = (abs(left - right) for left, right in zip(old_logps[:equal], new_logps[:equal], strict=False))
        gap = max([gap, *gaps])
    shown = f"log-prob difference {gap:.2g} at most" if before.trace.logps else "log-probs are not in the card"
    return f"step {now.step}: {tokens}{shown}" if tokens or gap else ""


def _first_difference(old: bytes, new: bytes) -> int | None:
    """Return the first place where two texts differ; the end of the shorter one if it begins the other."""
    places = (place for place, (left, right) in enumerate(zip(old, new, strict=False)) if left != right)
    return next(places, None if old == new else min(len(old), len(new)))


def repeat_run(card: Card, config: Config, comparison: Comparison, *, console: ConsoleSink | None, fresh: bool) -> None:
    """Run the recipe and compare its steps with the steps of the card.

    Raise ConfigError if the card lacks a step of the span, and RunInterrupted if a signal ends the run.
    """
    span = comparison.span
    if span is not None and (last := span.last or span.first) > max(card.steps_of(span.stage), default=0):
        known = ", ".join(_list_steps(card)) or "no steps"
        raise ConfigError(f"--steps: the card has no step {last} of the stage {span.stage!r}. It has {known}.")
    try:
        with listening(comparison.observe):
            run_pipeline(config, console=console, fresh=fresh)
    except Compared:
        pass


def _list_steps(card: Card) -> Iterator[str]:
    for stage in card.stages:
        steps = card.steps_of(stage)
        yield f"{stage}/{min(steps)}:{max(steps)}" if steps else f"nothing of {stage}"


def causes(comparison: Comparison, run: Path, config: Config) -> list[str]:
    """Return the differences besides the bits, the likeliest first: recipe, inputs, versions, ranks, arithmetic."""
    card = comparison.card
    found = [card.changes] if card.changes else []
    data, record = read_digests(run) if (run / DIGESTS_FILE).is_file() else {}, read_record(run)
    code = {} if record is None else record.code or {}
    for name, old, new in (("data", card.data, data), ("code", card.code, code)):
        if changed := sorted(key for key in old if key in new and old[key] != new[key]):
            found.append(f"{name}: {', '.join(changed[:3])} differ{'' if len(changed) > 1 else 's'}")
    if changed := _differences(card.packages, installed_versions()):
        found.append(f"versions: {changed}")
    trainers = as_mapping(card.recipe.get("cluster")).get("trainers", 0)
    if trainers != config.cluster.trainers:
        found.append(f"trainer ranks: {trainers} there, {config.cluster.trainers} here")
    stage, step = next(iter(comparison.first.values()))
    there = card.arithmetic_at(stage, max(step, 1))
    if there and there != comparison.here:
        found.append(f"arithmetic class: {_differences(there, comparison.here)}")
    return found


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    keys = [key for key in {**there, **here} if there.get(key) != here.get(key)]
    return ", ".join(f"{key} {_shown(there.get(key))} there, {_shown(here.get(key))} here" for key in keys)


def _shown(value: Any) -> str:
    return "none" if value in (None, {}) else f"{value}"[:60]
