"""Reinforcement learning from verifiable rewards: take problems, sample, score, batch, update, publish, log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from ansatz.config.schema import REWARD_MODEL, Config
from ansatz.data.curriculum import curriculum_settings
from ansatz.environments.base import TurnSettings
from ansatz.errors import ConfigError
from ansatz.loop.collect import StepData
from ansatz.loop.context import RunContext
from ansatz.loop.lag import check_lag, explain_lag
from ansatz.loop.queue_setup import rollout_queue
from ansatz.loop.rollout_queue import RolloutQueue
from ansatz.loop.run_sources import RunSources
from ansatz.loop.stages.stage import Stage
from ansatz.loop.step_record import StepRecord
from ansatz.loop.trainers import TrainerSpec, explain_trainers
from ansatz.loop.training_stage import TrainingStage, training_stage
from ansatz.loop.workers import check_workers, explain_workers
from ansatz.models.load import check_folder
from ansatz.models.reader import Reader
from ansatz.objectives.build import build_objective
from ansatz.objectives.checks import check_recipe as check_objective
from ansatz.objectives.explain import explain as explain_objective
from ansatz.objectives.explain import other_defaults
from ansatz.objectives.objective import Objective
from ansatz.objectives.presets import PRESETS
from ansatz.rewards.base import rewards
from ansatz.track.measurements import values
from ansatz.track.rollouts import environment_metrics, no_signal_note, rollout_metrics, version_lag
from ansatz.track.rules import rules_of
from ansatz.train import checkpoint
from ansatz.train.optimizers import bind_optimizer
from ansatz.train.sample import StepTokens, samples_of_groups
from ansatz.train.trainer import StepReport


class RlStage(Stage):
    def steps(self, config: Config) -> int:
        return config.train.steps

    def explain(self, config: Config) -> str:
        objective = objective_of(config)
        return "\n".join(
            [
                explain_objective(objective),
                *_critic_lines(config),
                *_environment_lines(config),
                *_curriculum_lines(config),
                *_requirement_lines(config),
                *explain_lag(config),
                *explain_trainers(config),
                *explain_workers(config),
                "",
                *other_defaults(objective, max_response_tokens=config.rollout.max_response_tokens),
            ]
        )

    def objective(self, config: Config) -> Objective:
        return objective_of(config)

    def check(self, config: Config) -> None:
        """The objective can be built and gets the inputs that it needs; the optimizer exists."""
        if config.data.curriculum is not None:
            curriculum_settings(config.data.curriculum)
        _check_requirements(config)
        _check_critic(config)
        objective = objective_of(config)
        check_objective(
            objective,
            samples_per_prompt=config.rollout.samples_per_prompt,
            rewards_steps=any(map(rewards.gives_steps, config.rewards)),
        )
        check_lag(config, objective)
        check_workers(config)
        bind_optimizer(config.train.optimizer)
        rules_of(config.watchdog)

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
        spec = TrainerSpec(
            config=config,
            path=context.start_model,
            objective_of=objective_of,
            section=config.train,
            updates=config.train,
            temperature=config.rollout.temperature,
        )
        trainer = context.place(spec, folder)
        recipe = config.data.curriculum
        stage = training_stage(
            context,
            config,
            folder,
            trainer=trainer,
            problems=context.problems("train"),
            total_steps=config.train.steps,
            curriculum=None if recipe is None else curriculum_settings(recipe),
            watchdog=config.watchdog,
        )
        evaluator = context.evaluator(trainer)
        with closing(trainer), stage as running:
            _inherit_curriculum(context, running)
            with rollout_queue(context, running, model=spec.path) as queue:

                def evaluate(step: int) -> None:
                    source = queue.evaluation(running.trainer.weights(), version=step)
                    running.tracker.evaluation(*evaluator.run(source, stage=running.folder.name, step=step))

                _train(running, queue=queue, evaluate=evaluate)
                evaluate(running.total_steps)
                return running.output


def _check_number(sources: RunSources) -> None:
    """ConfigError if data.train has fewer problems than a step of the curriculum takes."""
    num_problems, num_prompts = len(sources.source("train")), sources.config.rollout.prompts_per_step
    if num_problems < num_prompts:
        raise ConfigError(
            f"rollout.prompts_per_step = {num_prompts}: data.train has only {num_problems} problems, and with "
            "data.curriculum a step takes no problem twice. Lower rollout.prompts_per_step, or add problems to "
            "data.train."
        )


def _inherit_curriculum(context: RunContext, stage: TrainingStage) -> None:
    """Let the curriculum of a repeated stage begin with what the one before it has learned about the problems."""
    earlier = [path for name, path in context.outputs.items() if name.startswith("rl")]
    if stage.first_step == 1 and earlier:
        stage.stream.inherit(checkpoint.loop_state(Path(earlier[-1])).get("stream", {}))


def objective_of(config: Config) -> Objective:
    """The objective of the recipe's RL stage."""
    return build_objective(config.algorithm, max_response_tokens=config.rollout.max_response_tokens)


