"""Uses of a model that this run trains itself, after a stage `reward_model`: rewards and the critic of RL.

The rewards are `learned` and `process` without a `model`. Until the stage has made a model, they are left out, and the
other rewards of the recipe give the verdicts. RL is rewarded by the newest reward model; evaluations and the labels of
later rounds stay with the verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansatz.config.schema import REWARD_MODEL, Config
from ansatz.errors import ConfigError
from ansatz.rewards.base import rewards

LEARNED = ("learned", "process")
"""Rewards with a model that a stage of the run can train."""
Rewards = Mapping[str, Mapping[str, Any]]
"""The settings of rewards, by name."""


def list_own_rewards(recipe: Rewards) -> list[str]:
    """Return the rewards of a recipe that use the run's own model, because they name none."""
    return [name for name in LEARNED if name in recipe and recipe[name].get("model") is None]


def rewards_before(recipe: Rewards) -> Rewards:
    """Return the rewards of a recipe without those that wait for a model of the run."""
    own = list_own_rewards(recipe)
    return {name: settings for name, settings in recipe.items() if name not in own}


def rewards_with(recipe: Rewards, model: str) -> Rewards:
    """Return the rewards of a recipe with the model that the run has trained."""
    own = list_own_rewards(recipe)
    return {name: {**each, "model": model} if name in own else each for name, each in recipe.items()}


def check_own_rewards(config: Config) -> None:
    """Raise ConfigError if a reward waits for a model of the run, and no such model can come in time."""
    for name in list_own_rewards(config.rewards):
        settings = {
            key: value for key, value in config.rewards[name].items() if key not in ("weight", "deadline_s", "sources")
        }
        rewards.bind(name, settings)
        section = getattr(config, REWARD_MODEL, None)
        if section is None:
            raise ConfigError(
                f"rewards.{name} names no model, and the recipe has no stage reward_model that trains one. Set "
                f"rewards.{name}.model, or add the section reward_model."
            )
        if (section.kind == "process") != (name == "process"):
            other = "learned" if name == "process" else "process"
            raise ConfigError(
                f"rewards.{name} names no model, and reward_model.kind = {section.kind!r} trains one for the reward "
                f"{other!r}. Use that reward, or another kind."
            )
        if not rewards_before(config.rewards):
            raise ConfigError(
                f"rewards has only {name!r}, whose model is trained by this run. Its responses need verdicts: add a "
                "reward that grades answers, such as math_answer: {weight: 0}."
            )
        if not _comes_before_rl(config):
            raise ConfigError(
                f"rewards.{name} names no model, and RL comes before the stage reward_model that trains one. List "
                "reward_model before rl."
            )


def check_own_critic(config: Config) -> None:
    """Raise ConfigError if the critic waits for a model of the run, and no such model can come in time."""
    if config.train.critic.path != REWARD_MODEL:
        return
    has_section = getattr(config, REWARD_MODEL, None) is not None
    if not has_section or not _comes_before_rl(config):
        found = "no such stage" if not has_section else "that stage only after RL"
        raise ConfigError(
            f"train.critic.path = {REWARD_MODEL!r} is the reward model that the stage reward_model of this run trains, "
            f"and the recipe has {found}. Add the section reward_model and list its stage before rl, or give a folder."
        )


def _comes_before_rl(config: Config) -> bool:
    """Tell whether RL, if there is any, can use a reward model of the run from the start."""
    names = config.stage_names
    return "rl" not in names or (REWARD_MODEL in names and names.index(REWARD_MODEL) < names.index("rl"))
