"""The models that a recipe names, and the commits of those that are on the hub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ansatz.config.schema import REWARD_MODEL, Config
from ansatz.hub import pinned
from ansatz.loop.own_reward_model import LEARNED


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
