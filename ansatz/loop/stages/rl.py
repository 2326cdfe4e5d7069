"""Reinforcement learning from verifiable rewards: take problems, sample, score, batch, update, publish, log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from ansatz.config.schema import REWARD_MODEL, Config
from ansatz.errors import ConfigError, RewardError
from ansatz.loop.collect import StepData
from ansatz.loop.context import RunContext
from ansatz.loop.queue_setup import rollout_queue
from ansatz.loop.rl_checks import check_rl, explain_rl, objective_of
from ansatz.loop.rollout_queue import RolloutQueue
from ansatz.loop.run_sources import RunSources
from ansatz.loop.stages.stage import Stage
from ansatz.loop.step_record import StepRecord
from ansatz.loop.trainers import TrainerSpec
from ansatz.loop.training_stage import TrainingStage, training_stage
from ansatz.models.load import check_folder
from ansatz.models.reader import Reader
from ansatz.objectives.build import build_objective
from ansatz.objectives.objective import Objective
from ansatz.special_tokens import special_tokens
from ansatz.track.measurements import values
from ansatz.track.rollouts import (
    describe_abstentions,
    describe_unused_steps,
    environment_metrics,
    no_signal_note,
    rollout_metrics,
    version_lag,
)
from ansatz.train import checkpoint
from ansatz.train.sample import StepTokens, TrainSample, samples_of_groups
from ansatz.train.trainer import StepReport, Trainer
from ansatz.types import Group

SamplesOf = Callable[[Sequence[Group], StepTokens], Sequence[TrainSample]]


class RlStage(Stage):
    """Its methods are in the order of `stages.stage.Stage`, which says when each is called: `run` comes last."""

    def steps(self, config: Config) -> int:
        return config.train.steps

    def explain(self, config: Config) -> str:
        return explain_rl(config)

    def objective(self, config: Config) -> Objective:
        return objective_of(config)

    def check(self, config: Config) -> None:
        check_rl(config)

    def input_checks(self, sources: RunSources) -> Iterable[Callable[[], object]]:
        if sources.config.data.curriculum is not None:
            yield partial(_check_number, sources)
        path = sources.config.train.critic.path
        if path is not None and path != REWARD_MODEL:
            yield partial(check_folder, path, key="train.critic.path")

    def check_problems(self, sources: RunSources, reader: Reader) -> None:
        sources.drop_unfit("train", sources.lengths(reader).check_prompts)

    def run(self, context: RunContext, folder: Path) -> Path:
        config = _with_own_critic(context)
        trainer = context.trainer(
            folder,
            path=context.start_model,
            objective=partial(  # not an Objective, because each rank of a distributed trainer builds its own
                build_objective, config.algorithm, max_response_tokens=config.rollout.max_response_tokens
            ),
            schedule=config.train,  # the learning rate and the steps; for SFT they are in its own section
            updates=config.train,  # minibatches, optimizer, critic and reference
            temperature=config.rollout.temperature,  # training divides the logits by it as the sampler does
            kind=self.spec(config),
        )
        stage = training_stage(
            context,
            config,
            folder,
            trainer=trainer,
            problems=context.sources.problems("train"),
            total_steps=config.train.steps,
            in_rl=True,  # with a curriculum, and a watchdog that warns, lowers the learning rate, rolls back or stops
        )
        evaluator = context.evaluator(trainer)
        with closing(trainer), stage as running:
            context.watch_trainer(trainer, folder, running.tracker)
            _inherit_curriculum(context, running)
            with rollout_queue(context, running, model=context.start_model) as queue:

                def evaluate(step: int) -> None:
                    source = queue.evaluation(step)
                    running.tracker.evaluation(*evaluator.run(source, stage=running.folder.name, step=step))

                _train(running, queue=queue, evaluate=evaluate, samples_of=self.samples_of(context, trainer))
                evaluate(running.total_steps)
                return running.output

    def spec(self, config: Config) -> Callable[..., TrainerSpec]:
        """Return the class of the trainer's specification."""
        return TrainerSpec

    def samples_of(self, context: RunContext, trainer: Trainer[Any]) -> SamplesOf:
        """Return the function that makes samples for the trainer from graded groups."""
        return samples_of_groups


def _check_number(sources: RunSources) -> None:
    """Raise ConfigError if data.train contains fewer problems than a step of the curriculum takes."""
    num_problems, num_prompts = len(sources.source("train")), sources.config.rollout.prompts_per_step
    if num_problems < num_prompts:
        raise ConfigError(
            f"rollout.prompts_per_step = {num_prompts}: data.train has only {num_problems} problems, and with "
            "data.curriculum a step takes no problem twice. Lower rollout.prompts_per_step, or add problems to "
            "data.train."
        )


def _inherit_curriculum(context: RunContext, stage: TrainingStage) -> None:
    """Start the curriculum of a repeated stage with the knowledge that the one before it gained about the problems."""
    earlier = context.outputs_of("rl")
    if stage.first_step == 1 and earlier:
        stage.stream.inherit(checkpoint.loop_state(Path(earlier[-1].path)).get("stream", {}))


