"""Preference optimisation: learn from pairs of a chosen and a rejected response, without sampling during training.

    preference/        pairs.jsonl and its report, see `loop.pair_rounds`; otherwise as sft/
    preference_2/ ...  of a recipe that lists the stage several times: online rounds, each with pairs of the new policy

The pairs come from a file or a data set, or are sampled from the policy at the start of the stage. That policy is also
the reference of the losses that have one (`objectives.preference`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ansatz.config.load import parse_section
from ansatz.config.sampling import SamplingOptions
from ansatz.config.schema import Config, SftSection
from ansatz.data.given_rows import GIVEN, GivenRows, bind_given
from ansatz.data.pair_files import read_pairs
from ansatz.data.pairs import rejected_of
from ansatz.errors import ConfigError
from ansatz.loop.context import RunContext
from ansatz.loop.pair_rounds import (
    PolicyPairs,
    check_lengths,
    pair_metrics,
    pair_sampling,
    sample_pairs,
    stored_pairs,
    write_pairs,
)
from ansatz.loop.rendering import PromptRenderer
from ansatz.loop.run_sources import RunSources, accept
from ansatz.loop.stages.stage import Stage
from ansatz.loop.training_stage import TrainingStage, training_stage
from ansatz.models.reader import Reader
from ansatz.objectives.preference_objective import PreferenceObjective, build_preference_objective
from ansatz.registry import bind, settings_of, suggest
from ansatz.train.sample import TrainSample
from ansatz.types import Problem

PAIRS = "preference.pairs"
METRICS = ("train/loss", "train/tokens", "train/grad_norm", "train/lr", "train/skipped_steps")
SOURCES: dict[str, type[PolicyPairs | GivenRows]] = {"policy": PolicyPairs, **GIVEN}


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceSettings:
    """The `preference` section of a recipe.

    pairs: {source: policy, ...} samples pairs from the policy at the start of the stage, {source: file, path: ...}
        reads them from a file, {source: hub, dataset: ...} from a data set. Left out:
        {source: policy}.
    losses: the loss is the weighted sum of these, each with its settings and its `weight` (default 1.0). `likelihood`
        next to a preference loss keeps the chosen responses likely. Left out: {dpo: {}}.
    divergence: the f-divergence of the scores, such as {name: reverse_kl}.
    steps: optimizer steps. 0: as many as `epochs` takes.
    epochs: passes over the pairs, if `steps` is 0.
    batch_size: pairs in one step.
    lr: learning rate, after warm-up and before decay. null: 1e-6 with model.path, otherwise 1e-4.
    warmup_steps: steps over which the learning rate rises linearly from near 0.
    decay_steps: steps at the end over which it falls linearly to near 0.
    """

    pairs: Mapping[str, Any] = field(default_factory=lambda: {"source": "policy"})
    losses: Mapping[str, Mapping[str, Any] | None] = field(default_factory=lambda: {"dpo": {}})
    divergence: Mapping[str, Any] = field(default_factory=lambda: {"name": "reverse_kl"})
    steps: int = 0
    epochs: int = 1
    batch_size: int = 32
    lr: float | None = None
    warmup_steps: int = 5
    decay_steps: int = 0

    def schedule(self, config: Config, *, num_pairs: int) -> SftSection:
        """Learning rate, schedule and number of steps on that many pairs. ConfigError for a number out of its range."""
        lr = self.lr if self.lr is not None else (1e-4 if config.model.built else 1e-6)
        names = ("steps", "batch_size", "warmup_steps", "decay_steps")
        given = {name: getattr(self, name) for name in names} | {"epochs": 0 if self.steps else self.epochs}
        section = parse_section(SftSection, {**given, "lr": lr}, name="preference")
        if not section.trains:
            raise ConfigError("preference: 0 steps and 0 epochs teach nothing. Set preference.epochs or steps.")
        return section.resolved(num_pairs)


class PreferenceStage(Stage):
    name = "preference"

    def explain(self, config: Config) -> str:
        settings, objective = preference_settings(config), objective_of(config)
        schedule = settings.schedule(config, num_pairs=0)
        updates = f"{settings.epochs} passes over the pairs" if not settings.steps else f"{schedule.steps} steps"
        likelihood = objective.likelihood_weights
        lines = [
            "loss = mean over pairs of",
            *(f"  {weight:g} x {component.formula()}  ({component.name})" for weight, component in objective.losses),
            f"  score        {objective.divergence.formula()}, gain = log policy - log reference, summed over tokens",
            f"  reference    {'the policy at the start of the stage' if objective.needs_ref else 'none'}",
            f"  responses    {_explained_pairs(config, settings)}",
            "  weight       1 / pairs of the step",
            "  coefficient  of a token's grad log policy: the same for all tokens of a response, positive where the "
            "response is chosen",
            f"  updates      {updates}, {settings.batch_size} pairs in a step",
        ]
        if likelihood is not None:
            term = f"  - {objective.likelihood_coef:g} x sum over chosen tokens of weight x log policy, weight ="
            lines.insert(1 + len(objective.losses), f"{term} {likelihood.formula()}")
        return "\n".join(lines)

    def check(self, config: Config) -> None:
        if config.preference is None:
            return
        settings = preference_settings(config)
        settings.schedule(config, num_pairs=0)
        objective_of(config)
        if isinstance(_pair_source(settings), PolicyPairs):
            pair_sampling(config, settings.pairs, number=1)

    def input_checks(self, sources: RunSources) -> Iterable[Callable[[], object]]:
        source = _pair_source(preference_settings(sources.config))
        if not isinstance(source, PolicyPairs):
            yield partial(sources.usable_rows, read_pairs, source, key=PAIRS, check=accept)

    def check_problems(self, sources: RunSources, reader: Reader) -> None:
        settings, lengths = preference_settings(sources.config), sources.lengths(reader)
        source = _pair_source(settings)
        if not isinstance(source, PolicyPairs):
            sources.usable_rows(read_pairs, source, key=PAIRS, check=partial(check_lengths, lengths))
        else:
            limit = pair_sampling(sources.config, settings.pairs, number=1).max_response_tokens
            sources.drop_unfit("train", partial(lengths.check_prompts, max_response_tokens=limit))

    def run(self, context: RunContext, folder: Path) -> Path:
        config = context.config
        settings = preference_settings(config)
        if stored_pairs(folder) is None:
            _make_pairs(context, folder, settings)
        pairs = stored_pairs(folder)
        assert pairs is not None
        schedule = settings.schedule(config, num_pairs=len(pairs))
        one_update = config.train.model_copy(update={"updates_per_step": 1, "epochs_per_step": 1})
        trainer = context.trainer(
            context.start_model, objective_of, config=config, section=schedule, updates=one_update, folder=folder
        )
        stage = training_stage(context, config, folder, trainer=trainer, problems=pairs, total_steps=schedule.steps)
        with closing(trainer), stage as running:
            if running.first_step == 1:
                running.tracker.resume(-1)  # without this, step 0 of a run that was killed early would be logged twice
                running.tracker.log(0, pair_metrics(folder))
            _train(running, context.renderer(trainer), batch_size=settings.batch_size)
            policy = trainer.policy or context.policy(str(running.output))
            with closing(context.sampler(policy)) as sampler:
                evaluated = context.evaluator(trainer).run(sampler, stage=folder.name, step=running.total_steps)
            running.tracker.evaluation(*evaluated)
            return running.output


def preference_settings(config: Config) -> PreferenceSettings:
    """The settings of the recipe's `preference` section. ConfigError for an unknown or a wrong one."""
    assert config.preference is not None
    return bind(PreferenceSettings, config.preference, what="preference")()


