"""A reward model of the run: sample and label responses, or read given ones, and train a classifier on them.

    reward_model/labelled.jsonl    see `data`; otherwise as sft/: metrics, checkpoints
    reward_model_2/                a second round: trains the model of the first one on, with replay of its data

A checkpoint is an ordinary classifier of transformers (`model`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ansatz.config.fields import StepEnd
from ansatz.config.load import load_run
from ansatz.config.schema import Config, ModelSection, TrainSection
from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.responses import Response
from ansatz.files import read_yaml
from ansatz.loop.builders import check_source, source_problems
from ansatz.loop.context import RunContext
from ansatz.loop.run_sources import GENERATED, RunSources, accept
from ansatz.loop.stages.stage import Stage
from ansatz.loop.trainers import check_digests, load_base
from ansatz.loop.training_stage import TrainingStage, training_stage
from ansatz.models.layers import configure_layers
from ansatz.models.load import cast, check_folder, compute_dtype
from ansatz.models.lora import bind_adapters
from ansatz.models.reader import Reader
from ansatz.models.save import export_dtype
from ansatz.reward_models.data import (
    check_given_lengths,
    given_of,
    heldout_groups,
    heldout_responses,
    labelled_groups,
    read_given,
    section_of,
)
from ansatz.reward_models.evaluation import Scorer, evaluate_on_given, evaluate_on_slips, evaluate_reward_model
from ansatz.reward_models.labelled_responses import LabelledGroup, read_labelled, samples_of, with_replay
from ansatz.reward_models.model import load_reward_model
from ansatz.reward_models.section import DECLARATION, RewardModelSection
from ansatz.reward_models.trainer import LanguageLoss, RewardModelTrainer, RewardTrainer, reads
from ansatz.rewards.reasoning_steps import check_step_end, check_steps, shown_step_end
from ansatz.track.console import percent
from ansatz.train.optim import Schedule
from ansatz.train.placement import ONE_PROCESS, Placement, use_exact_weights
from ansatz.types import Problem, Prompt

AnyTrainer = TypeVar("AnyTrainer", bound=RewardModelTrainer[Any])
_WORDS: dict[str, dict[str, str]] = read_yaml(Path(__file__).with_suffix(".yaml"))
"""The loss of each kind in words, and the console's words for each metric at the end of the stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardTrainerSpec:
    """Builds the trainer, in this process or in each rank.

    section: of the stage. path: the policy, or a reward model, that training starts from. policy: the model whose
    output embedding the language loss uses. For the other fields see `loop.trainers.TrainerSpec`.
    """

    section: RewardModelSection
    path: str
    policy: str
    model: ModelSection
    seed: int
    updates: TrainSection
    save_dtype: str

    def build(self, placement: Placement = ONE_PROCESS) -> RewardTrainer:
        """Build the trainer, or one rank of it."""
        section, settings = self.section, self.model
        check_digests(self.path)
        model = load_reward_model(
            self.path,
            reads=reads(section.kind),
            extra_layers=section.extra_layers,
            extra_width=section.extra_width,
            step_end=_read_at(section),
        )
        use_exact_weights(model, Path(self.path), partly=True)
        if (add_adapters := bind_adapters(settings.lora, seed=self.seed)) is not None:
            model = add_adapters(model)
        dtype = compute_dtype(settings.dtype, model.device)
        language = None
        if section.lm_coef:
            policy = load_base(settings, self.policy)
            cast(policy, dtype)
            language = LanguageLoss(policy.head.weight.detach(), section.lm_coef, policy.softcap)
        configure_layers(model, checkpointing=settings.checkpointing, compiled=settings.compile)
        return RewardTrainer(
            model,
            kind=section.kind,
            settings=self.updates,
            dtype=dtype,
            schedule=Schedule.of(section, self.updates.decay),
            language=language,
            export_dtype=export_dtype(self.save_dtype, self.path),
            placement=placement,
        )


