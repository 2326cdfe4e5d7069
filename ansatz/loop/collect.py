"""What a step learns from: problems taken, sampled and graded; again for groups that show nothing (DAPO's refill)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ansatz.data.curriculum import Tried
from ansatz.data.cursor import ProblemStream
from ansatz.loop.state import Clock
from ansatz.rewards.base import Grader
from ansatz.rollout.base import Sampler, Sampling
from ansatz.track.rollouts import has_signal
from ansatz.types import Group, Problem, Prompt, ScoredRollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """sampled: every group. groups: those of the update, in the same order. greedy: the graded greedy response to each
    of these, if asked for. metrics: of the curriculum; none without one. times: seconds of sampling and grading."""

    sampled: Sequence[Group]
    groups: Sequence[Group]
    greedy: Sequence[ScoredRollout]
    metrics: Mapping[str, float]
    times: Mapping[str, float]


def collect(
    stream: ProblemStream,
    as_prompt: Callable[[Problem], Prompt],
    *,
    count: int,
    sampler: Sampler,
    sampling: Sampling,
    grader: Grader,
    greedy: bool,
) -> Collected:
    """`count` groups for an update, and what came of each problem told to the stream.

    With a refill of the curriculum's, groups whose rewards are all equal are replaced by those of further problems, in
    at most so many rounds; where places are free after the last, the first of the replaced groups fill them, so that
    the size of a step is always the same.
    """
    clock, rollout_s, grade_s = Clock(), 0.0, 0.0
    sampled: list[Group] = []
    rounds = 0
    while True:
        missing = count - sum(_counts(group, stream) for group in sampled)
        rollouts = sampler.generate([as_prompt(problem) for problem in stream.take(missing)], sampling)
        rollout_s += clock.lap()
        sampled += group_by_prompt(grader.score(rollouts, step=sampling.step))
        grade_s += clock.lap()
        if rounds == stream.refill or not rollouts or sum(_counts(group, stream) for group in sampled) >= count:
            break
        rounds += 1
    groups = _chosen(sampled, [_counts(group, stream) for group in sampled], count)
    certain = sampler.generate([group.prompt for group in groups], sampling.greedy()) if greedy else []
    rollout_s += clock.lap()
    baselines = grader.score(certain, step=sampling.step)
    grade_s += clock.lap()
    stream.observe(tried(sampled))
    own = stream.metrics()
    thrown = {"data/refill_rounds": float(rounds), "data/groups_thrown_away": float(len(sampled) - len(groups))}
    return Collected(
        sampled=sampled,
        groups=groups,
        greedy=baselines,
        metrics={**own, **thrown} if own else {},
        times={"time/rollout_s": rollout_s, "time/grade_s": grade_s},
    )


def group_by_prompt(scored: Sequence[ScoredRollout]) -> list[Group]:
    """Scored rollouts by problem, in the order in which problems first appear."""
    members: dict[str, list[ScoredRollout]] = {}
    for one in scored:
        members.setdefault(one.rollout.prompt.problem.id, []).append(one)
    return [Group(prompt=group[0].rollout.prompt, members=tuple(group)) for group in members.values()]


def tried(groups: Sequence[Group]) -> list[Tried]:
    """How many responses of each group are right."""
    return [
        Tried(
            id=group.prompt.problem.id,
            right=sum(one.score.verdict.correct for one in group.members),
            responses=len(group.members),
        )
        for group in groups
    ]


def _counts(group: Group, stream: ProblemStream) -> bool:
    """Whether a group takes a place of the update: any one does where none is to be replaced."""
    return stream.refill == 0 or has_signal(group.rewards)


def _chosen(sampled: Sequence[Group], counts: Sequence[bool], count: int) -> list[Group]:
    """The groups that count, and as many of the first others as there are places left; in the order sampled."""
    places = [index for index, kept in enumerate(counts) if kept]
    others = [index for index, kept in enumerate(counts) if not kept]
    return [sampled[index] for index in sorted([*places, *others[: count - len(places)]])]