def objective_of(config: Config) -> PreferenceObjective:
    """The objective of the recipe's pairs."""
    settings = preference_settings(config)
    return build_preference_objective(settings.losses, divergence=settings.divergence)


def pair_samples(pairs: Iterable[Problem], renderer: PromptRenderer) -> list[TrainSample]:
    """Two samples for each pair, which share a group: the chosen response with reward 1, the rejected one with 0."""
    samples: list[TrainSample] = []
    for group, pair in enumerate(pairs):
        for problem, reward in ((pair, 1.0), (rejected_of(pair), 0.0)):
            demonstration = renderer.demonstration(problem)
            samples.append(TrainSample.from_demonstration(demonstration, group=group, reward=reward))
    return samples


def _train(stage: TrainingStage, renderer: PromptRenderer, *, batch_size: int) -> None:
    trainer = stage.trainer
    for step in stage.steps:
        start = time.perf_counter()
        samples = pair_samples(stage.stream.take(batch_size), renderer)
        rendered = time.perf_counter()
        report = trainer.update(trainer.batch(samples), step=step)
        ended = time.perf_counter()
        metrics = {
            name: value
            for name, value in report.metrics.items()
            if name in METRICS or name.startswith(f"{PreferenceStage.name}/")
        }
        speed = {
            "time/update_s": ended - rendered,
            "time/step_s": ended - start,
            "perf/train_tokens_per_s": report.num_tokens / (ended - rendered),
        }
        stage.tracker.log(step, metrics | speed)
        stage.save_if_due(step)


def _pair_source(settings: PreferenceSettings) -> PolicyPairs | GivenRows:
    """The settings of where the pairs come from. The sampling options are read by `pair_sampling`."""
    given = {key: value for key, value in settings.pairs.items() if value is not None}
    source = given.pop("source", "policy")
    if source in GIVEN:
        return bind_given({**given, "source": source}, key=PAIRS)
    if source not in SOURCES:
        raise ConfigError(f"{PAIRS}.source = {source!r} is unknown.{suggest(str(source), SOURCES)}")
    known = {*settings_of(PolicyPairs), *SamplingOptions.model_fields}
    for key in given:
        if key not in known:
            raise ConfigError(f"{PAIRS} has no setting {key!r} with source {source}.{suggest(key, known)}")
    chosen = {key: value for key, value in given.items() if key not in SamplingOptions.model_fields}
    return bind(PolicyPairs, chosen, what=PAIRS)()


def _explained_pairs(config: Config, settings: PreferenceSettings) -> str:
    source = _pair_source(settings)
    if not isinstance(source, PolicyPairs):
        return f"pairs of {source.place}"
    samples = pair_sampling(config, settings.pairs, number=1).num_samples
    problems = f"{source.problems} problems" if source.problems else "all problems"
    return (
        f"pairs of a correct and a wrong response of the policy at the start of the stage: {samples} samples of "
        f"{problems} of data.train, at most {source.per_prompt} pairs of each, pick {source.pick}"
    )


def _make_pairs(context: RunContext, folder: Path, settings: PreferenceSettings) -> None:
    source = _pair_source(settings)
    if isinstance(source, PolicyPairs):
        number = int(folder.name.removeprefix(PreferenceStage.name).removeprefix("_") or 1)
        sample_pairs(context, folder, source, settings.pairs, number=number)
        return
    lengths = context.lengths(context.policy(context.start_model))
    pairs = context.usable_rows(read_pairs, source, key=PAIRS, check=partial(check_lengths, lengths))
    context.write_unfit(context.config.run_dir / "problems")
    write_pairs(folder, pairs, {"pairs": len(pairs)}, seconds=0.0)


STAGE = PreferenceStage()
