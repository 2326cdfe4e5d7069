"""Every algorithm is a row of one table; a recipe's `algorithm:` section names a row and overrides its pieces.

A piece is written as a name ("group_mean"), as a mapping with a name and settings ({name: clip, low: 0.2, high: 0.28}), or as
settings alone ({high: 0.28}), which keep the preset's piece. `correction` takes one piece, a list, or "none".
A user's own preset is a row in a YAML file or a mapping in a Python file: `preset: path/to/mine.yaml`, `path/to/mine.py:row`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ansatz.errors import ConfigError
from ansatz.objectives.advantages import ADVANTAGES
from ansatz.objectives.corrections import CORRECTIONS
from ansatz.objectives.kl import KLS
from ansatz.objectives.masks import MASKS
from ansatz.objectives.objective import Objective
from ansatz.objectives.pieces import Piece, build_piece
from ansatz.objectives.ratios import RATIOS
from ansatz.objectives.surrogates import SURROGATES
from ansatz.objectives.weights import WEIGHTS
from ansatz.registry import Registry, load_attribute, suggest

KEYS: dict[str, str] = {
    "preset": "a row of the table below, or a file's own row",
    "like": "a project whose defaults are taken (trl, verl, openrlhf, ...), or null",
    "advantage": "piece: rewards -> advantages",
    "whiten": "piece: advantages -> advantages, over the step's tokens or rollouts; none",
    "anchor": "what the ratio compares the policy with: old | behavior | policy (its own value, always on-policy)",
    "ratio": "piece: log-probs -> importance ratio",
    "surrogate": "piece: ratio, advantage -> loss of a token",
    "kl": "piece: log-probs -> KL of a token",
    "kl_coef": "strength of the KL; 0 needs no reference model",
    "kl_in": "where the KL acts: loss | reward (before the baseline) | return (to-go, after it) | advantage (own token)",
    "kl_to": "what the KL holds the policy to: ref | old | behavior",
    "weights": "piece: how token losses become one number",
    "penalty_weights": "the same for the KL and entropy terms; null: as weights",
    "correction": "piece, list of pieces or none: factors on the surrogate of a token",
    "masks": "piece, list of pieces or none: tokens that leave the loss and its denominators",
    "entropy_coef": "strength of the entropy bonus",
    "entropy_target": "entropy (nats a token) that an adaptive bonus holds up, or null for a fixed one",
    "max_ratio": "early stop: a minibatch whose mean ratio passes this is dropped with the rest of the step's updates; null",
    "value": "piece: the critic's loss (presets with a critic alone)",
}

PRESETS: dict[str, dict[str, Any]] = {
    "reinforce": {"advantage": "reward", "surrogate": "log_prob", "weights": "sequence_mean"},
    "rloo": {"advantage": "leave_one_out", "surrogate": "log_prob", "weights": "sequence_mean"},
    "grpo": {"advantage": "group_zscore", "surrogate": "clip", "weights": "sequence_mean"},
    "dr_grpo": {
        "advantage": "group_mean",
        "surrogate": "clip",
        "weights": {"name": "fixed_length", "max_tokens": "max_response_tokens"},
    },
    "dapo": {
        "advantage": "group_zscore",
        "surrogate": {"name": "clip", "low": 0.2, "high": 0.28},
        "weights": "token_mean",
    },
}

COMMON: dict[str, Any] = {"ratio": "token", "kl": "k3", "correction": "none"}

_REGISTRIES: dict[str, Registry[Any]] = {
    "advantage": ADVANTAGES,
    "ratio": RATIOS,
    "surrogate": SURROGATES,
    "kl": KLS,
    "weights": WEIGHTS,
    "penalty_weights": WEIGHTS,
    "correction": CORRECTIONS,
    "masks": MASKS,
}
_CHOICES = {
    "anchor": ("old", "behavior", "policy"),
    "kl_in": ("loss", "reward", "return", "advantage"),
    "kl_to": ("ref", "old", "behavior"),
}


def build_objective(spec: Mapping[str, Any], *, max_response_tokens: int | None = None) -> Objective:
    """The objective of a recipe's `algorithm:` section; ConfigErrors name the key and the near name where there is one.

    max_response_tokens: the run's length limit, for weights that divide by it.
    """
    for key in spec:
        if key not in KEYS:
            raise ConfigError(f"algorithm has no key {key!r}.{suggest(key, KEYS)}")
    preset = str(spec.get("preset") or "grpo")
    row: dict[str, Any] = {**COMMON, **preset_row(preset)}
    for key, value in spec.items():
        if key not in ("preset", "like") and value is not None:
            row[key] = _merged(row.get(key), value)
    fields: dict[str, Any] = {}
    for key, value in row.items():
        if key in ("correction", "masks"):
            fields[key] = tuple(_piece(key, item, max_response_tokens) for item in _listed(value))
        elif key in _REGISTRIES:
            fields[key] = _piece(key, value, max_response_tokens)
        else:
            fields[key] = _checked(key, value)
    return Objective(preset=preset, **fields)


def _with_length(settings: dict[str, Any], max_response_tokens: int | None) -> dict[str, Any]:
    """Settings with "max_response_tokens" replaced by the run's number."""
    if "max_response_tokens" in settings.values() and max_response_tokens is None:
        raise ConfigError("algorithm.weights.max_tokens = 'max_response_tokens' needs a run; give a number instead.")
    return {k: max_response_tokens if v == "max_response_tokens" else v for k, v in settings.items()}


def preset_row(name: str) -> Mapping[str, Any]:
    """The row of that name, or the user's own out of a file."""
    if name in PRESETS:
        return PRESETS[name]
    if ":" in name:
        row: Any = load_attribute(name, kind="preset")
    elif name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise ConfigError(f"algorithm.preset: there is no file {name!r} (looked in {Path.cwd()}).")
        row = yaml.safe_load(path.read_text())
    else:
        raise ConfigError(f"algorithm.preset = {name!r} is unknown.{suggest(name, PRESETS)}")
    if not isinstance(row, Mapping):
        raise ConfigError(f"algorithm.preset {name!r} holds a {type(row).__name__}; a row is a mapping of piece names.")
    return dict(row)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _merged(old: Any, new: Any) -> Any:
    """A recipe's value over the preset's: settings without a name keep the preset's piece."""
    if isinstance(new, Mapping) and "name" not in new and old is not None:
        base: dict[str, Any] = dict(old) if isinstance(old, Mapping) else {"name": old}  # pyright: ignore
        return {**base, **new}  # pyright: ignore
    return new  # pyright: ignore


def _piece(key: str, value: Any, max_response_tokens: int | None) -> Piece:
    registry = _REGISTRIES[key]
    if isinstance(value, str):
        return build_piece(registry, value, {})
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):  # pyright: ignore
        settings: dict[str, Any] = {k: v for k, v in value.items() if k != "name"}  # pyright: ignore
        return build_piece(registry, value["name"], _with_length(settings, max_response_tokens))  # pyright: ignore
    raise ConfigError(f"algorithm.{key} = {value!r}: expected a name or a mapping with a name and settings.")


def _listed(value: Any) -> list[Any]:
    if value in (None, "none"):
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]  # pyright: ignore


def _checked(key: str, value: Any) -> Any:
    if key in _CHOICES and value not in _CHOICES[key]:
        raise ConfigError(f"algorithm.{key} = {value!r}: expected one of {', '.join(_CHOICES[key])}.")
    return value
