"""OpenRLHF 0.11: experience maker and PolicyLoss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansatz.errors import ConfigError

DEFAULTS: dict[str, Any] = {
    "estimator": "group_norm",
    "clip_eps_low": 0.2,
    "clip_eps_high": 0.2,
    "dual_clip": None,
    "token_level_loss": True,
    "policy_loss_type": "ppo",
    "enable_vllm_is_correction": False,
    "vllm_is_correction_type": "tis",
    "use_loss": False,
    "init_kl_coef": 0.01,
    "kl_estimator": "k1",
    "gamma": 1.0,
    "lambd": 1.0,
}

_WHITEN = {"name": "tokens", "ddof": 0, "eps": 1e-8, "eps_in": "floor"}


def spec(knobs: Mapping[str, Any]) -> dict[str, Any]:
    gspo = knobs["policy_loss_type"] == "gspo"
    corrected = knobs["enable_vllm_is_correction"]
    in_loss = knobs["use_loss"]
    per_token = knobs["token_level_loss"] and not gspo
    low, high, dual = knobs["clip_eps_low"], knobs["clip_eps_high"], knobs["dual_clip"]
    surrogate = {"name": "clip", "low": low, "high": high}
    return {
        **advantage(knobs),
        "anchor": "behavior" if gspo and corrected else "old",
        "ratio": {"name": "sequence"} if gspo else {"name": "token", "clamp": 20.0},
        "surrogate": {**surrogate, "name": "dual_clip", "dual": dual} if dual is not None else surrogate,
        **({"kl_in": "loss"} if in_loss else {}),
        "weights": "token_mean" if per_token else {"name": "sequence_mean", "rollouts": "nonempty", "eps": 1e-8},
        "penalty_weights": "token_mean",
        "correction": _correction(knobs) if corrected and not gspo else "none",
    }


def advantage(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """The estimators. With group baselines the KL is a reward to go after the baseline, else part of the token
    rewards."""
    name = knobs["estimator"]
    if knobs.get("reward_clip_range") not in (None, [-10, 10], [-10.0, 10.0]):
        raise ConfigError(
            "OpenRLHF's reward_clip_range has no counterpart here; +-10 never binds for rewards within 1."
        )
    whiten = {**_WHITEN, "scale": not knobs.get("no_std_norm", False)}
    table: dict[str, dict[str, Any]] = {
        "group_norm": {"advantage": {"name": "group_zscore", "ddof": 1, "eps": 1e-9}, "kl_in": "return"},
        "dr_grpo": {"advantage": "group_mean", "kl_in": "return"},
        "rloo": {"advantage": "leave_one_out", "kl_in": "return"},
        "reinforce_baseline": {"advantage": "group_mean", "kl_in": "return", "whiten": whiten},
        "reinforce": {
            "advantage": {"name": "reward_to_go", "gamma": knobs["gamma"]},
            "kl_in": "reward",
            "whiten": _WHITEN,
        },
        "gae": {
            "advantage": {"name": "gae", "gamma": knobs["gamma"], "lam": knobs["lambd"]},
            "kl_in": "reward",
            "whiten": _WHITEN,
        },
    }
    kl = {"kl": kl_component(knobs.get("kl_estimator", "k1")), "kl_coef": knobs["init_kl_coef"]}
    return {**table[name], **kl}


def kl_component(name: str) -> dict[str, Any]:
    return {"name": name, "clamp_out": 10.0}


def _correction(knobs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """seq-mask-tis filters by the geometric mean and leaves the token weights unclamped, whatever its comment says."""
    low, high = knobs["vllm_is_truncated_threshold"]
    bounds = {"low": low, "high": high}
    free = {"name": "truncate", "low": None, "high": None}
    return {
        "tis": [{"name": "truncate", **bounds}],
        "icepop": [{"name": "mask_outside", **bounds}],
        "seq-mask-tis": [{"name": "drop_outside", "level": "mean", **bounds}, free],
    }[knobs["vllm_is_correction_type"]]
