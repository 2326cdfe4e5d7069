"""The requirements of RL on a recipe, and its description in `ansatz explain`."""

from __future__ import annotations

from typing import Any

from ansatz.config.schema import REWARD_MODEL, Config, RolloutSection, TrainSection
from ansatz.data.curriculum import curriculum_settings
from ansatz.environments.base import TurnSettings
from ansatz.errors import ConfigError
from ansatz.loop.workplace import workplace_of
from ansatz.objectives.build import build_objective
from ansatz.objectives.build import check_recipe as check_objective
from ansatz.objectives.explain import explain as explain_objective
from ansatz.objectives.objective import Objective
from ansatz.objectives.presets import PRESETS
from ansatz.rewards.base import rewards
from ansatz.track.rules import rules_of
from ansatz.train.optimizers import bind_optimizer

LARGEST_LAG = 8


def objective_of(config: Config) -> Objective:
    """Return the objective of the recipe's RL stage."""
    return build_objective(config.algorithm, max_response_tokens=config.rollout.max_response_tokens)


def check_rl(config: Config) -> None:
    """Raise ConfigError for an objective that cannot be built or lacks an input, and for an unknown optimizer."""
    if config.data.curriculum is not None:
        curriculum_settings(config.data.curriculum)
    _check_requirements(config)
    objective = objective_of(config)
    _check_critic(config.train, objective)
    if objective.needs_ref and objective.kl_to == "teacher" and config.teacher is None:
        raise ConfigError(
            'algorithm.kl_to = "teacher", but the recipe has no teacher. Name one, as in teacher: {path: FOLDER}.'
        )
    check_objective(
        objective,
        samples_per_prompt=config.rollout.samples_per_prompt,
        rewards_steps=any(map(rewards.gives_steps, config.rewards)),
        num_rewards=len(config.rewards) if getattr(config, REWARD_MODEL, None) is None else None,
    )
    _check_lag(config.rollout, objective)
    workplace_of(config.cluster).check(config)
    bind_optimizer(config.train.optimizer)
    rules_of(config.watchdog)


def explain_rl(config: Config) -> str:
    """Describe the objective and the other settings of the recipe, in words."""
    objective = objective_of(config)
    return "\n".join(
        [
            explain_objective(objective),
            *_critic_lines(config.train),
            *_environment_lines(config),
            *_curriculum_lines(config),
            *_requirement_lines(config),
            *_lag_lines(config.rollout),
            *workplace_of(config.cluster).explain(config),
        ]
    )


def _check_requirements(config: Config) -> None:
    """Raise ConfigError if the recipe lacks a setting that its preset requires."""
    if missing := [f"{key}: {advice}" for key, value, advice in _find_requirements(config) if value is None]:
        preset = config.algorithm["preset"]
        raise ConfigError(
            f"algorithm.preset = {preset!r} has settings outside algorithm that the recipe lacks. Add "
            f"{' and '.join(missing)}, or use preset = {PRESETS[preset]['objective_only']!r}, which is only the "
            "objective."
        )


def _requirement_lines(config: Config) -> list[str]:
    """Return the settings of the recipe that its preset requires, for `ansatz explain`."""
    lines = [f"  {key} = {value!r}" for key, value, _ in _find_requirements(config)]
    return ["Settings outside algorithm that belong to the preset:", *lines] if lines else []


def _find_requirements(config: Config) -> list[tuple[str, Any, str]]:
    """Return (key, value, advice) of each setting outside `algorithm` that belongs to the preset.

    A preset sets only the objective. An algorithm such as DAPO also changes sampling and rewards, so its row names
    these requirements. value: the recipe's value; None if it lacks the setting. advice: the value to write.
    """
    longest, curriculum = config.rollout.max_response_tokens, config.data.curriculum or {}
    overlong = f"{{max_tokens: {longest}, buffer: {max(1, longest // 5)}}}"  # a fifth, as in the paper: 4096 of 20480
    known = {
        "dynamic_sampling": ("data.curriculum.dynamic_sampling", curriculum.get("dynamic_sampling") or None, "9"),
        "overlong": ("rewards.overlong", config.rewards.get("overlong"), overlong),
        "teacher_prompt": ("teacher.prompt", (config.teacher or {}).get("prompt"), "a text with {question}"),
    }
    return [known[name] for name in PRESETS.get(str(config.algorithm.get("preset")), {}).get("requires", ())]


