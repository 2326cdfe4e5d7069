"""Rejection sampling: sample responses, keep correct ones, and fine-tune on them, in one or several rounds.

    rejection_1/    see `loop.selection`; otherwise as sft/: metrics, evaluations, checkpoints
    rejection_2/    ...

One round is RFT (arXiv:2308.01825). Several rounds are expert iteration: each round trains the policy of the round
before. With `from_start` each round trains the first model of the stage, as STaR does (arXiv:2203.14465). With a
`teacher` the stage is distillation of correct responses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from ansatz.config.load import parse_section
from ansatz.config.sampling import SamplingOptions
from ansatz.config.schema import Config
from ansatz.config.stages.core import SftSection
from ansatz.config.stages.rejection import RejectionSection
from ansatz.data.store import read_problems
from ansatz.environments.base import bind_environment
from ansatz.errors import ConfigError
from ansatz.evaluate.selection import Selection
from ansatz.loop.context import RunContext
from ansatz.loop.rendering import LengthChecker, PromptRenderer
from ansatz.loop.run_sources import HasTokenizer, RunSources
from ansatz.loop.selection import (
    SELECTED_FILE,
    problems_of_round,
    sample_responses,
    sampling_options,
    sampling_seconds,
    selection_metrics,
    write_selection,
)
from ansatz.loop.stages.sft import explain_fine_tuning, fine_tune, heldout_samples, objective_of
from ansatz.loop.stages.stage import Stage
from ansatz.models.load import check_folder, load_policy
from ansatz.models.reader import Reader, reader_of
from ansatz.objectives.objective import Objective
from ansatz.prompts.templates import CHAT, template_text
from ansatz.registry import bind, settings_of, suggest
from ansatz.rollout.base import Sampling


class RejectionStage(Stage):
    def folders(self, config: Config, *, before: int = 0) -> Sequence[str]:
        return [round_name(before + number) for number in range(1, config.section(RejectionSection).rounds + 1)]

    def explain(self, config: Config) -> str:
        settings, samples = config.section(RejectionSection), rejection_options(config).samples_per_prompt
        source = "the policy" if settings.teacher is None else f"the teacher {settings.teacher}"
        per_prompt = selection_of(settings).per_prompt
        return explain_fine_tuning(
            fine_tuning_config(config),
            f"correct ones of {samples} that {source} samples per problem, at most {per_prompt} of them, in "
            f"{settings.rounds} round(s); incorrect ones have coefficient 0",
        )

    def objective(self, config: Config) -> Objective:
        return objective_of(fine_tuning_config(config))

    def check(self, config: Config) -> None:
        section = config.section(RejectionSection)
        selection_of(section)
        fine_tuning_config(config)
        rejection_options(config)
        if section.template not in (None, CHAT):
            template_text(section.template)

    def input_checks(self, sources: RunSources) -> Iterable[Callable[[], object]]:
        if (teacher := sources.config.section(RejectionSection).teacher) is not None:
            yield partial(check_folder, teacher, key="rejection.teacher")

    def seconds_before(self, folder: Path) -> float:
        return sampling_seconds(folder) + super().seconds_before(folder)

    def check_problems(self, sources: RunSources, reader: Reader) -> None:
        config, lengths = sources.config, sources.lengths(reader)
        if (path := config.section(RejectionSection).teacher) is not None:
            sources.drop_unfit("train", lengths.check_prompts)
            teacher = reader_of(path, key="rejection.teacher")
            check_transcripts(config, reader, teacher)
            lengths = LengthChecker(_renderer(sources, teacher), max_context=teacher.max_context)
        limit = rejection_options(config).max_response_tokens
        sources.drop_unfit("train", partial(lengths.check_prompts, max_response_tokens=limit))
        if fine_tuning_config(config).section(SftSection).heldout_every:
            heldout_samples(sources, reader)

    def run(self, context: RunContext, folder: Path) -> Path:
        settings = context.config.section(RejectionSection)
        trained_from = context.start_model if settings.from_start else context.model
        if not (folder / SELECTED_FILE).is_file():
            _sample_and_select(
                context, folder, sampled_from=settings.teacher or context.model, trained_from=trained_from
            )
        return fine_tune(
            context,
            folder,
            config=fine_tuning_config(context.config),
            model_path=trained_from,
            problems=read_problems(folder / SELECTED_FILE),
            first_metrics=selection_metrics(folder),
        )


def fine_tuning_config(config: Config) -> Config:
    """Return the recipe with the `sft` section of a round. Raise ConfigError for a wrong key, or for 0 steps."""
    given, sft = config.section(RejectionSection).sft, config.section(SftSection)
    section = parse_section(
        SftSection, {**sft.model_dump(), "objective": "response", "responses": "last", **given}, name="sft"
    )
    if not section.trains:
        raise ConfigError(
            "rejection: a round with 0 steps of fine-tuning learns nothing. Set rejection.sft.steps or sft.steps."
        )
    return config.with_section(section)


def selection_of(section: RejectionSection) -> Selection:
    """Return the recipe's selection of responses. Raise ConfigError for a setting that is unknown or wrong."""
    known = {*RejectionSection.model_fields, *settings_of(Selection), *SamplingOptions.model_fields}
    for key in section.others:
        if key not in known:
            raise ConfigError(f"rejection has no key {key!r}.{suggest(key, known)}")
    settings = {key: value for key, value in section.others.items() if key not in SamplingOptions.model_fields}
    return bind(Selection, settings, what="rejection")()


