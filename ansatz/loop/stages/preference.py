"""Preference optimisation: learn from pairs of a chosen and a rejected response, without sampling during training.

    preference/        pairs.jsonl and its report, see `loop.pair_rounds`; otherwise as sft/
    preference_2/ ...  of a recipe that lists the stage several times: online rounds, each with pairs of the new policy

The pairs come from a file or a data set, or are sampled from the policy at the start of the stage. That policy is also
the reference, if a loss uses one (`objectives.preference`). KTO learns from labelled responses of a file, or from
both responses of each pair.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

from ansatz.config.sampling import SamplingOptions
from ansatz.config.schema import Config
from ansatz.config.stages.preference import POLICY, PREFERENCE, PreferenceSection
from ansatz.data.given_rows import GIVEN, GivenRows, bind_given
from ansatz.data.label_files import LABELS, read_unpaired, with_mismatched
from ansatz.data.pair_files import read_pairs
from ansatz.data.pairs import rejected_of
from ansatz.data.store import read_problems
from ansatz.errors import ConfigError
from ansatz.loop.context import RunContext
from ansatz.loop.pair_rounds import (
    PolicyPairs,
    check_lengths,
    pair_metrics,
    pair_sampling,
    sample_pairs,
    usable_rows,
)
from ansatz.loop.rendering import PromptRenderer
from ansatz.loop.run_sources import Check, RunSources, accept
from ansatz.loop.selection import PAIRS_FILE, sampling_seconds, write_taught
from ansatz.loop.stages.sft import evaluate_output, update_timed
from ansatz.loop.stages.stage import Stage
from ansatz.loop.training_stage import TrainingStage, training_stage
from ansatz.models.reader import Reader
from ansatz.objectives.preference_objective import PreferenceObjective, build_preference_objective
from ansatz.registry import bind, settings_of, suggest
from ansatz.train.sample import TrainSample
from ansatz.types import Problem

PAIRS = "preference.pairs"
METRICS = ("train/loss", "train/tokens", "train/grad_norm", "train/lr", "train/skipped_steps")
SOURCES: dict[str, type[PolicyPairs | GivenRows]] = {POLICY: PolicyPairs, **GIVEN}


class PreferenceStage(Stage):
    def explain(self, config: Config) -> str:
        settings, objective = config.section(PreferenceSection), objective_of(config)
        schedule = settings.schedule(num_pairs=0, is_built=config.model.built)
        learned, good = ("labelled responses", "desirable") if objective.unpaired else ("pairs", "chosen")
        updates = f"{settings.epochs} passes over the {learned}" if not settings.steps else f"{schedule.steps} steps"
        likelihood = objective.likelihood_weights
        score = "gain         " if objective.unpaired else f"score        {objective.divergence.formula()}, gain = "
        lines = [
            f"loss = mean over {learned} of",
            *(f"  {weight:g} x {component.formula()}  ({component.name})" for weight, component in objective.losses),
            f"  {score}log policy - log reference, summed over tokens",
            f"  reference    {'the policy at the start of the stage' if objective.needs_ref else 'none'}",
            f"  responses    {_explained_pairs(config, settings)}",
            f"  weight       1 / {learned} of the step",
            "  coefficient  of a token's grad log policy: the same for all tokens of a response, positive where the "
            f"response is {good}",
            f"  updates      {updates}, {settings.batch_size} {learned} in a step",
        ]
        if likelihood is not None:
            term = f"  - {objective.likelihood_coef:g} x sum over {good} tokens of weight x log policy, weight ="
            lines.insert(1 + len(objective.losses), f"{term} {likelihood.formula()}")
        return "\n".join(lines)

    def objective(self, config: Config) -> PreferenceObjective:
        return objective_of(config)

    def check(self, config: Config) -> None:
        settings = config.section(PreferenceSection)
        objective_of(config)
        if isinstance(_pair_source(settings), PolicyPairs):
            pair_sampling(config, settings.pairs, number=1)

    def input_checks(self, sources: RunSources) -> Iterable[Callable[[], object]]:
        source = _pair_source(sources.config.section(PreferenceSection))
        if not isinstance(source, PolicyPairs):
            yield partial(_read_given, sources, source, accept)

    def seconds_before(self, folder: Path) -> float:
        return sampling_seconds(folder) + super().seconds_before(folder)

    def check_problems(self, sources: RunSources, reader: Reader) -> None:
        settings, lengths = sources.config.section(PreferenceSection), sources.lengths(reader)
        source = _pair_source(settings)
        if not isinstance(source, PolicyPairs):
            _read_given(sources, source, partial(check_lengths, lengths))
        else:
            limit = pair_sampling(sources.config, settings.pairs, number=1).max_response_tokens
            sources.drop_unfit("train", partial(lengths.check_prompts, max_response_tokens=limit))

    def run(self, context: RunContext, folder: Path) -> Path:
        config = context.config
        settings = config.section(PreferenceSection)
        if not (folder / PAIRS_FILE).is_file():
            _make_pairs(context, folder, settings)
        pairs, unpaired = read_problems(folder / PAIRS_FILE), objective_of(config).unpaired
        pairs = with_mismatched(pairs) if unpaired else pairs
        schedule = settings.schedule(num_pairs=len(pairs), is_built=config.model.built)
        of_rl = {"updates_per_step": 1, "epochs_per_step": 1, "reference_update_interval": 0}
        one_update = config.train.model_copy(update=of_rl)
        objective = partial(_build_objective, settings)
        path = context.start_model
        trainer = context.trainer(folder, path=path, objective=objective, schedule=schedule, updates=one_update)
        stage = training_stage(context, config, folder, trainer=trainer, problems=pairs, total_steps=schedule.steps)
        with closing(trainer), stage as running:
            if running.first_step == 1:
                running.tracker.resume(-1)  # without this, step 0 of a run that was killed early would be logged twice
                running.tracker.log(0, pair_metrics(folder))
            _train(running, context.sources.renderer(trainer), batch_size=settings.batch_size, unpaired=unpaired)
            return evaluate_output(context, running)


def objective_of(config: Config) -> PreferenceObjective:
    """Return the objective of the recipe's pairs."""
    return _build_objective(config.section(PreferenceSection))


