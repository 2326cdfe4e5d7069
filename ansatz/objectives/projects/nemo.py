"""NeMo-RL 0.7: advantage estimators and ClippedPGLossFn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansatz.errors import ConfigError

DEFAULTS: dict[str, Any] = {
    "adv": {"normalize_rewards": True, "use_leave_one_out_baseline": True},
    "disable_ppo_ratio": False,
    "token_level_loss": True,
    "sequence_level_importance_ratios": False,
    "ratio_clip_min": 0.2,
    "ratio_clip_max": 0.2,
    "ratio_clip_c": None,
    "reference_policy_kl_penalty": 0.01,
    "reference_policy_kl_type": "k3",
    "kl_input_clamp_value": 20.0,
    "kl_output_clamp_value": 10.0,
    "use_importance_sampling_correction": False,
    "truncated_importance_sampling_type": None,
    "truncated_importance_sampling_ratio": None,
    "truncated_importance_sampling_ratio_min": None,
    "use_on_policy_kl_approximation": False,
    "force_on_policy_ratio": False,
    "use_cispo": False,
    "overlong_filtering": False,
}


def spec(knobs: Mapping[str, Any]) -> dict[str, Any]:
    if knobs.get("positive_example_nll_weight"):
        raise ConfigError("NeMo-RL's positive_example_nll_weight has no counterpart here; use a supervised stage.")
    shared = knobs["sequence_level_importance_ratios"]
    per_token = knobs["token_level_loss"]
    sequence_mean = {"name": "sequence_mean", "rollouts": "nonempty", "eps": 1e-8}
    return {
        **advantage(knobs["adv"]),
        "anchor": "policy" if knobs["force_on_policy_ratio"] else "old",
        "ratio": "sequence" if shared else "token",
        "surrogate": _surrogate(knobs),
        "kl": {
            **kl_component(knobs["reference_policy_kl_type"], knobs),
            "weight": "behavior" if knobs["use_on_policy_kl_approximation"] else "on_policy",
        },
        "kl_coef": knobs["reference_policy_kl_penalty"],
        "weights": {"name": "token_mean", "eps": 1e-8} if per_token else sequence_mean,
        "correction": _correction(knobs, shared) if knobs["use_importance_sampling_correction"] else "none",
        "masks": "not_truncated" if knobs["overlong_filtering"] else "none",
    }


def kl_component(name: str, knobs: Mapping[str, Any]) -> dict[str, Any]:
    clamps = {
        "clamp_in": knobs.get("kl_input_clamp_value", 20.0),
        "clamp_out": knobs.get("kl_output_clamp_value", 10.0),
    }
    return {"name": name, **clamps}


def advantage(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """The estimator called `name` ("grpo" when it is not said)."""
    name = knobs.get("name", "grpo")
    whiten = {"name": "tokens", "ddof": 0, "eps": 1e-8, "eps_in": "floor"}
    normalized: Any = whiten if knobs.get("normalize_advantages", True) else "none"
    kl: dict[str, Any] = {}
    if knobs.get("use_kl_in_reward"):
        kl = {
            "kl": kl_component(knobs["reference_policy_kl_type"], knobs),
            "kl_coef": knobs["reference_policy_kl_penalty"],
        }
    if name == "grpo":
        others, by_std = knobs["use_leave_one_out_baseline"], knobs["normalize_rewards"]
        component = {
            (True, True): {"name": "leave_one_out_std", "ddof": 1, "eps": 1e-6},
            (True, False): {"name": "leave_one_out"},
            (False, True): {"name": "group_zscore", "ddof": 1, "eps": 1e-6},
            (False, False): {"name": "group_mean"},
        }[others, by_std]
        return {"advantage": component}
    if name == "reinforce_plus_plus":
        baseline = "group_mean" if knobs["minus_baseline"] else "reward"
        return {"advantage": baseline, "whiten": whiten, "kl_in": "advantage", **kl}
    if name == "raw":
        return {"advantage": "reward", "whiten": normalized}
    if name == "gdpo":
        component = {"name": "gdpo", "ddof": 1, "eps": 1e-6, "component_weights": knobs["reward_weights"]}
        return {"advantage": component, "whiten": {"name": "rollouts", "ddof": 1, "eps": 0.0, "eps_in": "std"}}
    lam = knobs["gae_lambda_policy"] or knobs["gae_lambda"]
    gae = {"name": "gae", "gamma": knobs["gae_gamma"], "lam": lam}
    if knobs["length_adaptive_alpha"]:
        gae["lam_length"] = knobs["length_adaptive_alpha"]
    return {
        "advantage": gae,
        "whiten": {"name": "tokens", "ddof": 1, "eps": 1e-8} if normalized != "none" else "none",
        "kl_in": "reward",
        **kl,
    }


def _surrogate(knobs: Mapping[str, Any]) -> dict[str, Any]:
    bounds = {"low": knobs["ratio_clip_min"], "high": knobs["ratio_clip_max"]}
    if knobs["disable_ppo_ratio"]:
        return {"name": "log_prob"}
    if knobs["use_cispo"]:
        return {"name": "cispo", "floor": 1 - bounds["low"], "cap": 1 + bounds["high"]}
    if knobs["ratio_clip_c"] is not None:
        return {"name": "dual_clip", **bounds, "dual": knobs["ratio_clip_c"]}
    return {"name": "clip", **bounds}


def _correction(knobs: Mapping[str, Any], shared: bool) -> list[dict[str, Any]]:
    bounds = {
        "low": knobs["truncated_importance_sampling_ratio_min"],
        "high": knobs["truncated_importance_sampling_ratio"],
    }
    level = {"level": "sequence" if shared else "token"}
    free = {"name": "truncate", "low": None, "high": None, **level}
    return {
        None: [free],
        "tis": [{"name": "truncate", **bounds, **level}],
        "icepop": [{"name": "mask_outside", **bounds, **level}],
        "seq-mask-tis": [{"name": "drop_outside", "level": "mean", **bounds}, free],
    }[knobs["truncated_importance_sampling_type"]]