def rejection_options(config: Config) -> SamplingOptions:
    """Return the sampling of a round: like `rollout`, with 8 samples per prompt, unless `rejection` sets others."""
    return sampling_options(config, config.section(RejectionSection).others, name="rejection")


def round_name(number: int) -> str:
    return f"rejection_{number}"


def round_sampling(config: Config, number: int) -> Sampling:
    """Return the sampling of a round. It uses the noise of the steps before the first one, which RL never uses."""
    return Sampling.of(rejection_options(config), seed=config.seed, step=-number)


def _renderer(sources: RunSources, source: HasTokenizer) -> PromptRenderer:
    """Return the renderer of the policy, or of a teacher: its tokenizer is another, and its template may be."""
    settings = sources.config.section(RejectionSection)
    if settings.teacher is None:
        return sources.renderer(source)
    return sources.build_renderer(source, template=settings.template)


def check_transcripts(config: Config, policy: HasTokenizer, teacher: HasTokenizer) -> None:
    """Raise ConfigError if the teacher's responses contain text between turns that the policy would not be shown."""
    environment = bind_environment(config.environment, template=config.data.template)
    if environment is None or not (environment.sample.tools or environment.sample.roles):
        return
    if teacher.tokenizer.chat_template != policy.tokenizer.chat_template:
        raise ConfigError(
            f"rejection.teacher: the environment {environment.name!r} answers in messages, which the teacher's chat "
            "template writes differently than that of the trained model, so the model would learn another form than "
            "its own. Use a teacher with the same chat template, or an environment whose tools are called in tags."
        )


def _sample_and_select(context: RunContext, folder: Path, *, sampled_from: str, trained_from: str) -> None:
    start, config, settings = time.perf_counter(), context.config, context.config.section(RejectionSection)
    number = int(folder.name.removeprefix("rejection_"))
    lengths = context.sources.lengths(load_policy(trained_from))
    policy = context.policy(sampled_from)
    problems = problems_of_round(context.sources.problems("train"), number=number, size=settings.problems)
    prompts = _renderer(context.sources, policy).prompts(problems)
    template = settings.template if settings.teacher is not None else None
    with closing(context.sampler(policy, template=template)) as sampler:
        responses = sample_responses(
            context,
            folder,
            prompts,
            sampler=sampler,
            sampling=round_sampling(config, number),
            batch=settings.batch,
            tokenizer=None if config.environment is None else policy.tokenizer,
        )
    write_selection(
        folder,
        responses,
        [prompt.problem for prompt in prompts],
        selection=selection_of(settings),
        seed=config.seed,
        fits=lengths.fits_demonstration,
        seconds=time.perf_counter() - start,
        any_will_do=bool(config.model.toy),  # random weights answer nothing correctly
    )
