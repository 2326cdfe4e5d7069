"""What a step learns from: problems taken, sampled and graded; again for groups that show nothing (DAPO's refill).

A group is graded as soon as its last member has ended, while others are still sampled. With partial rollouts a group of
which some members are unfinished is carried into the next step (Kimi k1.5, arXiv:2501.12599, sec. 2.6.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from ansatz.data.curriculum import ProblemOutcome
from ansatz.data.cursor import ProblemStream
from ansatz.loop.state import Clock, PartialRollouts
from ansatz.rewards.base import Grader
from ansatz.rollout.base import Sampler, Sampling
from ansatz.track.rollouts import has_signal
from ansatz.types import Finish, Group, Problem, Prompt, Rollout, ScoredRollout


@dataclass(frozen=True, slots=True, kw_only=True)
class StepData:
    """sampled: every group. groups: those of the update, in the same order. greedy: the graded greedy response to each
    of these, if asked for. metrics: of the curriculum and of partial rollouts; none without these. times: seconds of
    sampling, and of grading that went on after it."""

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
    graders: int = 1,
    carried: PartialRollouts | None = None,
) -> StepData:
    """`count` groups for an update, and what came of each problem told to the stream.

    With a refill of the curriculum's, groups whose rewards are all equal are replaced by those of further problems, in
    at most so many rounds; where places are free after the last, the first of the replaced groups fill them, so that
    the size of a step is always the same.
    graders: groups that are graded side by side.
    carried: problems that earlier steps left with unfinished rollouts; after the call, those that this one leaves so.
    They take up places of the step, so the update has fewer groups than `count` then; it has at least one.
    """
    clock, rollout_s, grade_s = Clock(), 0.0, 0.0
    carried = {} if carried is None else carried
    sampled: list[Group] = []
    rounds = 0
    while True:
        missing = max(0, count - len(carried) - sum(_counts(group, stream) for group in sampled))
        prompts = [as_prompt(problem) for problem in stream.take(missing)]
        with _Grading(grader, prompts, sampling, carried, threads=graders) as grading:
            rollouts = sampler.generate(prompts, sampling, unfinished=grading.unfinished, on_finished=grading.take)
            rollout_s += clock.lap()
            graded = grading.groups(rollouts, carried)
        grade_s += clock.lap()
        sampled += graded
        if carried and not sampled:
            continue
        if rounds == stream.dynamic_sampling or not graded or sum(_counts(group, stream) for group in sampled) >= count:
            break
        rounds += 1
    groups = _chosen(sampled, [_counts(group, stream) for group in sampled], count)
    certain = sampler.generate([group.prompt for group in groups], sampling.greedy()) if greedy else []
    rollout_s += clock.lap()
    baselines = grader.score(certain, step=sampling.step)
    grade_s += clock.lap()
    stream.observe(tried(sampled), pending=carried)
    own = stream.metrics()
    thrown = {"data/dynamic_sampling_rounds": float(rounds), "data/groups_discarded": float(len(sampled) - len(groups))}
    return StepData(
        sampled=sampled,
        groups=groups,
        greedy=baselines,
        metrics={**({**own, **thrown} if own else {}), **_partial_metrics(sampling, sampled, carried)},
        times={"time/rollout_s": rollout_s, "time/grade_s": grade_s},
    )


class _Grading:
    """The rollouts of one call of the sampler, each problem's graded together as soon as all of them have ended.

    unfinished: what the call goes on with.
    """

    def __init__(
        self, grader: Grader, prompts: Sequence[Prompt], sampling: Sampling, carried: PartialRollouts, *, threads: int
    ) -> None:
        self._grader, self._step = grader, sampling.step
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="grading")
        self._members: dict[str, list[Rollout]] = {}
        self._wanted: Counter[str] = Counter()
        self._scores: dict[str, Future[list[ScoredRollout]]] = {}
        self.unfinished: list[Rollout] = []
        for name, members in carried.items():
            self._wanted[name] += len(members)
            self._members[name] = [one for one in members if one.finish is not Finish.ABORT]
            self.unfinished += [one for one in members if one.finish is Finish.ABORT]
        for prompt in prompts:
            self._wanted[prompt.problem.id] += sampling.num_samples
            self._members.setdefault(prompt.problem.id, [])

    def take(self, rollout: Rollout) -> None:
        """One that has ended, or is to go on in the next step."""
        name = rollout.prompt.problem.id
        members = self._members[name]
        if any(one.sample == rollout.sample for one in members):
            return
        members.append(rollout)
        if len(members) == self._wanted[name]:
            members.sort(key=lambda one: one.sample)
            if not any(one.finish is Finish.ABORT for one in members):
                self._scores[name] = self._threads.submit(self._grader.score, members, step=self._step)

    def groups(self, rollouts: Sequence[Rollout], carried: PartialRollouts) -> list[Group]:
        """The groups that are whole, in the order of their problems; `carried` now holds the others.

        rollouts: all of the call; an engine that told of none as they ended is told on by these.
        """
        for rollout in rollouts:
            self.take(rollout)
        carried.clear()
        carried |= {name: members for name, members in self._members.items() if name not in self._scores}
        graded = [self._scores[name].result() for name in self._members if name in self._scores]
        return [Group(prompt=scored[0].rollout.prompt, members=tuple(scored)) for scored in graded]

    def __enter__(self) -> _Grading:
        return self

    def __exit__(self, *exc: object) -> None:
        self._threads.shutdown(cancel_futures=True)


def group_by_prompt(scored: Sequence[ScoredRollout]) -> list[Group]:
    """Scored rollouts by problem, in the order in which problems first appear."""
    members: dict[str, list[ScoredRollout]] = {}
    for one in scored:
        members.setdefault(one.rollout.prompt.problem.id, []).append(one)
    return [Group(prompt=group[0].rollout.prompt, members=tuple(group)) for group in members.values()]


def tried(groups: Sequence[Group]) -> list[ProblemOutcome]:
    """How many responses of each group are correct."""
    return [
        ProblemOutcome(
            id=group.prompt.problem.id,
            correct=sum(one.score.verdict.correct for one in group.members),
            responses=len(group.members),
        )
        for group in groups
    ]


def _counts(group: Group, stream: ProblemStream) -> bool:
    """Whether a group takes a place of the update: any one does where none is to be replaced."""
    return stream.dynamic_sampling == 0 or has_signal(group.rewards)


def _chosen(sampled: Sequence[Group], counts: Sequence[bool], count: int) -> list[Group]:
    """The groups that count, and as many of the first others as there are places left; in the order sampled."""
    places = [index for index, kept in enumerate(counts) if kept]
    others = [index for index, kept in enumerate(counts) if not kept]
    return [sampled[index] for index in sorted([*places, *others[: count - len(places)]])]


def _partial_metrics(sampling: Sampling, groups: Sequence[Group], carried: PartialRollouts) -> dict[str, float]:
    if not sampling.max_call_tokens:
        return {}
    rollouts = [one.rollout for group in groups for one in group.members]
    lag = sum(one.version_max - version for one in rollouts for version in one.token_versions)
    return {
        "rollout/partial": float(sum(one.finish is Finish.ABORT for members in carried.values() for one in members)),
        "rollout/version_lag": lag / sum(one.num_tokens for one in rollouts),
    }
