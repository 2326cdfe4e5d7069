"""open-instruct (mid 2026): grpo_utils."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansatz.errors import ConfigError

DEFAULTS: dict[str, Any] = {
    "beta": 0.05,
    "clip_lower": 0.2,
    "clip_higher": 0.272,
    "use_rho_correction": True,
    "rho_clamp_lower_bound": 0.0,
    "rho_clamp_upper_bound": 2.0,
    "rho_mask_lower_bound": 0.0,
    "rho_mask_upper_bound": 0.0,
    "rho_mask_sequence_level": False,
    "rho_mask_tv_divergence": False,
    "kl_estimator": 2,
    "loss_denominator": "token",
    "loss_fn": "dapo",
    "load_ref_policy": True,
    "advantage_normalization_type": "centered",
}

_ADVANTAGES = {"centered": "group_mean", "standard": {"name": "group_zscore", "ddof": 0, "eps": 1e-8}}
_KLS = [{"name": "k1"}, {"name": "k2"}, {"name": "k3"}, {"name": "k1", "weight": "ratio"}]


def spec(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """A loss_denominator other than "token" is a constant: the sum over tokens divided by it."""
    cispo = knobs["loss_fn"] == "cispo"
    clip = {"name": "clip", "low": knobs["clip_lower"], "high": knobs["clip_higher"]}
    per_token = knobs["loss_denominator"] == "token"
    return {
        "advantage": _ADVANTAGES[knobs["advantage_normalization_type"]],
        "surrogate": {"name": "cispo", "floor": 0.0, "cap": 1 + knobs["clip_higher"]} if cispo else clip,
        "kl": {**_KLS[knobs["kl_estimator"]], "clamp_in": 40.0},
        "kl_coef": knobs["beta"] if knobs["load_ref_policy"] else 0.0,
        "weights": "token_mean" if per_token else {"name": "token_sum", "divisor": float(knobs["loss_denominator"])},
        "correction": _corrections(knobs) if knobs["use_rho_correction"] else "none",
    }


def _corrections(knobs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A bound of 0 is no bound. First masked, then clamped; a sequence-level mask replaces the token's weight."""
    if knobs["rho_mask_tv_divergence"]:
        raise ConfigError(
            "open-instruct's rho_mask_tv_divergence has no counterpart here; use correction drop_outside."
        )
    mask = {"low": knobs["rho_mask_lower_bound"] or None, "high": knobs["rho_mask_upper_bound"] or None}
    clamp = {"low": knobs["rho_clamp_lower_bound"] or None, "high": knobs["rho_clamp_upper_bound"] or None}
    level = "mean" if knobs["rho_mask_sequence_level"] else "token"
    components: list[dict[str, Any]] = [{"name": "truncate", "level": level, **clamp}]
    if mask["low"] is not None or mask["high"] is not None:
        components.append({"name": "drop_outside", "level": level, **mask})
    return components