def _check_requirements(config: Config) -> None:
    """Raise ConfigError if the recipe lacks a setting that its preset requires."""
    if missing := [f"{key}: {advice}" for key, value, advice in _find_requirements(config) if value is None]:
        preset = config.algorithm["preset"]
        raise ConfigError(
            f"algorithm.preset = {preset!r} has settings outside algorithm that the recipe lacks. Add "
            f"{' and '.join(missing)}, or use preset = {PRESETS[preset]['objective_only']!r}, which is only the "
            "objective."
        )


def _requirement_lines(config: Config) -> list[str]:
    """Return the settings of the recipe that its preset requires, for `ansatz explain`."""
    lines = [f"  {key} = {value}" for key, value, _ in _find_requirements(config)]
    return ["Settings outside algorithm that belong to the preset:", *lines] if lines else []


def _find_requirements(config: Config) -> list[tuple[str, Any, str]]:
    """Return (key, value, advice) of each setting outside `algorithm` that belongs to the preset.

    A preset sets only the objective. An algorithm such as DAPO also changes what is sampled and how it is rewarded, so
    its row names what it requires. value: what the recipe has; None if it lacks it. advice: what to write.
    """
    longest, curriculum = config.rollout.max_response_tokens, config.data.curriculum or {}
    overlong = f"{{max_tokens: {longest}, buffer: {max(1, longest // 5)}}}"  # a fifth, as in the paper: 4096 of 20480
    known = {
        "dynamic_sampling": ("data.curriculum.dynamic_sampling", curriculum.get("dynamic_sampling") or None, "9"),
        "overlong": ("rewards.overlong", config.rewards.get("overlong"), overlong),
    }
    return [known[name] for name in PRESETS.get(str(config.algorithm.get("preset")), {}).get("requires", ())]


def _check_critic(config: Config) -> None:
    """ConfigError for settings of the critic that could have no effect, or that leave the policy no step."""
    critic = config.train.critic
    if not objective_of(config).needs_values:
        for name, given in (("path", critic.path is not None), ("steps_alone", critic.steps_alone > 0)):
            if given:
                raise ConfigError(
                    f"train.critic.{name} = {getattr(critic, name)!r} has no effect, because the objective has no "
                    'critic. Leave it out, or set algorithm.preset to "ppo".'
                )
    if config.train.steps and critic.steps_alone >= config.train.steps:
        raise ConfigError(
            f"train.critic.steps_alone = {critic.steps_alone}, but train.steps = {config.train.steps}: the policy "
            "would never be updated. Lower train.critic.steps_alone."
        )


def _with_own_critic(context: RunContext) -> Config:
    """The recipe, with the folder of the run's newest reward model if the critic starts from that."""
    config = context.config
    if config.train.critic.path != REWARD_MODEL:
        return config
    critic = config.train.critic.model_copy(update={"path": context.newest_reward_model})
    return config.model_copy(update={"train": config.train.model_copy(update={"critic": critic})})


