"""The models that a recipe names, and the commits of those that are on the hub."""

from __future__ import annotations

from typing import Any

from ansatz.config.reward_model import REWARD_MODEL
from ansatz.config.schema import Config
from ansatz.hub import pinned
from ansatz.rewards.learned import LEARNED


def with_commits(config: Config) -> Config:
    """The recipe with a commit in each hub name, so that config.yaml and run.json say which weights were used and a
    resumed run loads the same ones. Downloads the models, and raises what `hub.local_folder` raises."""
    changes: dict[str, Any] = {}
    if config.model.path is not None and not config.model.built:
        path = pinned(config.model.path)
        changes["model"] = config.model.model_copy(update={"path": path})
    if config.train.critic.path not in (None, REWARD_MODEL):
        critic = config.train.critic.model_copy(
            update={"path": pinned(config.train.critic.path, key="train.critic.path")}
        )
        changes["train"] = config.train.model_copy(update={"critic": critic})
    if config.rejection is not None and config.rejection.get("teacher"):
        teacher = pinned(config.rejection["teacher"], key="rejection.teacher")
        changes["rejection"] = {**config.rejection, "teacher": teacher}
    if config.reward_model is not None and config.reward_model.path is not None:
        path = pinned(config.reward_model.path, key="reward_model.path")
        changes["reward_model"] = config.reward_model.model_copy(update={"path": path})
    for name in LEARNED:
        settings = config.rewards.get(name, {})
        if isinstance(settings.get("model"), str):
            model = pinned(settings["model"], key=f"rewards.{name}.model")
            changes["rewards"] = {**changes.get("rewards", config.rewards), name: {**settings, "model": model}}
    return config.model_copy(update=changes)
