"""A few problems, and what the policy answered at the first, the middle and the last saved step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ansatz.track.runs import StageRun
from ansatz.track.step_files import read_samples
from ansatz.types import Problem, ScoredRollout

READ_BYTES = 64_000_000
"""Of a stage with more saved rollouts than this, evenly spaced steps are read; that takes about a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The group of one problem at one step: its first sample, and which of its samples were correct."""

    step: int
    first: ScoredRollout
    correct: tuple[bool, ...]

    @property
    def problem(self) -> Problem:
        return self.first.rollout.prompt.problem


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleTimeline:
    """Snapshots in order of step: of one problem, or otherwise of problems of one level."""

    snapshots: tuple[Snapshot, ...]

    @property
    def one_problem(self) -> bool:
        return len({snapshot.problem.id for snapshot in self.snapshots}) == 1

    @property
    def num_steps(self) -> int:
        """Return the number of steps between the first and the last snapshot."""
        return self.snapshots[-1].step - self.snapshots[0].step


def example_timelines(stage: StageRun, *, limit: int = 4) -> list[ExampleTimeline]:
    """Return up to `limit` timelines: the longest ones, from as many levels as possible.

    If no problem occurs at two saved steps, a timeline has problems of one level at the first, middle and last step.
    """
    snapshots = list(_snapshots(stage))
    by_problem: defaultdict[str, list[Snapshot]] = defaultdict(list)
    for snapshot in snapshots:
        by_problem[snapshot.problem.id].append(snapshot)
    repeated = [ExampleTimeline(snapshots=_ends(group)) for group in by_problem.values()]
    repeated = [timeline for timeline in repeated if timeline.num_steps > 0]
    if repeated:
        return _vary(repeated, limit)
    steps = [snapshot.step for snapshot in _ends(snapshots)]
    by_level: defaultdict[str, dict[int, Snapshot]] = defaultdict(dict)
    for snapshot in snapshots:
        if snapshot.step in steps:
            by_level[snapshot.problem.level].setdefault(snapshot.step, snapshot)
    return [ExampleTimeline(snapshots=tuple(group.values())) for _, group in sorted(by_level.items())][:limit]


def _vary(timelines: list[ExampleTimeline], limit: int) -> list[ExampleTimeline]:
    """Return the longest timeline of each level, then the second longest of each, and so on; the result is in level
    order."""
    taken: defaultdict[str, int] = defaultdict(int)
    ranked: list[tuple[int, ExampleTimeline]] = []
    for timeline in sorted(timelines, key=lambda timeline: -timeline.num_steps):
        level = timeline.snapshots[0].problem.level
        ranked.append((taken[level], timeline))
        taken[level] += 1
    selected = [timeline for _, timeline in sorted(ranked, key=lambda pair: pair[0])][:limit]
    return sorted(selected, key=lambda timeline: timeline.snapshots[0].problem.level)


def _ends(snapshots: list[Snapshot]) -> tuple[Snapshot, ...]:
    """Return the snapshots at the first, the middle and the last of their steps."""
    steps = sorted({snapshot.step for snapshot in snapshots})
    selected = sorted({steps[0], steps[len(steps) // 2], steps[-1]}) if steps else []
    return tuple(next(snapshot for snapshot in snapshots if snapshot.step == step) for step in selected)


def _snapshots(stage: StageRun) -> Iterator[Snapshot]:
    for step, path in _evenly_spaced(stage.sample_files()):
        groups: defaultdict[str, list[ScoredRollout]] = defaultdict(list)
        for scored in read_samples(path):
            groups[scored.rollout.prompt.problem.id].append(scored)
        for members in groups.values():
            members.sort(key=lambda scored: scored.rollout.sample)
            correct = tuple(member.score.verdict.correct for member in members)
            yield Snapshot(step=step, first=members[0], correct=correct)


def _evenly_spaced(paths: list[tuple[int, Path]]) -> list[tuple[int, Path]]:
    """Return as many of the files as READ_BYTES allows, at least three, with the first and the last among them."""
    size = sum(path.stat().st_size for _, path in paths)
    if size <= READ_BYTES:
        return paths
    count = max(3, len(paths) * READ_BYTES // size)
    return [paths[index * (len(paths) - 1) // (count - 1)] for index in range(min(count, len(paths)))]
