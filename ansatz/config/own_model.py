"""Defaults of a recipe that names a model (`model.path`), where those of the built tiny model would be wrong.

Values that the recipe gives always win. The config.yaml of a run gives every value, so a resumed run keeps its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ansatz.config.chat import AUTO
from ansatz.errors import ConfigError

OWN_MODEL: dict[str, dict[str, Any]] = {
    "data": {"template": AUTO},
    "rollout": {"max_prompt_tokens": 1024},
    "train": {"lr": 1e-6, "critic": {"lr": 1e-5}},
    "sft": {"lr": 1e-5},
    "reward_model": {"lr": 1e-5, "extra_layers": 0},
}
"""By section and key. Learning rates of the tiny model (1e-4 and more) destroy a pretrained one in a few steps."""

EVALUATED_TOKENS = 2048
"""The longest response of a recipe that samples only to evaluate, if it gives none."""

OPTIONAL = ("reward_model",)
"""Sections that switch their stage on, so that one that is not given stays away."""


def with_own_model_defaults(data: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe's mapping with these defaults filled in if it has a `model.path`; otherwise as it is.

    ConfigError if rollout.max_response_tokens is missing, unless the recipe is run at toy size, which sets lengths, or
    learns from given responses only, such as DPO on pairs from a file.
    """
    model = data.get("model")
    if not isinstance(model, Mapping) or cast("Mapping[str, Any]", model).get("path") is None:
        return dict(data)
    sections = {name: data.get(name, {}) for name in OWN_MODEL if name in data or name not in OPTIONAL}
    filled = {
        name: _filled(OWN_MODEL[name], cast("Mapping[str, Any]", section))
        for name, section in sections.items()
        if isinstance(section, Mapping)  # anything else is refused by the schema
    }
    is_toy = bool(cast("Mapping[str, Any]", model).get("toy"))
    if "rollout" in filled and "max_response_tokens" not in filled["rollout"] and not is_toy:
        if not _learns_from_samples(data):
            filled["rollout"]["max_response_tokens"] = EVALUATED_TOKENS
            return {**data, **filled}
        raise ConfigError(
            "rollout.max_response_tokens is missing: with a model of your own (model.path) the longest response has no "
            "default, because longer ones are cut off and earn nothing; write rollout: {max_response_tokens: N}, such "
            "as 512 for GSM8K, 2048 for MATH, or 8192 for a model that thinks first."
        )
    return {**data, **filled}


def _learns_from_samples(data: Mapping[str, Any]) -> bool:
    """Whether a stage of the recipe samples what it learns from. True for values that the schema will refuse."""
    entries = data.get("stages")
    if isinstance(entries, list):
        names = {str(_in(entry, "stage") or entry) for entry in cast("list[Any]", entries)}
    else:
        names = {name for name in ("rejection", "preference", "reward_model") if data.get(name) is not None}
        names |= {"sft"} if _in(data, "train", "steps") == 0 else {"rl"}
    given = {"sft"}
    if _in(data, "preference", "pairs", "source") not in (None, "policy"):
        given.add("preference")
    if _in(data, "reward_model", "data") is not None:
        given.add("reward_model")
    return not names <= given


def _in(data: Any, *keys: str) -> Any:
    """The value under keys within each other; None if there is none."""
    for key in keys:
        data = cast("Mapping[str, Any]", data).get(key) if isinstance(data, Mapping) else None
    return data


def _filled(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given section with the defaults of keys that it leaves out, also within a section of its own."""
    inner = {
        key: _filled(cast("Mapping[str, Any]", value), given[key])
        for key, value in defaults.items()
        if isinstance(value, Mapping) and isinstance(given.get(key), Mapping)
    }
    return {**defaults, **given, **inner}
