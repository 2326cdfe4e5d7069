"""The data of one step of RL: problems taken, sampled, graded, and sampled again where a group has no signal.

With dynamic sampling (DAPO, arXiv:2503.14476, sec. 3.2) groups with equal rewards, which give no signal, are replaced
by groups of further problems. With partial rollouts (Kimi k1.5, arXiv:2501.12599, sec. 2.6.2) a group with an
unfinished rollout is resumed in the next step whose problems are not taken yet: that is step + 1, or step + lag + 1
with a lag.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ansatz.data.curriculum import ProblemOutcome
from ansatz.data.cursor import ProblemStream
from ansatz.rewards.base import Grader
from ansatz.rollout.base import ResponseSource, Sampling
from ansatz.rollout.groups import GroupSampler, PartialGroup
from ansatz.types import Group, Problem, Prompt, ScoredRollout


@dataclass(frozen=True, slots=True, kw_only=True)
class StepData:
    """The rollouts of one step.

    sampled: every complete group. groups: the complete groups that the update uses, in the same order.
    baseline_of_group: the reward of the greedy response to the prompt of `groups[i]`, by i; empty without baselines.
    partial: groups with unfinished rollouts, for a later step (see above).
    num_tokens: response tokens sampled in this step, also in rollouts that are still unfinished and for baselines.
    metrics: metrics of the curriculum and of partial rollouts; empty without either.
    rollout_s: seconds of sampling. grade_s: seconds of grading after the end of the sampling.
    """

    sampled: Sequence[Group]
    groups: Sequence[Group]
    baseline_of_group: Mapping[int, float]
    partial: tuple[PartialGroup, ...]
    num_tokens: int
    metrics: Mapping[str, float]
    rollout_s: float
    grade_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCollector:
    """Collects `num_prompts` groups for each step.

    stream: the problems, epoch by epoch or chosen by a curriculum, from how the policy did on them before.
    prompt_of: renders a problem. needs_greedy: also sample and grade one greedy response to each prompt of the update,
    as ReMax needs.
    """

    stream: ProblemStream
    prompt_of: Callable[[Problem], Prompt]
    grader: Grader
    num_prompts: int
    needs_greedy: bool = False

    def take(self, num_taken: int = 0) -> list[Prompt]:
        """Take the next prompts of a step. num_taken: places of the step that are taken already."""
        return [self.prompt_of(problem) for problem in self.stream.take(max(0, self.num_prompts - num_taken))]

    def collect(
        self,
        sampling: Sampling,
        source: ResponseSource,
        *,
        prompts: Sequence[Prompt],
        partial: Sequence[PartialGroup] = (),
        pending: Collection[str] = (),
        greedy_source: ResponseSource | None = None,
    ) -> StepData:
        """Sample and grade the groups of a step, and report the outcomes to the problem stream.

        prompts: the result of `take` for the step. partial: groups of an earlier step, which are resumed. Groups that
        stay partial take up places of the step, so its update can have fewer than `num_prompts` groups, but at least
        one. The groups of dynamic sampling come in at most `stream.max_extra_rounds` rounds. If places are left after
        the last round, the first of the replaced groups fill them, so dynamic sampling never changes the size of a
        step.
        pending: ids of problems that later steps have taken already. A curriculum takes none of them again before it
        sees the outcome.
        greedy_source: samples the greedy responses, if their tickets are of another kind; None: `source` does it.
        """
        start, grade_s, rounds, num_tokens = time.perf_counter(), 0.0, 0, 0
        groups_of = self._group_sampler(source, sampling)
        unfinished, sampled = tuple(partial), list[Group]()
        # Every round also resumes the groups that are unfinished. The first one is repeated until a group is complete.
        # The rounds after that belong to dynamic sampling. They end when enough groups are useful, when a round
        # completes no group, or after `max_extra_rounds` of them.
        while True:
            result = groups_of.run(prompts, sampling, partial=unfinished)
            unfinished, grade_s, num_tokens = result.partial, grade_s + result.grade_s, num_tokens + result.num_tokens
            sampled += [Group(prompt=group.prompt, members=tuple(group.graded)) for group in result.groups]
            if sampled or not unfinished:
                exhausted = rounds == self.stream.max_extra_rounds or not result.groups
                if exhausted or self._num_useful(sampled) >= self.num_prompts:
                    break
                rounds += 1
            prompts = self.take(len(unfinished) + self._num_useful(sampled))
        groups = self._select(sampled)
        baselines = dict[int, float]()
        if self.needs_greedy:
            greedy = self._group_sampler(greedy_source or source, sampling)
            result = greedy.run([group.prompt for group in groups], sampling.greedy())  # it leaves none unfinished
            grade_s, num_tokens = grade_s + result.grade_s, num_tokens + result.num_tokens
            baselines = {index: group.graded[0].score.value for index, group in enumerate(result.groups)}
        waiting = [group.prompt.problem.id for group in unfinished]
        self.stream.observe(map(_outcome, sampled), pending=[*waiting, *pending])
        return StepData(
            sampled=sampled,
            groups=groups,
            baseline_of_group=baselines,
            partial=unfinished,
            num_tokens=num_tokens,
            metrics={
                **self._curriculum_metrics(rounds, sampled, groups),
                **_partial_metrics(sampling, unfinished),
            },
            rollout_s=time.perf_counter() - start - grade_s,
            grade_s=grade_s,
        )

    def _group_sampler(self, source: ResponseSource, sampling: Sampling) -> GroupSampler[list[ScoredRollout]]:
        grade = functools.partial(self.grader.score, step=sampling.step)
        return GroupSampler(source, grade, grader_threads=self.grader.threads)

    def _is_useful(self, group: Group) -> bool:
        """Tell whether the group takes a place of the update. Without dynamic sampling, each one with a reward does."""
        return group.has_signal if self.stream.max_extra_rounds else group.learned[0].score.applies

    def _num_useful(self, groups: Sequence[Group]) -> int:
        return sum(self._is_useful(group) for group in groups)

    def _select(self, sampled: Sequence[Group]) -> list[Group]:
        """Return the useful groups, and the first others for the places that are left, in the order sampled. Groups
        without a reward fill no place, unless no group has one."""
        useful = [index for index, group in enumerate(sampled) if self._is_useful(group)]
        others = [index for index, group in enumerate(sampled) if not self._is_useful(group)]
        if any(group.learned[0].score.applies for group in sampled):
            others = [index for index in others if sampled[index].learned[0].score.applies]
        return [sampled[index] for index in sorted([*useful, *others[: max(0, self.num_prompts - len(useful))]])]

    def _curriculum_metrics(self, rounds: int, sampled: Sequence[Group], used: Sequence[Group]) -> dict[str, float]:
        curriculum = self.stream.metrics()
        if not curriculum:  # so there is no dynamic sampling either: it is a setting of the curriculum
            return {}
        return {
            **curriculum,
            "data/dynamic_sampling_rounds": float(rounds),
            "data/groups_discarded": float(len(sampled) - len(used)),
            "data/groups_without_signal": float(sum(not group.has_signal for group in used)),
        }


def _outcome(group: Group) -> ProblemOutcome:
    return ProblemOutcome(
        id=group.prompt.problem.id,
        correct=sum(member.score.verdict.correct for member in group.learned),
        responses=len(group.learned),
    )


def _partial_metrics(sampling: Sampling, partial: Sequence[PartialGroup]) -> dict[str, float]:
    if not sampling.max_call_tokens:
        return {}
    return {"rollout/partial": float(sum(len(group.unfinished) for group in partial))}
