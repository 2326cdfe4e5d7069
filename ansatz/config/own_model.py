"""Defaults of a recipe that names a model (`model.path`), for keys whose defaults only suit the built tiny model.

Values that the recipe gives always win. The config.yaml of a run gives every value, so a resumed run keeps its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansatz.config.chat import AUTO
from ansatz.config.fields import as_mapping
from ansatz.config.recipe import find_stages, listed_stages
from ansatz.errors import ConfigError

OWN_MODEL: dict[str, dict[str, Any]] = {
    "data": {"template": AUTO},
    "rollout": {"max_prompt_tokens": 1024},
    "train": {"lr": 1e-6, "critic": {"lr": 1e-5}},
}
"""By section and key, besides the sections of stages. Learning rates of the tiny model (1e-4 and more) destroy a
pretrained one in a few steps."""

EVALUATED_TOKENS = 2048
"""The longest response of a recipe that samples only to evaluate, if it gives none."""


def with_own_model_defaults(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recipe's mapping with these defaults filled in if `model.path` is set; otherwise as it is.

    Raise ConfigError if rollout.max_response_tokens is missing, unless the recipe is run at toy size, which sets
    lengths, or learns from given responses only, such as DPO on pairs from a file.
    """
    model = as_mapping(data.get("model"))
    if model.get("path") is None:
        return dict(data)
    stages = [each for each in find_stages(data) if each.own_model and (each.name in data or not each.optional)]
    defaults = {**OWN_MODEL, **{each.name: each.own_model for each in stages}}
    filled = {
        name: _filled(values, as_mapping(data.get(name)))
        for name, values in defaults.items()
        if isinstance(data.get(name, {}), Mapping)  # anything else is refused by the schema
    }
    if "rollout" in filled and "max_response_tokens" not in filled["rollout"] and not model.get("toy"):
        if _learns_from_samples(data):
            raise ConfigError(
                "rollout.max_response_tokens is missing: with a model of your own (model.path) the longest response "
                "has no default, because longer ones are cut off and earn nothing; write rollout: "
                "{max_response_tokens: N}, such as 512 for GSM8K, 2048 for MATH, or 8192 for a model that thinks first."
            )
        filled["rollout"]["max_response_tokens"] = EVALUATED_TOKENS
    return {**data, **filled}


def _learns_from_samples(data: Mapping[str, Any]) -> bool:
    """Tell whether a stage of the recipe samples its own data. True for values that the schema will refuse."""
    declarations, names = find_stages(data), set(listed_stages(data))
    if not names:
        names = {each.name for each in declarations if each.section is not None and data.get(each.name) is not None}
        names |= set[str]() if as_mapping(data.get("train")).get("steps") == 0 else {"rl"}
    return not names <= {
        name
        for each in declarations
        if each.learns_from_given is not None and each.learns_from_given(data.get(each.name) or {})
        for name in (each.name, each.runs)
    }


def _filled(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given section with the defaults of keys that it leaves out, also within its own sections."""
    inner = {
        key: _filled(as_mapping(value), given[key])
        for key, value in defaults.items()
        if isinstance(value, Mapping) and isinstance(given.get(key), Mapping)
    }
    return {**defaults, **given, **inner}
