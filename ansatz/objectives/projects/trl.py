"""TRL 1.16: GRPOConfig and RLOOConfig."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEFAULTS: dict[str, Any] = {
    "loss_type": "dapo",
    "epsilon": 0.2,
    "epsilon_high": None,
    "delta": None,
    "beta": 0.0,
    "use_bias_correction_kl": True,
    "importance_sampling_level": "token",
    "scale_rewards": "group",
    "top_entropy_quantile": 1.0,
    "entropy_coef": 0.0,
    "off_policy_mask_threshold": None,
    "mask_truncated_completions": False,
    "use_vllm": True,
    "vllm_importance_sampling_correction": True,
    "vllm_importance_sampling_mode": "sequence_mask",
    "vllm_importance_sampling_clip_max": 3.0,
    "vllm_importance_sampling_clip_min": None,
    "sapo_temperature_pos": 1.0,
    "sapo_temperature_neg": 1.05,
    "max_completion_length": "max_response_tokens",
    "num_iterations": 1,
    "multi_objective_aggregation": "sum_then_normalize",
}

_SCALES = {
    "group": {"name": "group_zscore", "ddof": 1, "eps": 1e-4},
    "batch": {"name": "group_zscore", "ddof": 1, "eps": 1e-4, "std_over": "batch"},
    "none": {"name": "group_mean"},
}
_WEIGHTS = {
    "grpo": "sequence_mean",
    "sapo": "sequence_mean",
    "gmpo": "sequence_mean",
    "bnpo": "token_mean",
    "dapo": "token_mean",
    "cispo": "token_mean",
    "luspo": "sequence_sum",
}


def spec(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """GRPOConfig. loss_type "gmpo" stands for the experimental GMPOTrainer."""
    loss_type = knobs["loss_type"]
    corrected = bool(knobs["use_vllm"] and knobs["vllm_importance_sampling_correction"])
    fresh = knobs["num_iterations"] == 1 and not corrected
    weights: Any = _WEIGHTS.get(loss_type)
    if loss_type == "dr_grpo":
        weights = {"name": "fixed_length", "max_tokens": knobs["max_completion_length"]}
    return {
        **_advantage(knobs),
        "anchor": "policy" if fresh else "old",
        "ratio": {"name": "sequence" if knobs["importance_sampling_level"] == "sequence" else "token"},
        "surrogate": _surrogate(knobs),
        "kl": {"name": "k3", "weight": "ratio" if knobs["use_bias_correction_kl"] else "none"},
        "kl_coef": knobs["beta"],
        "weights": weights,
        "correction": _corrections(knobs, corrected),
        "masks": "not_truncated" if knobs["mask_truncated_completions"] else "none",
        "entropy_coef": knobs["entropy_coef"],
        **({"penalty_weights": "token_mean"} if knobs["entropy_coef"] and not knobs["beta"] else {}),
    }


def rloo(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """RLOOConfig: the KL in the reward, one ratio for the whole response."""
    whiten = {"name": "rollouts", "ddof": 1, "eps": 1e-4, "eps_in": "std"}
    return {
        "advantage": "leave_one_out",
        "whiten": whiten if knobs["normalize_advantages"] else "none",
        "anchor": "policy" if knobs["num_iterations"] == 1 else "old",
        "ratio": "product",
        "surrogate": _clip(knobs),
        "kl": "k1",
        "kl_coef": knobs["beta"],
        "kl_in": "reward",
        "weights": "sequence_mean",
    }


def _advantage(knobs: Mapping[str, Any]) -> dict[str, Any]:
    if knobs["multi_objective_aggregation"] != "normalize_then_sum":
        return {"advantage": _SCALES[knobs["scale_rewards"]]}
    return {
        "advantage": {
            "name": "gdpo",
            "component_weights": knobs.get("reward_weights"),
            "ddof": 1,
            "eps": 1e-4,
        },
        "whiten": {"name": "rollouts", "ddof": 1, "eps": 1e-4, "eps_in": "std"},
    }


def _clip(knobs: Mapping[str, Any]) -> dict[str, Any]:
    high = knobs["epsilon"] if knobs["epsilon_high"] is None else knobs["epsilon_high"]
    return {"name": "clip", "low": knobs["epsilon"], "high": high}


def _surrogate(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """CISPO's epsilon_high is the cap itself, not 1 + epsilon_high, and there is no floor."""
    clip = _clip(knobs)
    if knobs["loss_type"] == "cispo":
        return {"name": "cispo", "floor": 0.0, "cap": clip["high"]}
    if knobs["loss_type"] == "sapo":
        return {
            "name": "sapo",
            "tau_pos": knobs["sapo_temperature_pos"],
            "tau_neg": knobs["sapo_temperature_neg"],
        }
    if knobs["loss_type"] == "gmpo":
        return {**clip, "name": "gmpo"}
    if knobs["delta"] is not None:
        return {**clip, "name": "two_sided", "delta": knobs["delta"]}
    return clip


def _corrections(knobs: Mapping[str, Any], corrected: bool) -> list[dict[str, Any]]:
    components: list[dict[str, Any]] = []
    if corrected:
        level, _, action = knobs["vllm_importance_sampling_mode"].partition("_")
        components.append(
            {
                "name": "truncate" if action == "truncate" else "mask_outside",
                "level": level,
                "low": knobs["vllm_importance_sampling_clip_min"],
                "high": knobs["vllm_importance_sampling_clip_max"],
            }
        )
    if knobs["top_entropy_quantile"] < 1:
        components.append({"name": "high_entropy", "share": knobs["top_entropy_quantile"]})
    if knobs["off_policy_mask_threshold"] is not None:
        sampler = "behavior" if knobs["use_vllm"] else "old"
        threshold = knobs["off_policy_mask_threshold"]
        components.append({"name": "stale_negatives", "threshold": threshold, "sampler": sampler})
    return components
