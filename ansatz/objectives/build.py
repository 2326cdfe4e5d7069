"""From a recipe's `algorithm:` section to an Objective, and checks that it can train."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
import yaml

from ansatz.errors import ConfigError
from ansatz.files import read_yaml
from ansatz.objectives import token_advantages
from ansatz.objectives.advantages import ADVANTAGES
from ansatz.objectives.coefficients import HIGHEST_ENTROPY_COEF, KL_CONTROLS
from ansatz.objectives.components import INPUTS, Component, build_component
from ansatz.objectives.corrections import CORRECTIONS, MASKS
from ansatz.objectives.kl import KLS
from ansatz.objectives.objective import Objective
from ansatz.objectives.presets import COMMON, DESCRIPTION, KEYS, PRESETS
from ansatz.objectives.ratios import RATIOS
from ansatz.objectives.surrogates import SURROGATES, VALUES
from ansatz.objectives.weights import WEIGHTS
from ansatz.registry import Registry, describe_missing_file, load_attribute, number_problem, suggest
from ansatz.trust import TrustedText, trusted

Spec = Mapping[str, Any]

COMPONENTS: dict[str, Registry[Any]] = {
    "advantage": ADVANTAGES,
    "reward_whiten": token_advantages.REWARD_WHITENS,
    "whiten": token_advantages.WHITENS,
    "ratio": RATIOS,
    "surrogate": SURROGATES,
    "kl": KLS,
    "kl_control": KL_CONTROLS,
    "weights": WEIGHTS,
    "penalty_weights": WEIGHTS,
    "correction": CORRECTIONS,
    "masks": MASKS,
    "value": VALUES,
    "likelihood_weights": WEIGHTS,
}
PROJECT_SPEC = "ansatz.objectives.projects:project_spec"
"""The function that translates the defaults of a project. Only a recipe with `defaults_of` imports it."""
LISTS = ("correction", "masks")
"""Keys that take a list of components."""
OPTIONAL = (
    "reward_whiten",
    "whiten",
    "kl_control",
    "penalty_weights",
    "value",
    "likelihood_weights",
    "advantage_clip",
    "entropy_target",
    "max_ratio",
)
"""Keys that can be none."""
_CHOSEN_BY_PRESET = ("advantage", "whiten", "ratio", "surrogate", "weights", "anchor", "kl_in", "value")
_FORMER_KEYS = {"like": "defaults_of"}
_FORMER_NAMES = {"accepted": "filtered_bc"}
CHOICES = {
    "anchor": ("old", "behavior", "policy"),
    "kl_in": ("loss", "reward", "return", "advantage"),
    "kl_to": ("ref", "teacher", "old", "behavior"),
    "entropy_tokens": ("all", "kept", "kept_mean"),
}
"""Keys with a list of values."""
TRAINING_INPUTS = frozenset(INPUTS) - {"step_reward_T", "step_end_T"}
"""The inputs that every training run supplies to the components that can take them (`components.INPUTS_OF`). The inputs
of steps need a reward that rewards reasoning steps."""


def build_objective(spec: Spec, *, max_response_tokens: int | None = None) -> Objective:
    """Build the objective of a recipe's `algorithm:` section.

    Raise a ConfigError that names the wrong key and suggests the nearest one.

    max_response_tokens: the run's length limit, for weights that divide by it.
    """
    for key in spec:
        _check_key(key, KEYS, "algorithm")
    for key in ("preset", "defaults_of"):
        if not isinstance(spec.get(key), str | None):
            raise ConfigError(f"algorithm.{key} = {spec[key]!r:.60}, expected a name.")
    below = resolved_row(spec.get("preset"), spec.get("defaults_of"))
    row = below | {key: _over(below[key], spec[key]) for key in spec if key not in ("preset", "defaults_of")}
    fields = {key: _field(key, value, below[key], max_response_tokens) for key, value in row.items()}
    objective = Objective(preset=_title(spec), **fields)
    _check_together(objective)
    return objective


def _check_together(objective: Objective) -> None:
    """Raise ConfigError for components and coefficients of which one would have no effect next to the others."""
    if objective.value is not None and not objective.needs_values:
        raise ConfigError(
            f"algorithm.value is set, but algorithm.advantage = {objective.advantage.name!r} uses no critic. "
            'Use "gae" or leave value out.'
        )
    if objective.whiten is not None and objective.whiten.name == "rollouts" and objective.advantage.per_token:
        raise ConfigError(
            f"algorithm.whiten = 'rollouts', but algorithm.advantage = {objective.advantage.name!r} gives one number "
            'per token. Use "tokens".'
        )
    if objective.reward_whiten is not None and "token_reward_T" not in objective.advantage.inputs:
        raise ConfigError(
            f"algorithm.reward_whiten is set, but algorithm.advantage = {objective.advantage.name!r} does not see the "
            'rewards of tokens. Use "gae" or "reward_to_go", or leave reward_whiten out.'
        )
    in_reward = objective.kl_coef != 0 and objective.kl_in == "reward"
    if in_reward and (
        objective.advantage.name == "zero" or not {"reward_N", "token_reward_T"} & {*objective.advantage.inputs}
    ):
        raise ConfigError(
            f"algorithm.kl_in = 'reward', but algorithm.advantage = {objective.advantage.name!r} does not read the "
            "rewards that the KL is subtracted from. Use kl_in: return, advantage or loss."
        )
    coef, target = objective.entropy_coef, objective.entropy_target
    if target is not None and not 0 <= coef <= HIGHEST_ENTROPY_COEF:
        raise ConfigError(
            f"algorithm.entropy_coef = {coef} with entropy_target = {target}: the adapted coefficient stays between 0 "
            f"and {HIGHEST_ENTROPY_COEF}. Begin with one in this range."
        )
    if objective.kl_control is not None and not objective.needs_ref:
        raise ConfigError(
            f"algorithm.kl_control adapts the KL to the reference, but kl_coef = {objective.kl_coef} and kl_to = "
            f'{objective.kl_to!r}. Set kl_coef to the coefficient to begin with, such as 0.05, and kl_to to "ref".'
        )
    if objective.likelihood_coef != 0 and objective.likelihood_weights is None:
        raise ConfigError('algorithm.likelihood_coef is set without likelihood_weights; use "token_mean", for example.')
    if objective.entropy_tokens != "all" and not any("entropy_T" in part.inputs for part in objective.correction):
        raise ConfigError(
            f"algorithm.entropy_tokens = {objective.entropy_tokens!r} needs the correction high_entropy, which decides "
            "which tokens are kept."
        )
    if objective.kl_coef != 0 and objective.kl_in != "loss" and not objective.needs_ref:
        raise ConfigError(
            f"algorithm.kl_to = {objective.kl_to!r} with kl_in = {objective.kl_in!r}: a KL in the reward is to the "
            'reference or a teacher. Use kl_to = "ref" or "teacher", or kl_in = "loss".'
        )
    if objective.token_divergence is not None and not objective.needs_ref:
        raise ConfigError(
            f"algorithm.kl = {objective.kl.name!r} with kl_to = {objective.kl_to!r}: an exact KL needs the whole "
            'distribution of the other policy, and only the reference and the teacher have one. Use kl_to = "ref", or '
            'kl = "k3".'
        )


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
    supplied = INPUTS if rewards_steps else TRAINING_INPUTS
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


def resolved_row(preset: str | None, project: str | None) -> dict[str, Any]:
    """Lay the preset's row over COMMON, and the project's defaults over both.

    If both are named, the preset selects the components of `_CHOSEN_BY_PRESET` and the project only supplies constants:
    its settings are taken for each component that it has in common with the preset. `{preset: gspo, defaults_of: verl}`
    takes verl's clip range only if verl's default surrogate is the preset's.
    """
    row = {**COMMON, **(preset_row(preset or "grpo") if preset or not project else {})}
    if project:
        for key, value in load_attribute(TrustedText(PROJECT_SPEC), kind="project")(project).items():
            if not (preset and key in _CHOSEN_BY_PRESET):
                row[key] = value
            elif _settings(value) and _name(row[key]) == _name(value):
                row[key] = _over(row[key], _settings(value))
    return row


def preset_row(name: str, *, below: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the row of that name or alias, or a row from a file, without its description.

    A row can start from another one that its key `preset` names. below: the rows that start from this one.
    """
    row: Any
    if name in below:
        raise ConfigError(f"algorithm.preset: {' starts from '.join([*below, name])}, which has no end.")
    aliases = {alias: title for title, entry in PRESETS.items() for alias in entry.get("aliases", ())}
    if name in PRESETS or name in aliases:
        row = PRESETS[aliases.get(name, name)]
    elif ":" in name:
        row = load_attribute(name, kind="preset")
    elif name.endswith((".yaml", ".yml")):
        if not Path(name).is_file():
            raise ConfigError(f"algorithm.preset: the file {name!r} {describe_missing_file(name)}.")
        try:
            row = read_yaml(Path(name))
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            problem = " ".join(str(error).split())[:200]
            raise ConfigError(f"algorithm.preset: {name!r} is not a valid YAML file ({problem}).") from error
    else:
        raise ConfigError(f"algorithm.preset = {name!r} is unknown.{suggest(name, [*PRESETS, *aliases])}")
    if not isinstance(row, Mapping):
        raise ConfigError(
            f"algorithm.preset {name!r} holds a {type(row).__name__}; a row maps keys to component names."
        )
    spec = cast(Spec, row)
    spec = trusted(spec) if isinstance(name, TrustedText) else spec  # a file that the user names may name code
    entries = {key: value for key, value in spec.items() if key not in DESCRIPTION}
    base: Any = entries.pop("preset", None)
    for key in entries:
        _check_key(key, COMMON, f"algorithm.preset {name!r}")
    if base is None:
        return entries
    if not isinstance(base, str):
        raise ConfigError(f"algorithm.preset {name!r}: preset = {base!r:.60}, expected a name.")
    near = Path(name.partition(":")[0]).parent / base.partition(":")[0]
    start = preset_row(type(base)(near.parent / Path(base).name) if near.is_file() else base, below=(*below, name))
    return {**start, **{key: _over({**COMMON, **start}[key], value) for key, value in entries.items()}}


