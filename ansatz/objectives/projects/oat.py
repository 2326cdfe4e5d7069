"""oat (2025-10): PPOLearner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEFAULTS: dict[str, Any] = {
    "critic_type": "drgrpo",
    "beta": 0.0,
    "kl_penalty_coef": 0.0,
    "reinforce_update": False,
    "whiten_adv": False,
    "tis_c": 2.0,
    "cliprange": 0.2,
    "vf_coef": 1.0,
    "cliprange_value": 0.2,
    "gamma": 1.0,
    "lam": 1.0,
    "generate_max_length": "max_response_tokens",
    "ignore_no_eos": False,
}


def spec(knobs: Mapping[str, Any]) -> dict[str, Any]:
    critic = knobs["critic_type"]
    advantages: dict[str, Any] = {
        "drgrpo": "group_mean",
        "grpo": {"name": "group_zscore", "ddof": 1, "eps": 1e-8},
        "ppo": {"name": "gae", "gamma": knobs["gamma"], "lam": knobs["lam"]},
    }
    in_reward = knobs["kl_penalty_coef"] != 0
    truncate = {"name": "truncate", "high": knobs["tis_c"]}
    return {
        "advantage": advantages[critic],
        "whiten": {"name": "tokens", "ddof": 1, "eps": 1e-8} if knobs["whiten_adv"] else "none",
        "surrogate": "log_prob"
        if knobs["reinforce_update"]
        else {"name": "clip", "low": knobs["cliprange"], "high": knobs["cliprange"]},
        "kl": {"name": "k1"} if in_reward else {"name": "k3", "clamp_in": 40.0},
        "kl_coef": knobs["kl_penalty_coef"] if in_reward else knobs["beta"],
        "kl_in": "reward" if in_reward else "loss",
        "weights": {"name": "fixed_length", "max_tokens": knobs["generate_max_length"]}
        if critic == "drgrpo"
        else "sequence_mean",
        "correction": truncate if knobs["tis_c"] is not None and not knobs["reinforce_update"] else "none",
        "masks": "not_truncated" if knobs["ignore_no_eos"] else "none",
        **(
            {"value": {"name": "squared_error", "coef": knobs["vf_coef"], "clip": knobs["cliprange_value"]}}
            if critic == "ppo"
            else {}
        ),
    }
