"""What a recipe names, built: its problems and its model where that is made here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ansatz.config.schema import Config
from ansatz.data.base import load_problems
from ansatz.errors import ConfigError
from ansatz.models.plan import recipe_shape
from ansatz.models.tiny import build_random_model, build_tiny_model
from ansatz.prompts.templates import CHAT, QUESTION, template_text
from ansatz.registry import bind
from ansatz.types import Problem

TOKENIZER_PROBLEMS = 4000  # enough for every name and phrase of a generator; more only cost time


def model_builder(config: Config) -> Callable[..., Any]:
    """What builds the recipe's model in a folder out of texts, where it is built: `tiny`, or with model.toy the
    architecture of model.path at toy size."""
    model = config.model
    if model.path is None or not model.toy:
        return bind(build_tiny_model, {"seed": config.seed, **model.tiny}, what="model.tiny")
    return functools.partial(build_random_model, shape=recipe_shape(config), seed=config.seed)


def tokenizer_texts(problems: Sequence[Problem], template: str) -> list[str]:
    """Prompts and solutions as the policy will see them, enough of them to learn a tokenizer from."""
    text = template_text("boxed" if template == CHAT else template)
    return [text.replace(QUESTION, one.question) + (one.solution or "") for one in problems[:TOKENIZER_PROBLEMS]]


def source_problems(section: dict[str, Any], *, key: str) -> Sequence[Problem]:
    """The problems of one `data` entry: {source: NAME, split: SPLIT, ...settings}."""
    settings = dict(section)
    try:
        source, split = settings.pop("source"), settings.pop("split")
    except KeyError as missing:
        raise ConfigError(
            f"{key} lacks {missing}; give source (such as word_problems or jsonl) and split."
        ) from missing
    for name, value in (("source", source), ("split", split)):
        if not isinstance(value, str):
            raise ConfigError(f"{key}.{name} = {value!r}: expected a name.")
    return load_problems(source, split=split, settings=settings)