def _check_key(key: str, known: Iterable[str], where: str) -> None:
    """Raise ConfigError for a key that does not exist; a former name is refused with the current one."""
    if key in _FORMER_KEYS:
        raise ConfigError(f"{where}: the key {key!r} is now called {_FORMER_KEYS[key]!r}.")
    if key not in known:
        raise ConfigError(f"{where} has no key {key!r}.{suggest(key, known)}")


def _title(spec: Spec) -> str:
    preset, project = spec.get("preset"), spec.get("defaults_of")
    if project and preset:
        return f"{preset} with the defaults of {project}"
    return str(preset or (f"defaults of {project}" if project else "grpo"))


def _name(value: Any) -> Any:
    return cast(Spec, value).get("name") if isinstance(value, Mapping) else value


def _settings(value: Any) -> dict[str, Any]:
    return {k: v for k, v in cast(Spec, value).items() if k != "name"} if isinstance(value, Mapping) else {}


def _over(base: Any, change: Any) -> Any:
    """Lay a recipe's value over the preset's: settings without a name keep the preset's component."""
    if isinstance(change, Mapping) and "name" not in change:
        return {"name": _name(base), **_settings(base), **cast(Spec, change)}
    return cast(Any, change)


def _field(key: str, value: Any, below: Any, max_response_tokens: int | None) -> Any:
    """Return a field of the objective. below: the value of the preset or the project, for an error."""
    if key in LISTS:
        items = [] if value in (None, "none") else cast(list[Any], value) if isinstance(value, list) else [value]
        return tuple(_component(key, item, max_response_tokens) for item in items)
    if key in OPTIONAL and value in (None, "none"):
        return None
    if value is None:
        default = json.dumps(COMMON[key] if below is None else below)
        raise ConfigError(
            f"algorithm.{key} = null: expected a value. Write {default} for the default of the preset or the project."
        )
    if key == "advantage_clip":
        return _interval(key, value)
    if key in COMPONENTS:
        return _component(key, value, max_response_tokens)
    if key in CHOICES and value not in CHOICES[key]:
        raise ConfigError(f"algorithm.{key} = {value!r}: expected one of {', '.join(CHOICES[key])}.")
    if key not in CHOICES and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise ConfigError(f"algorithm.{key} = {value!r}: expected a number.")
    if key not in CHOICES:
        is_negative = key != "entropy_coef" and value < 0  # that one may lower the entropy
        if (problem := number_problem(value)) is not None or is_negative:
            raise ConfigError(f"algorithm.{key} = {value!r}: {problem or 'expected 0 or more'}.")
    return value


def _interval(key: str, value: Any) -> tuple[float, float]:
    match value:
        case [int() | float() as low, int() | float() as high] if low < high and not number_problem(value):
            return float(low), float(high)
        case _:
            raise ConfigError(f"algorithm.{key} = {value!r}: expected two numbers [low, high] with low < high.")


def _component(key: str, value: Any, max_response_tokens: int | None) -> Component:
    name, settings = _name(value), _settings(value)
    if not isinstance(name, str):
        raise ConfigError(f"algorithm.{key} = {value!r}: expected a name, or a mapping with a name and settings.")
    if name in _FORMER_NAMES:
        raise ConfigError(f"algorithm.{key} = {name!r} is now called {_FORMER_NAMES[name]!r}.")
    for setting, value in settings.items():
        if value == "max_response_tokens":
            if max_response_tokens is None:
                raise ConfigError(
                    f"algorithm.{key}.{setting} = 'max_response_tokens' needs a run's number here. Outside a run, give "
                    f"a number, such as algorithm: {{{key}: {{{setting}: 1024}}}}."
                )
            settings[setting] = max_response_tokens
    return build_component(COMPONENTS[key], name, settings)
