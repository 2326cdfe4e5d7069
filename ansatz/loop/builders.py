"""Builds the parts that a recipe names: its problems, and its model if it is built here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansatz.config.chat import Template
from ansatz.config.schema import Config
from ansatz.data.base import bind_source, load_problems
from ansatz.errors import ConfigError
from ansatz.loop.own_reward_model import rewards_before
from ansatz.models.reader import reader_of
from ansatz.models.tiny import TinyModel, build_random_model, build_tiny_model, recipe_shape, train_tokenizer
from ansatz.prompts.templates import QUESTION, spelled_out, template_text
from ansatz.registry import bind
from ansatz.rewards.grader import RewardGrader, build_grader
from ansatz.types import Problem

TOKENIZER_PROBLEMS = 4000  # enough for every name and phrase of a generator; more only cost time


def model_builder(config: Config) -> Callable[..., Any]:
    """Return the function that builds the recipe's model: builder(folder, texts=...). texts: for its tokenizer, or the
    tokenizer itself.

    The model is `model.tiny`, or with model.toy the architecture of model.path at toy size.
    """
    model = config.model
    if model.path is None or not model.toy:
        tiny = bind(TinyModel, {"seed": config.seed, **model.tiny}, what="model.tiny")()
        recipe_shape(config)  # sizes that do not fit together are refused now, not when the model is built
        return functools.partial(build_tiny_model, **asdict(tiny))
    return functools.partial(build_random_model, shape=recipe_shape(config), seed=config.seed)


def built_tokenizer(config: Config, problems: Sequence[Problem]) -> Any:
    """Return the tokenizer of a model that is built: its teacher's, because both must have the same tokens, or one that
    is trained on the problems."""
    teacher = config.teacher or {}
    paths = (each.get("path") for each in (teacher, *(teacher.get("by_source") or {}).values()))
    if (path := next(filter(None, paths), None)) is not None:
        return reader_of(path, key="teacher.path").tokenizer
    shape = recipe_shape(config)
    texts = tokenizer_texts(problems, config.data.template)
    return train_tokenizer(texts, vocab_size=shape.vocab_size, max_context=shape.max_context)


def tokenizer_texts(problems: Sequence[Problem], template: Template) -> list[str]:
    """Return prompts and solutions as the policy will see them, enough of them to learn a tokenizer from."""
    template = spelled_out(template)
    usual = template if isinstance(template, str) else template.user
    return [
        template_text(problem.template or usual).replace(QUESTION, problem.question) + (problem.solution or "")
        for problem in problems[:TOKENIZER_PROBLEMS]
    ]


def graders_of(config: Config) -> tuple[RewardGrader, RewardGrader]:
    """Return the grader of the run, and the grader of its evaluations. The second also applies the rewards of
    `evaluate.rewards`, with weight 0. Both are the same if there are none."""
    recipe, more, workers = rewards_before(config.rewards), config.evaluate.rewards, config.grader_workers
    for name, settings in more.items():
        if name in recipe or "weight" in settings:
            fault = "is in rewards already" if name in recipe else "has a weight, but it does not train"
            raise ConfigError(f"evaluate.rewards.{name} {fault}. Remove it.")
    grader = build_grader(recipe, workers=workers)
    if not more:
        return grader, grader
    more = {name: {**settings, "weight": 0.0} for name, settings in more.items()}
    return grader, build_grader({**recipe, **more}, workers=workers)


def source_problems(section: Mapping[str, Any], *, key: str) -> Sequence[Problem]:
    """Load the problems of one section of `data`: {source: NAME, split: SPLIT, ...settings of the source}. Without a
    split, problems to learn from are of `train`, and all others of `heldout`."""
    source, split, settings = _source(section, key=key)
    return load_problems(source, split=split, settings=settings)


def check_source(section: Mapping[str, Any], *, key: str) -> None:
    """Raise ConfigError for an unknown source or setting, or a missing one. Reads no problem."""
    source, _, settings = _source(section, key=key)
    bind_source(source, settings)


def _source(section: Mapping[str, Any], *, key: str) -> tuple[str, str, dict[str, Any]]:
    settings: dict[str, Any] = {"split": "train" if key in ("data.sft", "data.train") else "heldout", **section}
    if "source" not in settings:
        raise ConfigError(f"{key}.source is missing. Give one, such as word_problems or jsonl.")
    for name in ("source", "split"):
        if not isinstance(settings[name], str):
            raise ConfigError(f"{key}.{name} = {settings[name]!r}: expected a name.")
    return settings.pop("source"), settings.pop("split"), settings
