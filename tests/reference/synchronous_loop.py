"""The training loop as it was before rollouts were tickets: one process, one policy, one step after the other.

It is a frozen copy, for `tests/loop/test_lag_zero.py` only: a run with lag 0 must give the same bits as this loop. It
uses the package for everything that is not the loop itself.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansatz.data.curriculum import ProblemOutcome, curriculum_settings
from ansatz.data.cursor import ProblemStream
from ansatz.evaluate.evaluate import Evaluator
from ansatz.loop.context import RunContext
from ansatz.loop.rl_checks import objective_of
from ansatz.loop.stages.rl import RlStage
from ansatz.loop.step_record import StepRecord
from ansatz.loop.training_stage import TrainingStage, training_stage
from ansatz.models.peak_memory import PeakMemory
from ansatz.rewards.base import Grader
from ansatz.rollout.base import Sampler, Sampling
from ansatz.rollout.groups import GroupSampler, PartialGroup
from ansatz.track.measurements import values
from ansatz.track.rollouts import no_signal_note, rollout_metrics, version_lag
from ansatz.train.sample import StepTokens, samples_of_groups
from ansatz.train.trainer import StepReport
from ansatz.types import Group, Problem, Prompt, ScoredRollout, rollout_from_json, to_json


def run_synchronously(stage_of_rl: RlStage, context: RunContext, folder: Path) -> Path:
    config = context.config
    trainer = context.trainer(
        folder,
        path=context.start_model,
        objective=functools.partial(objective_of, config),
        schedule=config.train,
        updates=config.train,
        temperature=config.rollout.temperature,
    )
    recipe = config.data.curriculum
    stage = training_stage(
        context,
        config,
        folder,
        trainer=trainer,
        problems=context.problems("train"),
        total_steps=config.train.steps,
        curriculum=None if recipe is None else curriculum_settings(recipe),
    )
    assert trainer.policy is not None
    evaluator = context.evaluator(trainer)
    with closing(context.sampler(trainer.policy)) as sampler, stage as running:
        _train(context, running, sampler=sampler, evaluator=evaluator)
        running.tracker.evaluation(*evaluator.run(sampler, stage=folder.name, step=running.total_steps))
        return running.output


def _train(context: RunContext, stage: TrainingStage, *, sampler: Sampler, evaluator: Evaluator) -> None:
    config, trainer = stage.config, stage.trainer
    collector = StepCollector(
        stream=stage.stream,
        prompt_of=context.renderer(trainer).prompt,
        sampler=sampler,
        grader=context.grader,
        num_prompts=config.rollout.prompts_per_step,
        needs_greedy=trainer.needs_greedy,
    )
    partial = _partial_from_json(stage.restored.get("partial_rollouts", ()))
    memory = PeakMemory(trainer.device)
    step_tokens = StepTokens(functools.partial(trainer.tokenizer.decode, skip_special_tokens=True))
    sampler.load_weights(trainer.weights())
    _evaluate_if_due(stage, evaluator, sampler, step=stage.first_step - 1)  # a signal may have cut it off
    for step in stage.steps:
        sampling = Sampling.of(
            config.rollout, seed=config.seed, step=step, max_call_tokens=config.rollout.partial_rollout_tokens
        )
        data = collector.collect(sampling, partial=partial)
        partial, version = data.partial, trainer.version
        start = time.perf_counter()
        samples = samples_of_groups(data.groups, step_tokens)
        batch = trainer.batch(samples, baseline_of_group=data.baseline_of_group)
        record = StepRecord(data, samples, trainer, step=step, max_mb=4.0, find_ends=step_tokens.find_ends)
        report = trainer.update(batch, step=step, seed=config.seed, check_alignment=True)
        sampler.load_weights(trainer.weights())
        metrics = step_metrics(data, report, version=version, update_s=time.perf_counter() - start)
        stage.tracker.log(step, {**metrics, "perf/peak_memory_gb": memory.gb()})
        note = no_signal_note(data.sampled, max_response_tokens=config.rollout.max_response_tokens)
        if step == stage.first_step and note is not None:
            stage.tracker.event(step, "no_signal", note)
        stage.tracker.samples(step, record.finish(report))
        stage_state = functools.partial(_stage_state, partial)
        stage.reach_edge(step, stage_state)
        _evaluate_if_due(stage, evaluator, sampler, step=step)
        stage.save_if_due(step, stage_state)


def _evaluate_if_due(stage: TrainingStage, evaluator: Evaluator, sampler: Sampler, *, step: int) -> None:
    """Evaluate the policy after a step if `evaluate.every` asks for it. The stage itself evaluates the last step."""
    every, name = stage.config.evaluate.every, stage.folder.name
    due = every and step and step % every == 0 and step < stage.total_steps
    if due and not stage.tracker.has_evaluation(stage=name, step=step):
        stage.tracker.evaluation(*evaluator.run(sampler, stage=name, step=step))


def step_metrics(data: StepData, report: StepReport, *, version: int, update_s: float) -> dict[str, float]:
    """What the rollouts and the updates of a step measured, and where its time went.

    version: that of the policy before the updates.
    """
    rollouts = {**rollout_metrics(data.sampled), "rollout/version_lag": version_lag(data.sampled, version=version)}
    return {
        **values(rollouts),
        **report.metrics,
        "time/rollout_s": data.rollout_s,
        "time/grade_s": data.grade_s,
        "time/update_s": update_s,
        "time/step_s": data.rollout_s + data.grade_s + update_s,
        "perf/rollout_tokens_per_s": data.num_tokens / data.rollout_s,
        "perf/train_tokens_per_s": report.num_tokens / update_s,
        **data.metrics,
    }


def _stage_state(partial: Sequence[PartialGroup]) -> dict[str, Any]:
    return {"partial_rollouts": [[to_json(rollout) for rollout in group.rollouts] for group in partial]}


def _partial_from_json(groups: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[PartialGroup, ...]:
    return tuple(PartialGroup(tuple(rollout_from_json(dict(row)) for row in rows)) for rows in groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepData:
    """The rollouts of one step.

    sampled: every complete group. groups: those of them that the update uses, in the same order.
    baseline_of_group: the reward of the greedy response to the prompt of `groups[i]`, by i; empty without baselines.
    partial: groups with unfinished rollouts, for the next step.
    num_tokens: response tokens sampled in this step, also in rollouts that are still unfinished and for baselines.
    metrics: those of the curriculum and of partial rollouts; empty without either.
    rollout_s: seconds of sampling. grade_s: seconds for which grading continued after the sampling.
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

    prompt_of: renders a problem. needs_greedy: also sample and grade one greedy response to each prompt of the update,
    as ReMax needs. grader_threads: groups that can be graded at the same time.
    """

    stream: ProblemStream
    prompt_of: Callable[[Problem], Prompt]
    sampler: Sampler
    grader: Grader
    num_prompts: int
    needs_greedy: bool = False
    grader_threads: int = 1

    def collect(self, sampling: Sampling, *, partial: Sequence[PartialGroup] = ()) -> StepData:
        """Sample and grade the groups of a step, and report the outcomes to the problem stream.

        partial: groups of the step before, which are resumed. Groups that stay partial take up places of the step, so
        its update then has fewer than `num_prompts` groups, but at least one. The groups of dynamic sampling come in
        at most `stream.max_extra_rounds` rounds. If places are left after the last round, the first of the replaced
        groups fill them, so dynamic sampling never changes the size of a step.
        """
        start, grade_s, rounds, num_tokens = time.perf_counter(), 0.0, 0, 0
        groups_of = self._group_sampler(sampling)
        unfinished, sampled = tuple(partial), list[Group]()
        while True:
            missing = max(0, self.num_prompts - len(unfinished) - self._num_useful(sampled))
            prompts = [self.prompt_of(problem) for problem in self.stream.take(missing)]
            result = groups_of.run(prompts, sampling, partial=unfinished)
            unfinished, grade_s, num_tokens = result.partial, grade_s + result.grade_s, num_tokens + result.num_tokens
            sampled += [Group(prompt=group.prompt, members=tuple(group.graded)) for group in result.groups]
            if unfinished and not sampled:
                continue
            exhausted = rounds == self.stream.max_extra_rounds or not result.groups
            if exhausted or self._num_useful(sampled) >= self.num_prompts:
                break
            rounds += 1
        groups = self._select(sampled)
        baselines = dict[int, float]()
        if self.needs_greedy:
            result = groups_of.run([group.prompt for group in groups], sampling.greedy())
            grade_s, num_tokens = grade_s + result.grade_s, num_tokens + result.num_tokens
            baselines = {index: group.graded[0].score.value for index, group in enumerate(result.groups)}
        self.stream.observe(map(_outcome, sampled), pending=[group.prompt.problem.id for group in unfinished])
        return StepData(
            sampled=sampled,
            groups=groups,
            baseline_of_group=baselines,
            partial=unfinished,
            num_tokens=num_tokens,
            metrics={
                **self._curriculum_metrics(
                    rounds,
                    num_discarded=len(sampled) - len(groups),
                    num_without_signal=sum(not group.has_signal for group in groups),
                ),
                **_partial_metrics(sampling, unfinished),
            },
            rollout_s=time.perf_counter() - start - grade_s,
            grade_s=grade_s,
        )

    def _group_sampler(self, sampling: Sampling) -> GroupSampler[list[ScoredRollout]]:
        grade = functools.partial(self.grader.score, step=sampling.step)
        return GroupSampler(self.sampler, grade, grader_threads=self.grader_threads)

    def _is_useful(self, group: Group) -> bool:
        """Whether the group takes a place of the update. Without dynamic sampling every group does."""
        return self.stream.max_extra_rounds == 0 or group.has_signal

    def _num_useful(self, groups: Sequence[Group]) -> int:
        return sum(self._is_useful(group) for group in groups)

    def _select(self, sampled: Sequence[Group]) -> list[Group]:
        """The useful groups, and the first others for the places that are left, in the order sampled."""
        useful = [index for index, group in enumerate(sampled) if self._is_useful(group)]
        others = [index for index, group in enumerate(sampled) if not self._is_useful(group)]
        return [sampled[index] for index in sorted([*useful, *others[: max(0, self.num_prompts - len(useful))]])]

    def _curriculum_metrics(self, rounds: int, *, num_discarded: int, num_without_signal: int) -> dict[str, float]:
        curriculum = self.stream.metrics()
        if not curriculum:
            return {}
        return {
            **curriculum,
            "data/dynamic_sampling_rounds": float(rounds),
            "data/groups_discarded": float(num_discarded),
            "data/groups_without_signal": float(num_without_signal),
        }


def _outcome(group: Group) -> ProblemOutcome:
    return ProblemOutcome(
        id=group.prompt.problem.id,
        correct=sum(member.score.verdict.correct for member in group.members),
        responses=len(group.members),
    )


def _partial_metrics(sampling: Sampling, partial: Sequence[PartialGroup]) -> dict[str, float]:
    if not sampling.max_call_tokens:
        return {}
    return {"rollout/partial": float(sum(len(group.unfinished) for group in partial))}