def _build_objective(section: PreferenceSection) -> PreferenceObjective:
    return build_preference_objective(section.losses or {"dpo": {}}, divergence=section.divergence)


def pair_samples(pairs: Iterable[Problem], renderer: PromptRenderer, *, unpaired: bool = False) -> list[TrainSample]:
    """Return two samples for each pair, which share a group: the chosen response with reward 1, the other with 0.

    unpaired: they come from `with_mismatched`, and a response that is labelled undesirable has the reward -1.
    """
    samples: list[TrainSample] = []
    for group, pair in enumerate(pairs):
        label = -1.0 if unpaired and not pair.meta[LABELS][0] else 1.0
        for problem, reward in ((pair, label), (rejected_of(pair), 0.0)):
            demonstration = renderer.demonstration(problem)
            samples.append(TrainSample.from_demonstration(demonstration, group=group, reward=reward))
    return samples


def _train(stage: TrainingStage, renderer: PromptRenderer, *, batch_size: int, unpaired: bool) -> None:
    for step in stage.steps:
        start = time.perf_counter()
        samples = pair_samples(stage.stream.take(batch_size), renderer, unpaired=unpaired)
        report, speed = update_timed(stage, samples, step=step, start=start)
        metrics = {
            name: value
            for name, value in report.metrics.items()
            if name in METRICS or name.startswith(f"{PREFERENCE.name}/")
        }
        stage.log(step, metrics | speed)
        stage.save_if_due(step)


def _pair_source(settings: PreferenceSection) -> PolicyPairs | GivenRows:
    """Return the settings of the pairs' source. `pair_sampling` reads the sampling options."""
    given = {key: value for key, value in settings.pairs.items() if value is not None}
    source = given.pop("source", POLICY)
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


def _read_given(sources: RunSources, source: GivenRows, check: Check) -> list[Problem]:
    """Return the pairs that a file or data set has, or the labelled responses and pairs for a loss on these."""
    if not objective_of(sources.config).unpaired:
        return usable_rows(sources, read_pairs, source, key=PAIRS, check=check)
    problems = usable_rows(sources, read_unpaired, source, key=PAIRS, check=check)
    check(with_mismatched(problems))
    return problems


def _explained_pairs(config: Config, settings: PreferenceSection) -> str:
    source = _pair_source(settings)
    if not isinstance(source, PolicyPairs):
        return f"{'labelled responses' if objective_of(config).unpaired else 'pairs'} of {source.place}"
    samples = pair_sampling(config, settings.pairs, number=1).num_samples
    problems = f"{source.problems} problems" if source.problems else "all problems"
    return (
        f"pairs of a correct and a wrong response of the policy at the start of the stage: {samples} samples of "
        f"{problems} of data.train, at most {source.per_prompt} pairs of each, pick {source.pick}"
    )


def _make_pairs(context: RunContext, folder: Path, settings: PreferenceSection) -> None:
    source = _pair_source(settings)
    if isinstance(source, PolicyPairs):
        number = int(folder.name.removeprefix(PREFERENCE.name).removeprefix("_") or 1)
        sample_pairs(context, folder, source, settings.pairs, number=number)
        return
    lengths = context.sources.lengths(context.policy(context.start_model))
    pairs = _read_given(context.sources, source, partial(check_lengths, lengths))
    context.sources.write_unfit()
    write_taught(folder / PAIRS_FILE, pairs, {"pairs": len(pairs)}, seconds=0.0)
