"""SkyRL (mid 2026): AlgorithmConfig."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEFAULTS: dict[str, Any] = {
    "adv": {"advantage_estimator": "grpo", "grpo_norm_by_std": True},
    "policy_loss_type": "regular",
    "loss_reduction": "token_mean",
    "eps_clip_low": 0.2,
    "eps_clip_high": 0.2,
    "clip_ratio_c": 3.0,
    "max_seq_len": "max_response_tokens",
    "sapo": {"tau_pos": 1.0, "tau_neg": 1.05},
    "cispo": {"cispo_eps_clip_low": 1.0, "cispo_eps_clip_high": 4.0, "cispo_anchor": "old"},
    "dppo": {"dppo_type": "binary_tv", "delta_low": 0.2, "delta_high": 0.2},
    "use_kl_loss": True,
    "kl_estimator_type": "k3",
    "kl_loss_coef": 0.001,
    "off_policy_correction": {"tis_ratio_type": None, "sequence_mask_metric": None},
}


def spec(knobs: Mapping[str, Any]) -> dict[str, Any]:
    name = knobs["policy_loss_type"]
    from_sampler = name in ("dppo", "rollout_is") or (
        name == "cispo" and knobs["cispo"]["cispo_anchor"] in ("rollout", "behavior")
    )
    on = knobs["use_kl_loss"] is True
    return {
        **advantage(knobs["adv"]),
        "anchor": "behavior" if from_sampler else "old",
        "ratio": {"name": "sequence", "gradient": "token", "clamp": 10.0}
        if name == "gspo"
        else {"name": "token", "clamp": 20.0},
        "surrogate": _surrogate(knobs),
        "kl": kl_component(knobs["kl_estimator_type"]) if on else {"name": "k3"},
        "kl_coef": knobs["kl_loss_coef"] if on else 0.0,
        "weights": weights(knobs),
        "penalty_weights": "sequence_mean",
        "correction": [*_trust_region(knobs), *_off_policy(knobs["off_policy_correction"])],
    }


def weights(knobs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "token_mean": {"name": "token_mean"},
        "token_mean_legacy": {"name": "token_mean"},
        "sequence_mean": {"name": "sequence_mean"},
        "prompt_mean": {"name": "prompt_mean"},
        "seq_mean_token_sum_norm": {"name": "fixed_length", "max_tokens": knobs["max_seq_len"]},
    }[knobs["loss_reduction"]]


def advantage(knobs: Mapping[str, Any]) -> dict[str, Any]:
    name = knobs["advantage_estimator"]
    grpo = {"name": "group_zscore", "ddof": 1, "eps": 1e-6, "single": "keep"}
    whiten = {"name": "tokens", "ddof": 1, "eps": 1e-8, "eps_in": "var"}
    gamma = knobs.get("gamma", 1.0)
    table: dict[str, dict[str, Any]] = {
        "grpo": {
            "advantage": grpo if knobs.get("grpo_norm_by_std", True) else {"name": "group_mean", "single": "keep"}
        },
        "rloo": {"advantage": "leave_one_out"},
        "maxrl": {"advantage": {"name": "mean_ratio", "eps": 1e-6, "signed": True}},
        "reinforce++": {"advantage": {"name": "reward_to_go", "gamma": gamma}, "whiten": whiten},
        "gae": {"advantage": {"name": "gae", "gamma": gamma, "lam": knobs.get("lambd", 1.0)}, "whiten": whiten},
    }
    return table[name]


def kl_component(name: str) -> dict[str, Any]:
    return {"name": name, **({"clamp_in": 20.0, "clamp_out": 10.0} if name == "k3" else {})}


def _surrogate(knobs: Mapping[str, Any]) -> dict[str, Any]:
    bounds = {"low": knobs["eps_clip_low"], "high": knobs["eps_clip_high"]}
    cispo = knobs["cispo"]
    table: dict[str, dict[str, Any]] = {
        "regular": {"name": "clip", **bounds},
        "dual_clip": {"name": "dual_clip", **bounds, "dual": knobs["clip_ratio_c"]},
        "gspo": {"name": "clip", **bounds},
        "cispo": {
            "name": "cispo",
            "floor": 1 - cispo["cispo_eps_clip_low"],
            "cap": 1 + cispo["cispo_eps_clip_high"],
        },
        "sapo": {"name": "sapo", **knobs["sapo"]},
        "importance_sampling": {"name": "plain"},
        "dppo": {"name": "plain"},
    }
    return table[knobs["policy_loss_type"]]


def _trust_region(knobs: Mapping[str, Any]) -> list[dict[str, Any]]:
    if knobs["policy_loss_type"] != "dppo":
        return []
    dppo = knobs["dppo"]
    divergence = dppo["dppo_type"].removeprefix("binary_")
    return [{"name": "trust_region", "divergence": divergence, "low": dppo["delta_low"], "high": dppo["delta_high"]}]


def _off_policy(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each is a factor: the reduction's denominators do not see what is dropped."""
    components: list[dict[str, Any]] = []
    level = settings["tis_ratio_type"]
    if level is not None:
        components.append({"name": "truncate", "level": level, "high": settings[f"{level}_tis_ratio_clip_high"]})
    metric = settings["sequence_mask_metric"]
    if metric is not None:
        short, level = {"geometric": ("geo", "mean"), "product": ("product", "sequence")}[metric]
        bounds = {"low": settings[f"{short}_mask_low"], "high": settings[f"{short}_mask_high"]}
        components.append({"name": "drop_outside", "level": level, **bounds})
    for prefix, level in (("outlier_token_is_threshold", "any"), ("token_mask_is_threshold", "token")):
        bounds = {"low": settings.get(f"{prefix}_low"), "high": settings.get(f"{prefix}_high")}
        if any(bound is not None for bound in bounds.values()):
            components.append({"name": "drop_outside", "level": level, **bounds})
    return components