class RewardModelStage(Stage):
    makes_policy = False

    def explain(self, config: Config) -> str:
        section = section_of(config)
        samples, given = section.samples_per_prompt, given_of(section, "data")
        responses = f"{samples} of the policy to each of {section.problems or 'all'} problems"
        language = f" - {section.lm_coef:g} x mean over tokens of correct responses of log p" if section.lm_coef else ""
        lines = [
            f"loss = {_WORDS['losses'][section.kind]}{language}",
            f"  responses    {responses if given is None else f'of {given.place}, with their labels'}",
            f"  updates      {section.steps} steps of {section.batch_size} problems",
        ]
        if config.model.lora is not None:
            lines.append("  trained      adapters and the score head")
        if section.kind == "process":
            rollouts = f"{section.labels}, by {section.step_rollouts} completions from each step"
            if given is None:
                lines.append(f"  labels       {'exact, by the generator' if section.labels == 'exact' else rollouts}")
            lines.append(f"  steps        end at: {shown_step_end(section.step_end)}")
        return "\n".join(lines)

    def check(self, config: Config) -> None:
        section = section_of(config)
        if config.model.lora is not None and section.extra_layers:
            raise ConfigError(
                f"reward_model.extra_layers = {section.extra_layers} with model.lora: either extra layers are trained "
                "or adapters. Set reward_model.extra_layers to 0, or leave model.lora out."
            )
        if config.model.quantize is not None:
            raise ConfigError(
                f"model.quantize = {config.model.quantize} with the section reward_model: reward models are trained "
                "from whole weights only. Leave one of the two out."
            )
        check_step_end(section.step_end, key="reward_model.step_end")
        given = given_of(section, "data")
        given_of(section, "heldout_data")
        if given is None and section.samples_per_prompt == 1 and section.kind == "bradley_terry":
            raise ConfigError(
                "reward_model.samples_per_prompt = 1: bradley_terry compares responses to the same problem. Use 2 or "
                "more, or set reward_model.kind to correctness."
            )
        if section.slips is not None:
            check_source(section.slips, key="reward_model.slips")

    def input_checks(self, sources: RunSources) -> Iterable[Callable[[], object]]:
        section = section_of(sources.config)
        if section.path is not None:
            yield partial(check_folder, section.path, key="reward_model.path")
        for key in ("data", "heldout_data"):
            yield partial(read_given, sources, key, check=accept)
        if section.data is None and section.kind == "process" and section.labels == "exact":
            yield lambda: check_steps(sources.source("train")[:GENERATED])
        if section.slips is not None:
            yield partial(_slips, sources.config)

    def check_problems(self, sources: RunSources, reader: Reader) -> None:
        section, lengths = section_of(sources.config), sources.lengths(reader)
        for key in ("data", "heldout_data"):
            read_given(sources, key, check=check_given_lengths(sources.config, lengths))
        if section.data is None:
            check = partial(lengths.check_prompts, max_response_tokens=section.max_response_tokens)
            sources.drop_unfit("train", check)

    def run(self, context: RunContext, folder: Path) -> Path:
        config, section = context.config, section_of(context.config)
        groups = labelled_groups(context, folder)
        prompts, responses = heldout_responses(context, folder)
        heldout = heldout_groups(context, folder)
        earlier = context.outputs_of(DECLARATION.name)
        rounds = [config.run_dir / output.folder for output in earlier]
        replayed = _replayed(rounds, by_step=section.kind == "process")
        groups = with_replay(groups, replayed, frac=section.replay, key=(config.seed, "replay"))
        start = earlier[-1].path if earlier else context.model
        if section.path is not None:
            start = str(check_folder(section.path, key="reward_model.path"))
        spec = RewardTrainerSpec(
            section=section,
            path=start,
            policy=context.model,
            model=config.model,
            seed=config.seed,
            updates=config.train,
            save_dtype=config.save.dtype,
        )
        trainer = context.workplace.place(spec, folder)
        stage = training_stage(
            context, config, folder, trainer=trainer, problems=list(map(_as_problem, groups)), total_steps=section.steps
        )
        with closing(trainer), stage as running:
            _train(running, groups, lambda: _evaluated(context, trainer, prompts, responses, heldout))
            return running.output


def _train(
    stage: TrainingStage[AnyTrainer],
    groups: Sequence[LabelledGroup],
    evaluate: Callable[[], dict[str, float]],
) -> None:
    trainer, by_id = stage.trainer, {group.id: group for group in groups}
    tokenizer, section = trainer.tokenizer, section_of(stage.config)
    every_token = section.kind != "bradley_terry"  # pairs are compared at the end
    for step in stage.steps:
        start = time.perf_counter()
        taken = stage.stream.take(section.batch_size)
        samples = [
            sample
            for number, problem in enumerate(taken)
            for sample in samples_of(
                by_id[problem.id], tokenizer, number=number, step_end=_read_at(section), every_token=every_token
            )
        ]
        report = trainer.update(trainer.batch(samples), step=step)
        seconds = time.perf_counter() - start
        speed = {"time/step_s": seconds, "perf/train_tokens_per_s": report.num_tokens / seconds}
        stage.tracker.log(step, report.metrics | speed | (evaluate() if step == stage.total_steps else {}))
        stage.save_if_due(step)


def _evaluated(
    context: RunContext,
    trainer: RewardModelTrainer[Any],
    prompts: Sequence[Prompt],
    responses: Sequence[Sequence[Response]],
    heldout: Sequence[LabelledGroup],
) -> dict[str, float]:
    section, numbers = section_of(context.config), dict[str, float]()
    scorer = Scorer(
        score_samples=trainer.score_samples,
        tokenizer=trainer.tokenizer,
        kind=section.kind,
        step_end=_read_at(section),
    )
    if prompts:
        numbers |= evaluate_reward_model(scorer, prompts, responses)
    if heldout:
        numbers |= evaluate_on_given(scorer, heldout)
    if section.slips is not None:
        slips = _slips(context.config)
        numbers |= evaluate_on_slips(scorer, context.sources.renderer(trainer).prompts(slips))
    shown = [f"{label} {percent(numbers[name])}" for name, label in _WORDS["headlines"].items() if name in numbers]
    if context.console is not None and shown:
        context.console.note(f"reward model: {', '.join(shown)}")
    return numbers


def _read_at(section: RewardModelSection) -> StepEnd | None:
    """Return the setting for the ends of steps, where the model is read; None if it reads whole responses."""
    return section.step_end if section.kind == "process" else None


def _slips(config: Config) -> Sequence[Problem]:
    """Return the problems of reward_model.slips. Raise DataError if one cannot be used."""
    section = section_of(config).slips
    assert section is not None
    problems = source_problems(section, key="reward_model.slips")
    check_steps(problems)
    if any(problem.solution is None for problem in problems):
        raise DataError("reward_model.slips has problems without a worked solution. Use the source word_problems.")
    return problems


def _replayed(rounds: Sequence[Path], *, by_step: bool) -> list[LabelledGroup]:
    """Return the groups of earlier rounds, with ids that this round does not use. Only rounds that labelled the same
    unit count: steps, or whole responses."""
    same = [folder for folder in rounds if (section_of(load_run(folder)).kind == "process") == by_step]
    return [replace(group, id=f"{group.id}@{folder.name}") for folder in same for group in read_labelled(folder) or ()]


def _as_problem(group: LabelledGroup) -> Problem:
    """Return a problem for the stream, which draws the batches of a stage and is part of its checkpoints."""
    return Problem(id=group.id, question=group.prompt, source=DECLARATION.name, split="train")
