"""RL with a teacher: the stage `rl` of a recipe with the section `teacher`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ansatz.config.schema import Config
from ansatz.data.generated import LazyProblems
from ansatz.errors import ConfigError
from ansatz.loop.context import RunContext
from ansatz.loop.rendering import PromptRenderer
from ansatz.loop.rl_checks import objective_of
from ansatz.loop.run_sources import RunSources
from ansatz.loop.stages.rl import RlStage, SamplesOf
from ansatz.loop.trainers import TrainerSpec
from ansatz.models.load import check_folder
from ansatz.models.reader import Reader, reader_of
from ansatz.teachers.prompts import TeacherPrompts, check_prompt
from ansatz.teachers.settings import ONLY, TeacherSettings, key_of, name_of, teachers_of
from ansatz.teachers.trainer import TaughtSpec, check_tokens
from ansatz.train.trainer import Trainer


class TaughtRlStage(RlStage):
    """RL whose KL is to a teacher. `loop.stages.stage.Stage` says when each method is called."""

    def check(self, config: Config) -> None:
        super().check(config)
        teachers, objective = teachers_of(config), objective_of(config)
        for teacher in teachers.values():
            if teacher.prompt is not None:
                check_prompt(teacher.prompt)
        if not objective.needs_ref or objective.kl_to != "teacher":
            raise ConfigError(
                "the section teacher has no effect, because the objective has no KL to a teacher. Set algorithm.kl_to: "
                "teacher and algorithm.kl_coef above 0, or a preset for distillation, such as opd."
            )
        if config.train.reference_update_interval:
            raise ConfigError(
                "train.reference_update_interval makes the policy the reference; a teacher follows the policy with "
                "teacher.average. Set it to 0."
            )
        if config.model.lora is not None and any(teacher.average for teacher in teachers.values()):
            raise ConfigError("teacher.average with model.lora: only a model without adapters is averaged. Remove one.")
        if len({teacher.average for teacher in teachers.values() if teacher.path is None}) > 1:
            raise ConfigError(
                "teacher.average differs between the teachers without a path, which are one model: the policy at the "
                "start of the stage, or its average. Give all of them the same."
            )
        if len(teachers) > 1 and config.cluster.trainers:
            raise ConfigError(
                "teacher.by_source with cluster.trainers: ranks share a single teacher. Set cluster.trainers to 0."
            )

    def explain(self, config: Config) -> str:
        lines = [line for name, teacher in teachers_of(config).items() for line in _describe(name, teacher)]
        return "\n".join([super().explain(config), "The teacher, which reads the policy's responses:", *lines])

    def input_checks(self, sources: RunSources) -> Iterable[Callable[[], object]]:
        yield from super().input_checks(sources)
        for name, teacher in teachers_of(sources.config).items():
            if teacher.path is not None:
                yield partial(check_folder, teacher.path, key=key_of(name))

    def check_problems(self, sources: RunSources, reader: Reader) -> None:
        super().check_problems(sources, reader)
        teachers, renderer = teachers_of(sources.config), sources.renderer(reader)
        _check_names(teachers, sources)
        contexts = dict.fromkeys(teachers, reader.max_context)
        for name, teacher in teachers.items():
            if teacher.path is not None:
                found = reader_of(teacher.path, key=key_of(name))
                check_tokens(found.tokenizer, reader.tokenizer, teacher.path, name=name)
                contexts[name] = found.max_context
        if any(teacher.prompt is not None for teacher in teachers.values()):
            prompts = _prompts(teachers, contexts, reader.tokenizer, renderer)
            check = partial(_check_each, prompts, renderer)
            sources.drop_unfit("train", check)

    def spec(self, config: Config) -> Callable[..., TrainerSpec]:
        return partial(TaughtSpec, teachers=teachers_of(config))

    def samples_of(self, context: RunContext, trainer: Trainer[Any]) -> SamplesOf:
        teachers, own = teachers_of(context.config), context.start_model
        contexts = {name: reader_of(teacher.path or own).max_context for name, teacher in teachers.items()}
        return _prompts(teachers, contexts, trainer.tokenizer, context.sources.renderer(trainer)).samples


def _check_names(teachers: dict[str, TeacherSettings], sources: RunSources) -> None:
    """Raise ConfigError for a name of `by_source` that no problem of data.train has."""
    if len(teachers) == 1 or isinstance(problems := sources.source("train"), LazyProblems):
        return  # a generator has too many problems to look at each
    used = {name_of(problem, teachers) for problem in problems}
    for name in sorted(teachers.keys() - used - {ONLY}):
        raise ConfigError(
            f"teacher.by_source.{name}: no problem of data.train has this source, topic or level. Correct the name, or "
            "remove it."
        )


def _check_each(prompts: TeacherPrompts, renderer: PromptRenderer, problems: Iterable[Any]) -> None:
    for problem in problems:
        prompt = renderer.prompt(problem)
        prompts.check(prompt.problem, prompt.token_ids)


def _prompts(
    teachers: dict[str, TeacherSettings], contexts: dict[str, int], tokenizer: Any, renderer: PromptRenderer
) -> TeacherPrompts:
    room = {name: context - renderer.max_response_tokens for name, context in contexts.items()}
    return TeacherPrompts(teachers=teachers, tokenizer=tokenizer, template=renderer.template, max_tokens=room)


def _describe(name: str, teacher: TeacherSettings) -> list[str]:
    follows = f"the moving average of the policy, {teacher.average:g} of it kept at each step"
    itself = follows if teacher.average else "the policy at the start of the stage"
    lines = [f"  {'model' if name == ONLY else f'for {name}':11} {teacher.path or itself}"]
    if teacher.temperature is not None:
        lines.append(f"  temperature {teacher.temperature:g}")
    if teacher.prompt is not None:
        lines.append(f"  reads       {teacher.prompt!r} instead of the question, and then the same response")
    return lines
