"""slime (mid 2026): the Megatron backend's arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEFAULTS: dict[str, Any] = {
    "advantage_estimator": "grpo",
    "rewards_normalization": True,
    "grpo_std_normalization": True,
    "kl_coef": 0.0,
    "kl_loss_type": "k1",
    "use_kl_loss": False,
    "kl_loss_coef": 0.0,
    "use_unbiased_kl": False,
    "eps_clip": 0.2,
    "eps_clip_high": None,
    "eps_clip_c": None,
    "entropy_coef": 0.0,
    "normalize_advantages": False,
    "gamma": 1.0,
    "lambd": 1.0,
    "use_tis": False,
    "tis_clip": 2.0,
    "tis_clip_low": 0.0,
    "custom_tis_function_path": None,
    "use_opsm": False,
    "opsm_delta": 1e-4,
    "calculate_per_token_loss": False,
    "value_clip": 0.2,
}


def spec(knobs: Mapping[str, Any]) -> dict[str, Any]:
    estimator = knobs["advantage_estimator"]
    low = knobs["eps_clip"]
    high = low if knobs["eps_clip_high"] is None else knobs["eps_clip_high"]
    in_loss = knobs["use_kl_loss"]
    kl_loss = {
        "kl": {**_kl(knobs["kl_loss_type"]), "weight": "ratio" if knobs["use_unbiased_kl"] else "none"},
        "kl_coef": knobs["kl_loss_coef"],
        "kl_in": "loss",
    }
    whiten = {"name": "tokens", "ddof": 1, "eps": 1e-8, "eps_in": "var"}
    return {
        **_advantage(knobs),
        **(kl_loss if in_loss else {}),
        "whiten": whiten if knobs["normalize_advantages"] else "none",
        "ratio": "sequence" if estimator == "gspo" else "token",
        "surrogate": _surrogate(estimator, low, high, knobs["eps_clip_c"]),
        "weights": "token_mean" if knobs["calculate_per_token_loss"] else "sequence_mean",
        "entropy_coef": knobs["entropy_coef"],
        "correction": _corrections(knobs),
        **(
            {"value": {"name": "squared_error", "scale": 1.0, "clip": knobs["value_clip"]}}
            if estimator == "ppo"
            else {}
        ),
    }


def _advantage(knobs: Mapping[str, Any]) -> dict[str, Any]:
    by_std = knobs["grpo_std_normalization"]
    grpo = {"name": "group_zscore", "ddof": 1, "eps": 1e-6} if by_std else {"name": "group_mean"}
    if not knobs["rewards_normalization"]:
        grpo = {"name": "reward"}
    kl = {"kl": _kl(knobs["kl_loss_type"]), "kl_coef": knobs["kl_coef"]}
    table: dict[str, dict[str, Any]] = {
        "reinforce_plus_plus": {
            "advantage": {"name": "reward_to_go", "gamma": knobs["gamma"]},
            "kl_in": "reward",
            **kl,
        },
        "reinforce_plus_plus_baseline": {"advantage": "group_mean", "kl_in": "advantage", **kl},
        "ppo": {
            "advantage": {"name": "gae", "gamma": knobs["gamma"], "lam": knobs["lambd"]},
            "kl_in": "reward",
            **kl,
        },
    }
    return table.get(knobs["advantage_estimator"], {"advantage": grpo})


def _kl(name: str) -> dict[str, Any]:
    if name == "low_var_kl":
        return {"name": "k3", "clamp_out": 10.0}
    return {"name": name}


def _surrogate(estimator: str, low: float, high: float, dual: float | None) -> dict[str, Any]:
    if estimator == "cispo":
        return {"name": "cispo", "floor": 1 - low, "cap": 1 + high}
    if dual is not None:
        return {"name": "dual_clip", "low": low, "high": high, "dual": dual}
    return {"name": "clip", "low": low, "high": high}


def _corrections(knobs: Mapping[str, Any]) -> list[dict[str, Any]]:
    components: list[dict[str, Any]] = []
    if knobs["use_tis"]:
        name = "mask_outside" if knobs["custom_tis_function_path"] == "icepop" else "truncate"
        components.append({"name": name, "low": knobs["tis_clip_low"], "high": knobs["tis_clip"]})
    if knobs["use_opsm"]:
        components.append({"name": "stale_negatives", "threshold": knobs["opsm_delta"], "sampler": "old"})
    return components
