"""The prompt template `auto`: the one that fits a model."""

from __future__ import annotations

from pathlib import Path

from ansatz.config.chat import AUTO, Template
from ansatz.config.schema import Config
from ansatz.hub import local_folder
from ansatz.loop.model_recipe import recipe_of
from ansatz.models.load import load_tokenizer
from ansatz.prompts.templates import CHAT


def with_template(config: Config) -> tuple[Config, str]:
    """The recipe with the template that `data.template: auto` stands for, and a sentence about the choice; the recipe
    itself and an empty text if it names another template. Downloads the model, and raises what `local_folder` raises.
    """
    if config.data.template != AUTO:
        return config, ""
    if config.model.path is None or config.model.built:
        template, why = CHAT, "the tokenizer that is built has a chat template"
    else:
        folder = local_folder(config.model.path)
        has_chat_template = bool(load_tokenizer(folder).chat_template)
        template, why = choose_template(folder, has_chat_template=has_chat_template)
    data = config.data.model_copy(update={"template": template})
    return config.model_copy(update={"data": data}), f"data.template: {template} ({why})"


def choose_template(model: Path, *, has_chat_template: bool) -> tuple[Template, str]:
    """The prompt template that fits a model folder, and why: the template of the run that the folder is a checkpoint
    of, or was exported from, otherwise the tokenizer's chat template, otherwise `boxed`."""
    if (recipe := recipe_of(model, option="--template")) is not None:
        return recipe.config.data.template, f"as in {recipe.where}"
    if has_chat_template:
        return "chat", "the tokenizer has a chat template"
    return "boxed", "the tokenizer has no chat template; --template chooses another"
