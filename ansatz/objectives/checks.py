"""Checks that an objective can train: a preset gets its inputs, and groups give advantages."""

from __future__ import annotations

from collections.abc import Collection

import torch

from ansatz.errors import ConfigError
from ansatz.objectives.components import INPUTS, Component
from ansatz.objectives.objective import Objective

STEP_INPUTS = frozenset({"step_reward_T", "step_end_T"})
TRAINING_INPUTS = frozenset(INPUTS) - STEP_INPUTS
"""The inputs that every training run supplies to the components that can take them (`components.INPUTS_OF`). The inputs
of steps need a reward that rewards reasoning steps."""


def missing_inputs(objective: Objective, supplied: Collection[str]) -> list[tuple[Component, str]]:
    """List each component of the objective with an input that is not among `supplied`."""
    optional = (objective.reward_whiten, objective.whiten, objective.value)
    components = [objective.advantage, objective.ratio, objective.surrogate, *objective.correction, *objective.masks]
    components += [component for component in optional if component is not None]
    return [(component, name) for component in components for name in component.inputs if name not in supplied]


def check_recipe(
    objective: Objective, *, samples_per_prompt: int, rewards_steps: bool = False, num_rewards: int | None = None
) -> None:
    """Raise ConfigError if a training run lacks an input of the objective, or if every advantage would be 0.

    rewards_steps: whether a reward of the recipe rewards reasoning steps. num_rewards: None if it is not known.
    """
    weights = objective.advantage.settings.get("component_weights")
    if weights is not None and num_rewards not in (None, len(weights)):
        raise ConfigError(
            f"algorithm.advantage: component_weights = {list(weights)}, expected one for each of the {num_rewards} "
            "rewards of the recipe."
        )
    supplied = TRAINING_INPUTS | STEP_INPUTS if rewards_steps else TRAINING_INPUTS
    for component, name in missing_inputs(objective, supplied):
        raise ConfigError(
            f"algorithm.{component.kind} = {component.name!r} needs {INPUTS.get(name, name)} ({name}), which no reward "
            "of the recipe supplies. Add a reward of steps (process, exact_steps, or your own with GIVES_STEPS = "
            'True), or use preset = "grpo", which rewards the whole response.'
        )
    check_group_size(objective, samples_per_prompt)


def check_group_size(objective: Objective, samples_per_prompt: int) -> None:
    """Raise ConfigError if every advantage is 0 whatever the rewards; tried on two prompts with unequal rewards around
    the setting `solved`. With a teacher, there is something to learn without rewards. A user's function is not tried,
    because it can expect other rewards."""
    advantage = objective.advantage
    has_teacher = objective.needs_ref and objective.kl_to == "teacher"
    of_rewards = set(advantage.inputs) <= {"reward_N", "group_N", "length_N"}
    if has_teacher or not of_rewards or hasattr(advantage.function, "user_code"):
        return
    span, solved = max(samples_per_prompt - 1, 1), advantage.settings.get("solved", 0.5)
    ranks = [(rank + prompt) / span % 1.5 for prompt in range(2) for rank in range(samples_per_prompt)]
    reward_N = solved + (torch.tensor(ranks) - 0.5) * max(solved, 1.0)
    group_N = torch.arange(2).repeat_interleave(samples_per_prompt)
    if not advantage({"reward_N": reward_N, "group_N": group_N, "length_N": torch.ones_like(group_N)}).any():
        enough = max(advantage.settings.get("k", 1) + 1, 2)
        raise ConfigError(
            f"rollout.samples_per_prompt = {samples_per_prompt}: {advantage.name} gives every rollout "
            f'advantage 0. Use {enough} or more, or algorithm.advantage = "batch_zscore".'
        )
