"""A few problems and what the policy answered at the first, the middle and the last saved step."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ansatz.track.runs import StageRun
from ansatz.types import Problem, ScoredRollout, scored_from_json

READ_BYTES = 64_000_000
"""Of a stage with more saved rollouts, evenly spaced steps are read; about a second of work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A group of one problem at one step: the first sample in full, and which samples were right."""

    step: int
    shown: ScoredRollout
    correct: tuple[bool, ...]

    @property
    def problem(self) -> Problem:
        return self.shown.rollout.prompt.problem


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleTimeline:
    """Moments in order of step: of one problem, or else of problems of one level."""

    moments: tuple[Snapshot, ...]

    @property
    def one_problem(self) -> bool:
        return len({moment.problem.id for moment in self.moments}) == 1


def stories(stage: StageRun, *, most: int = 4) -> list[ExampleTimeline]:
    """Up to `most` stories, of the problems whose saved steps lie furthest apart, a level each as far as that goes.

    Where no problem comes back, a story has one level's problems at the first, middle and last saved step.
    """
    moments = list(_moments(stage))
    again: defaultdict[str, list[Snapshot]] = defaultdict(list)
    for moment in moments:
        again[moment.problem.id].append(moment)
    coming_back = [ExampleTimeline(moments=_ends(found)) for found in again.values() if found[0].step < found[-1].step]
    if coming_back:
        return _varied(coming_back, most)
    ends = [moment.step for moment in _ends(moments)]
    by_level: defaultdict[str, dict[int, Snapshot]] = defaultdict(dict)
    for moment in moments:
        if moment.step in ends:
            by_level[moment.problem.level].setdefault(moment.step, moment)
    return [ExampleTimeline(moments=tuple(found.values())) for _, found in sorted(by_level.items())][:most]


def _varied(found: list[ExampleTimeline], most: int) -> list[ExampleTimeline]:
    """The widest story of each level first, then the next widest of each, in order of level."""
    found = sorted(found, key=lambda story: story.moments[0].step - story.moments[-1].step)  # widest first; stable
    turns: defaultdict[str, int] = defaultdict(int)
    ranked: list[tuple[int, ExampleTimeline]] = []
    for story in found:
        level = story.moments[0].problem.level
        ranked.append((turns[level], story))
        turns[level] += 1
    chosen = [story for _, story in sorted(ranked, key=lambda pair: pair[0])][:most]
    return sorted(chosen, key=lambda story: story.moments[0].problem.level)


def _ends(moments: list[Snapshot]) -> tuple[Snapshot, ...]:
    """The first, middle and last, by place in the list of their steps."""
    steps = sorted({moment.step for moment in moments})
    wanted = sorted({steps[0], steps[len(steps) // 2], steps[-1]}) if steps else []
    return tuple(next(moment for moment in moments if moment.step == step) for step in wanted)


def _moments(stage: StageRun) -> Iterator[Snapshot]:
    files = stage.sample_files()
    size = sum(path.stat().st_size for _, path in files)
    if size > READ_BYTES:
        count = max(3, len(files) * READ_BYTES // size)
        files = [files[index * (len(files) - 1) // (count - 1)] for index in range(min(count, len(files)))]
    for step, path in files:
        groups: defaultdict[str, list[ScoredRollout]] = defaultdict(list)
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                scored = scored_from_json(json.loads(line))
                groups[scored.rollout.prompt.problem.id].append(scored)
        for members in groups.values():
            members.sort(key=lambda scored: scored.rollout.sample)
            yield Snapshot(
                step=step, shown=members[0], correct=tuple(member.score.verdict.correct for member in members)
            )
