"""The recipe behind a model folder, and what a run settles in its own: the template for `auto`, commits of models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from ansatz.config.chat import AUTO, Template
from ansatz.config.load import RECIPE_FILE, load_recipe, load_run
from ansatz.config.schema import REWARD_MODEL, Config
from ansatz.config.stage_list import stage_entries
from ansatz.errors import ConfigError
from ansatz.hub import local_folder, pinned
from ansatz.loop.own_reward_model import LEARNED
from ansatz.loop.run_record import is_run_folder
from ansatz.models.load import load_tokenizer
from ansatz.prompts.templates import CHAT
from ansatz.trust import FoundText


class ModelRecipe(NamedTuple):
    """where: the place of the recipe, to be put after "as in"."""

    config: Config
    where: str


def recipe_of(model: Path, *, option: str, trust_code: bool | None = None) -> ModelRecipe | None:
    """Return the recipe of the run that wrote this checkpoint, with the prompt template of its stage, or the recipe
    that was exported with the model.

    None without either, and if the exported file belongs to another program. option: the option to give on the command
    line if the run's recipe cannot be read, for the ConfigError. trust_code: whether the recipe may name code; None: it
    may if this user has started the run.
    """
    for folder in model.resolve().parents:
        if is_run_folder(folder) and (folder / "config.yaml").is_file():
            stage = folder / model.resolve().relative_to(folder).parts[0]
            try:
                return _recipe_of_stage(folder, stage, trust_code=trust_code)
            except ConfigError as error:
                raise ConfigError(
                    f"{model} belongs to the run {folder}, whose {option.removeprefix('--')} cannot be read: {error} "
                    f"Give {option}."
                ) from error
    file = model / RECIPE_FILE
    if not file.is_file():
        return None
    try:
        return ModelRecipe(
            load_recipe(file, trust_code=bool(trust_code)), f"the recipe that {RECIPE_FILE} of the model holds"
        )
    except ConfigError:
        return None


def _recipe_of_stage(run: Path, stage: Path, *, trust_code: bool | None) -> ModelRecipe:
    """Return the recipe of a run with the prompt template of a stage: an entry of `stages` can have its own."""
    config, where = load_run(run, trust_code=trust_code), f"the run {run.name}"
    if config.stages is None or not (stage / "config.yaml").is_file():
        return ModelRecipe(config, where)
    template = load_run(stage, trust_code=trust_code).data.template
    if config.found_in is None:  # then its texts are the user's, which the stage's are not if it spells out defaults
        given = [entry.config.data.template for entry in stage_entries(config)]
        template = next((each for each in given if each == template), template)
    if template == config.data.template:
        return ModelRecipe(config, where)
    data = config.data.model_copy(update={"template": template})
    return ModelRecipe(config.model_copy(update={"data": data}), f"the stage {stage.name} of {where}")


def with_template(config: Config) -> tuple[Config, str]:
    """Return the recipe with the template behind `data.template: auto`, and a sentence about the choice; the recipe
    itself and an empty text if it names another template. Downloads the model; raises the errors of `local_folder`.
    """
    if config.data.template != AUTO:
        return config, ""
    if config.model.path is None or config.model.built:
        template, why = CHAT, "the tokenizer that is built has a chat template"
    else:
        folder = local_folder(config.model.path)
        has_chat_template = bool(load_tokenizer(folder).chat_template)
        template, why = choose_template(folder, has_chat_template=has_chat_template, option="--data.template")
    data = config.data.model_copy(update={"template": template})
    return config.model_copy(update={"data": data}), f"data.template: {template} ({why})"


def choose_template(
    model: Path,
    *,
    has_chat_template: bool,
    evaluates: bool = False,
    trust_code: bool | None = None,
    option: str = "--template",
) -> tuple[Template, str]:
    """Return the prompt template that fits a model folder, and the reason. It is the template of the run that wrote or
    exported the folder, otherwise the tokenizer's chat template, otherwise `boxed`. evaluates: the template of the
    run's evaluations counts, if they have one. trust_code: see `recipe_of`. option: gives another template.

    Raise ConfigError for a template with a file of worked problems if the recipe is not trusted.
    """
    if (recipe := recipe_of(model, option=option, trust_code=trust_code)) is None:
        if has_chat_template:
            return "chat", "the tokenizer has a chat template"
        return "boxed", f"the tokenizer has no chat template; {option} chooses another"
    template, why = recipe.config.data.template, f"as in {recipe.where}"
    if evaluates and recipe.config.evaluate.template is not None:
        template, why = recipe.config.evaluate.template, f"evaluate.template of {recipe.where}"
    if trust_code is None and isinstance(shots := getattr(template, "shots", None), FoundText):
        raise ConfigError(
            f"the prompt template of {recipe.where} shows worked problems of {str(shots)!r}, a file that you have not "
            f"named. Read it first, then give {option} '{template}'."
        )
    return template, why


def with_commits(config: Config) -> Config:
    """Return the recipe with a commit in each hub name, so that config.yaml and run.json name the weights that were
    used and a resumed run loads the same ones. Downloads the models, and raises the errors of `hub.local_folder`."""
    changes: dict[str, Any] = {}
    if config.model.path is not None and not config.model.built:
        of_model: dict[str, Any] = {"path": pinned(config.model.path)}
        if config.model.lora is not None:
            of_model["lora"] = _with_pinned_paths(config.model.lora, key="model.lora")
        changes["model"] = config.model.model_copy(update=of_model)
    critic = config.train.critic
    if critic.path is not None and critic.path != REWARD_MODEL:
        critic = critic.model_copy(update={"path": pinned(critic.path, key="train.critic.path")})
        changes["train"] = config.train.model_copy(update={"critic": critic})
    for (name, key), path in config.models_of_stages.items():
        section = changes.get(name, getattr(config, name))
        changes[name] = section.model_copy(update={key: pinned(path, key=f"{name}.{key}")})
    if config.teacher is not None:
        changes["teacher"] = _with_pinned_paths(config.teacher, key="teacher")
    for name in LEARNED:
        settings = config.rewards.get(name, {})
        if isinstance(settings.get("model"), str):
            model = pinned(settings["model"], key=f"rewards.{name}.model")
            changes["rewards"] = {**changes.get("rewards", config.rewards), name: {**settings, "model": model}}
    return config.model_copy(update=changes)


def _with_pinned_paths(settings: Mapping[str, Any], *, key: str) -> dict[str, Any]:
    """Return the settings with a commit in each `path`, at any depth."""
    changed = dict(settings)
    for name, value in settings.items():
        if isinstance(value, Mapping):
            changed[name] = _with_pinned_paths(cast("Mapping[str, Any]", value), key=f"{key}.{name}")
        elif name == "path" and isinstance(value, str):
            changed[name] = pinned(value, key=f"{key}.path")
    return changed