def _with_own_critic(context: RunContext) -> Config:
    """Return the recipe, with the folder of the run's newest reward model if the critic starts from that model."""
    config = context.config
    if config.train.critic.path != REWARD_MODEL:
        return config
    critic = config.train.critic.model_copy(update={"path": context.outputs_of(REWARD_MODEL)[-1].path})
    return config.model_copy(update={"train": config.train.model_copy(update={"critic": critic})})


def _train(
    stage: TrainingStage, *, queue: RolloutQueue, evaluate: Callable[[int], None], samples_of: SamplesOf
) -> None:
    """Make the steps that are left. evaluate: measures the policy after a step.

    The queue samples up to `lag` steps ahead of the updates, and grades the rollouts of a step (`loop.collect`). `open`
    takes the problems of steps and issues a ticket for each group: an order to sample it with certain weights. `gather`
    returns the data of a step: `groups` are used for the update, `sampled` also includes the groups that dynamic
    sampling replaced. Then the trainer makes its batch and updates, and the queue gets the new weights. For the queue,
    version s is the weights published after step s; `trainer.version` counts optimizer steps.
    """
    config, trainer = stage.config, stage.trainer
    peak_gb, per_token = trainer.watch_memory(), objective_of(config).advantage.per_token
    # Finds the tokens at which reasoning steps end, which are parts of a response. All other steps here are RL steps.
    step_tokens = StepTokens(special_tokens(trainer.tokenizer).read)
    _evaluate_if_due(stage, evaluate, step=stage.first_step - 1)  # a signal may have ended the run before this
    for step in stage.steps:
        queue.open(through=step + config.rollout.lag)
        data, version = queue.gather(step), trainer.version
        if step == 1 and not any(group.learned[0].score.applies for group in data.sampled):
            raise RewardError(
                f"no reward applies to any of the {sum(len(group.members) for group in data.sampled)} responses of "
                "step 1: every reward returned None for all of them. Return a number from each that applies."
            )
        start = time.perf_counter()
        samples = samples_of(data.groups, step_tokens)
        batch = trainer.batch(samples, baseline_of_group=data.baseline_of_group)  # baselines: only for ReMax
        record = None
        if config.save.samples:  # stores responses, and for a few how the update changes each token's log-prob
            record = StepRecord(data, samples, trainer, step=step, find_ends=step_tokens.find_ends)
        aligned = _check_sampler(stage, queue, batch, step=step)
        # Alignment: sampler and trainer must agree about log-probs, which is checked before anything is changed.
        report = trainer.update(batch, step=step, seed=stage.noise_seed, check_alignment=True)  # seed: of minibatches
        queue.publish(trainer.weights(), version=step)
        metrics = step_metrics(data, report, version=version, update_s=time.perf_counter() - start)
        metrics |= {**aligned, **queue.metrics()}
        if config.environment is not None:
            metrics |= values(environment_metrics(data.sampled))
        stage.log(step, {**metrics, "perf/peak_memory_gb": peak_gb()}, data.sampled)
        note = no_signal_note(data.sampled, max_response_tokens=config.rollout.max_response_tokens)
        if step == 1 and note is not None and config.teacher is None:  # rewards do not differ: nothing to learn from
            stage.tracker.event(step, "no_signal", note)
        left_out = describe_abstentions(data.sampled) if step == 1 else None
        if left_out is not None:
            stage.tracker.event(step, "abstentions", left_out)
        unused = describe_unused_steps(data.sampled, per_token=per_token) if step == 1 else None
        if unused is not None:
            stage.tracker.event(step, "unused_steps", unused)
        if record is not None:
            stage.tracker.samples(step, record.finish(report))
        # Checkpoints also hold the older weights that open tickets name, for the same bits after a resume.
        state, files = queue.state(), queue.files()
        stage.reach_edge(step, state, files)  # before the evaluation: Ctrl-C or SIGTERM during it saves the step
        _evaluate_if_due(stage, evaluate, step=step)
        stage.save_if_due(step, state, files)


def _check_sampler(stage: TrainingStage, queue: RolloutQueue, batch: Any, *, step: int) -> Mapping[str, float]:
    """Compare the sampler's log-probs with the trainer's under the weights that sampled the step, if these are older.

    The trainer loads them for one microbatch. If they are current, as without a lag, the update itself compares
    (`train.alignment`). Return the metrics of this comparison, if it is made. Raise AlignmentError if they disagree.
    """
    load = queue.sampled_with(step)
    return {} if load is None else stage.trainer.check_against(load, batch, step=step)


def _evaluate_if_due(stage: TrainingStage, evaluate: Callable[[int], None], *, step: int) -> None:
    """Evaluate the policy after a step if `evaluate.every` asks for it. `RlStage.run` evaluates the last step."""
    every, name = stage.config.evaluate.every, stage.folder.name
    due = every and step and step % every == 0 and step < stage.total_steps
    if due and not stage.tracker.has_evaluation(stage=name, step=step):
        evaluate(step)


def step_metrics(data: StepData, report: StepReport, *, version: int, update_s: float) -> dict[str, float]:
    """Return the measurements of a step's rollouts and updates, and the durations of its parts.

    version: version of the policy before the updates. update_s: from the groups to the published weights. `values`
    turns measurements, which are sums with their weights, into plain numbers.
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
