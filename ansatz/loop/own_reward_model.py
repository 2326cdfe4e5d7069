"""What uses a model that this run trains itself, after a stage `reward_model`: rewards and the critic of RL.

The rewards are `learned` and `process` without a `model`. Until the stage has made a model, they are left out, and the
other rewards of the recipe give the verdicts. RL is rewarded by the newest reward model; evaluations and the labels of
later rounds stay with the verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansatz.config.schema import REWARD_MODEL, Config
from ansatz.config.stages.reward_model import RewardModelSection
from ansatz.errors import ConfigError
from ansatz.rewards.base import rewards
from ansatz.rewards.learned import LEARNED

Recipe = Mapping[str, Mapping[str, Any]]


def own_rewards(recipe: Recipe) -> list[str]:
    """The rewards of a recipe that use the run's own model."""
    return [name for name in LEARNED if name in recipe and recipe[name].get("model") is None]


def rewards_before(config: Config) -> Recipe:
    """The rewards of the recipe without those that wait for a model of the run."""
    own = own_rewards(config.rewards)
    return {name: settings for name, settings in config.rewards.items() if name not in own}


def rewards_with(config: Config, model: str) -> Recipe:
    """The rewards of the recipe with the model that the run has trained."""
    own = own_rewards(config.rewards)
    return {name: {**each, "model": model} if name in own else each for name, each in config.rewards.items()}


def check_own_rewards(config: Config) -> None:
    """ConfigError if the recipe has a reward that waits for a model of the run, and no such model can come in time."""
    for name in own_rewards(config.rewards):
        settings = {key: value for key, value in config.rewards[name].items() if key not in ("weight", "deadline_s")}
        rewards.bind(name, settings)
        if not config.has_section(RewardModelSection):
            raise ConfigError(
                f"rewards.{name} names no model, and the recipe has no stage reward_model that trains one. Set "
                f"rewards.{name}.model, or add the section reward_model."
            )
        section = config.section(RewardModelSection)
        if (section.kind == "process") != (name == "process"):
            other = "learned" if name == "process" else "process"
            raise ConfigError(
                f"rewards.{name} names no model, and reward_model.kind = {section.kind!r} trains one for the reward "
                f"{other!r}. Use that reward, or another kind."
            )
        if not rewards_before(config):
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
    """ConfigError if the critic waits for a model of the run, and no such model can come in time."""
    if config.train.critic.path != REWARD_MODEL:
        return
    has_section = config.has_section(RewardModelSection)
    if not has_section or not _comes_before_rl(config):
        found = "no such stage" if not has_section else "that stage only after RL"
        raise ConfigError(
            f"train.critic.path = {REWARD_MODEL!r} is the reward model that the stage reward_model of this run trains, "
            f"and the recipe has {found}. Add the section reward_model and list its stage before rl, or give a folder."
        )


def _comes_before_rl(config: Config) -> bool:
    """Whether RL, if there is any, has a reward model of the run from the start."""
    names = config.stage_names
    return "rl" not in names or (REWARD_MODEL in names and names.index(REWARD_MODEL) < names.index("rl"))