def _critic_lines(config: Config) -> list[str]:
    critic = config.train.critic
    model = "newest reward model of the run" if critic.path == REWARD_MODEL else f"model {critic.path}"
    start = [] if critic.path is None else [f"  starts from the {model}"]
    alone = [f"  alone in the first {critic.steps_alone} of {config.train.steps} steps"] if critic.steps_alone else []
    return ["The critic:", *start, *alone] if start or alone else []


def _curriculum_lines(config: Config) -> list[str]:
    if config.data.curriculum is None:
        return []
    return [f"The curriculum takes the problems of a step: {curriculum_settings(config.data.curriculum).sampler}"]


def _environment_lines(config: Config) -> list[str]:
    """What the environment of the recipe does, and what its reward counts for."""
    if config.environment is None:
        return []
    turns, timeout_s = (config.environment.get(key, getattr(TurnSettings(), key)) for key in ("turns", "timeout_s"))
    lines = [
        f"The environment {config.environment.get('name')}:",
        f"  answers the turns of a response, at most {turns}, within {timeout_s} s each; its answers have no loss",
    ]
    if (reward := config.rewards.get("environment")) is not None:
        lines.append(f"  rewards each response when it has ended, with the weight {reward.get('weight', 1.0)}")
    return lines


def _train(stage: TrainingStage, *, queue: RolloutQueue, evaluate: Callable[[int], None]) -> None:
    """Make the steps that are left. evaluate: measures the policy after a step."""
    config, trainer = stage.config, stage.trainer
    peak_gb = trainer.watch_memory()
    step_tokens = StepTokens(partial(trainer.tokenizer.decode, skip_special_tokens=True))
    _evaluate_if_due(stage, evaluate, step=stage.first_step - 1)  # a signal may have cut it off
    for step in stage.steps:
        queue.open(through=step + config.rollout.lag)
        data, version = queue.gather(step), trainer.version
        start = time.perf_counter()
        samples = samples_of_groups(data.groups, step_tokens)
        batch = trainer.batch(samples, baseline_of_group=data.baseline_of_group)
        record = None
        if config.save.samples:
            record = StepRecord(data, samples, batch, trainer, step=step, find_ends=step_tokens.find_ends)
        aligned = _check_sampler(stage, queue, batch, step=step)
        report = trainer.update(batch, step=step, seed=stage.noise_seed, check_alignment=True)
        queue.publish(trainer.weights(), version=step)
        metrics = step_metrics(data, report, version=version, update_s=time.perf_counter() - start)
        metrics |= {**aligned, **queue.metrics()}
        if config.environment is not None:
            metrics |= values(environment_metrics(data.sampled))
        stage.log(step, {**metrics, "perf/peak_memory_gb": peak_gb()})
        note = no_signal_note(data.sampled, max_response_tokens=config.rollout.max_response_tokens)
        if step == 1 and note is not None:
            stage.tracker.event(step, "no_signal", note)
        if record is not None:
            stage.tracker.samples(step, record.finish())
        state, files = queue.state(), queue.files() if config.save.exact else None
        stage.reach_edge(step, state, files)
        _evaluate_if_due(stage, evaluate, step=step)
        stage.save_if_due(step, state, files)


def _check_sampler(stage: TrainingStage, queue: RolloutQueue, batch: Any, *, step: int) -> Mapping[str, float]:
    """Compare the sampler with the trainer on tokens of older weights, which are loaded for one microbatch.

    Tokens of the current weights are compared by the update itself (`train.alignment`), but with a lag there are none.
    Returns the metrics; none if the current weights have sampled the step. AlignmentError if they disagree.
    """
    load = queue.sampled_with(step)
    return {} if load is None else stage.trainer.check_against(load, batch, step=step)


def _evaluate_if_due(stage: TrainingStage, evaluate: Callable[[int], None], *, step: int) -> None:
    """Evaluate the policy after a step if `evaluate.every` asks for it. The stage itself evaluates the last step."""
    every, name = stage.config.evaluate.every, stage.folder.name
    due = every and step and step % every == 0 and step < stage.total_steps
    if due and not stage.tracker.has_evaluation(stage=name, step=step):
        evaluate(step)


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