def _check_critic(train: TrainSection, objective: Objective) -> None:
    """Raise ConfigError for settings of the critic that could not take effect, or that leave the policy no step."""
    critic = train.critic
    if not objective.needs_values:
        for name, given in (("path", critic.path is not None), ("steps_alone", critic.steps_alone > 0)):
            if given:
                raise ConfigError(
                    f"train.critic.{name} = {getattr(critic, name)!r} has no effect, because the objective has no "
                    'critic. Leave it out, or set algorithm.preset to "ppo".'
                )
    if train.steps and critic.steps_alone >= train.steps:
        raise ConfigError(
            f"train.critic.steps_alone = {critic.steps_alone}, but train.steps = {train.steps}: the policy "
            "would never be updated. Lower train.critic.steps_alone."
        )


def _critic_lines(train: TrainSection) -> list[str]:
    critic = train.critic
    model = "newest reward model of the run" if critic.path == REWARD_MODEL else f"model {critic.path}"
    start = [] if critic.path is None else [f"  starts from the {model}"]
    alone = [f"  alone in the first {critic.steps_alone} of {train.steps} steps"] if critic.steps_alone else []
    return ["The critic:", *start, *alone] if start or alone else []


def _curriculum_lines(config: Config) -> list[str]:
    if config.data.curriculum is None:
        return []
    return [f"The curriculum takes the problems of a step: {curriculum_settings(config.data.curriculum).sampler}"]


def _environment_lines(config: Config) -> list[str]:
    """Describe the recipe's environment and its reward."""
    if config.environment is None:
        return []
    turns, timeout_s = (config.environment.get(key, getattr(TurnSettings(), key)) for key in ("turns", "timeout_s"))
    lines = [
        f"The environment {config.environment.get('name')}:",
        f"  answers the turns of a response, at most {turns}, within {timeout_s} s each; its answers have no loss",
    ]
    if (reward := config.rewards.get("environment")) is not None:
        lines.append(f"  rewards each response when it has ended, with the weight {reward.get('weight', 1.0)}")
    return lines


def _check_lag(rollout: RolloutSection, objective: Objective) -> None:
    """Raise ConfigError if the objective cannot learn from rollouts as old as the recipe makes them.

    AReaL (arXiv:2505.24298) measured a 1.5B model: with plain PPO its score fell from 42.0 to 23.3 at a lag of 4. With
    the ratio taken against the recomputed old policy and the gap to the sampler corrected (decoupled PPO), it kept 41.0
    at a lag of 8, and fell to 38.7 at 16.
    """
    if rollout.lag > LARGEST_LAG:
        raise ConfigError(
            f"rollout.lag = {rollout.lag}: above {LARGEST_LAG} training gets worse, whatever the correction. Use at "
            f"most {LARGEST_LAG}."
        )
    if rollout.lag == 0:
        return
    key = f"rollout.lag = {rollout.lag}"
    if not objective.corrects_mismatch:
        raise ConfigError(
            f"{key}: rollouts would be up to {rollout.lag} steps old, and {objective.preset} has no correction for "
            "that; training can then fail completely while its metrics look healthy. Add algorithm.correction: "
            "truncate. The ratio is then clipped against the recomputed old policy, and each token is weighted by "
            "old / behavior, at most 2 (decoupled)."
        )
    if objective.anchor == "behavior":
        raise ConfigError(
            f"{key} with algorithm.anchor = behavior: the ratio would be clipped against weights that are up to "
            f"{rollout.lag} steps old. Set algorithm.anchor: old, so that it is clipped against the recomputed old "
            "policy."
        )


def _lag_lines(rollout: RolloutSection) -> list[str]:
    """Return the lag and its effect, in a sentence; nothing without one."""
    if rollout.lag == 0:
        return []
    return [
        f"Lag {rollout.lag}: the rollouts of step s are sampled with the weights after step max(0, s - "
        f"{rollout.lag + 1}), so they are up to {rollout.lag} {'step' if rollout.lag == 1 else 'steps'} old when the "
        "step learns from them."
    ]
