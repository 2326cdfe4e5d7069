"""verl 0.9 (and 0.10.0.dev): algorithm, actor and rollout_correction sections."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

DEFAULTS: dict[str, Any] = {
    "adv": {"adv_estimator": "grpo", "norm_adv_by_std_in_grpo": True},
    "clip_ratio": 0.2,
    "clip_ratio_low": 0.2,
    "clip_ratio_high": 0.2,
    "clip_ratio_c": 3.0,
    "loss_agg_mode": "token-mean",
    "loss_scale_factor": None,
    "entropy_coeff": 0.0,
    "use_kl_loss": False,
    "kl_loss_coef": 0.001,
    "kl_loss_type": "low_var_kl",
    "tau_pos": 1.0,
    "tau_neg": 1.05,
    "policy_loss": {
        "loss_mode": "vanilla",
        "clip_cov_ratio": 0.0002,
        "clip_cov_lb": 1.0,
        "clip_cov_ub": 5.0,
        "kl_cov_ratio": 0.0002,
        "ppo_kl_coef": 0.1,
        "dro_beta": None,
    },
    "global_batch_info": True,
}

WHITEN = {"name": "tokens", "ddof": 1, "eps": 1e-8, "eps_in": "var"}
_OWN_MEAN = ("sapo", "geo_mean")  # losses that take the mean over rollouts whatever loss_agg_mode says


def spec(knobs: Mapping[str, Any], *, columns: int | None = None, sequence_gspo: bool = False) -> dict[str, Any]:
    """The actor's loss with the estimator of `knobs["adv"]`.

    columns: response columns of the padded batch, what `seq-mean-token-sum-norm` divides by without a
    loss_scale_factor. sequence_gspo: gspo forces seq-mean-token-mean (0.10.0.dev).
    """
    loss_mode = knobs["policy_loss"]["loss_mode"]
    bypass = knobs["policy_loss"].get("rollout_correction", {}) if loss_mode == "bypass_mode" else None
    rollout_correction = bypass if bypass is not None else knobs.get("rollout_correction", {})
    mode = knobs["loss_agg_mode"]
    if loss_mode in _OWN_MEAN or (loss_mode == "gspo" and sequence_gspo):
        mode = "seq-mean-token-mean"
    dro = loss_mode == "dro"
    return {
        **advantage({**knobs, **knobs["adv"]}),
        "anchor": "old" if bypass is None else "behavior",
        "ratio": {"name": "sequence", "gradient": "token", "clamp": 10.0} if loss_mode == "gspo" else _TOKEN_RATIO,
        "surrogate": _surrogate(knobs, bypass),
        "kl": kl(knobs["kl_loss_type"]) if not dro else {"name": "k2"},
        "kl_to": "old" if dro else "ref",
        "kl_coef": knobs["policy_loss"]["dro_beta"] if dro else knobs["kl_loss_coef"] * bool(knobs["use_kl_loss"]),
        "weights": weights(mode, knobs, columns=columns),
        "entropy_coef": knobs["entropy_coeff"],
        "correction": [*_trust_region(knobs), *_importance(rollout_correction, bypass)],
        "masks": _rejections(rollout_correction),
    }


_TOKEN_RATIO = {"name": "token", "clamp": 20.0}


def advantage(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """The `algorithm` section. Groups of one keep their reward in most of verl's estimators."""
    name = knobs["adv_estimator"]
    by_std = knobs.get("norm_adv_by_std_in_grpo", True)
    grpo = {"name": "group_zscore", "ddof": 1, "eps": 1e-6, "single": "keep"}
    table: dict[str, dict[str, Any]] = {
        "grpo": {"advantage": grpo if by_std else {"name": "group_mean", "single": "keep"}},
        "grpo_vectorized": {"advantage": grpo},  # norm_adv_by_std_in_grpo never reaches it
        "grpo_passk": {"advantage": {"name": "best_gap", "divide_by_std": by_std, "ddof": 1, "eps": 1e-6}},
        "rloo": {"advantage": {"name": "leave_one_out", "single": "keep"}},
        "rloo_vectorized": {"advantage": "leave_one_out"},
        "opo": {"advantage": {"name": "opo", "single": "keep"}},
        "gpg": {"advantage": {"name": "gpg", "single": "keep"}},
        "remax": {"advantage": "remax"},
        "reinforce_plus_plus": {
            "advantage": {"name": "reward_to_go", "gamma": knobs.get("gamma", 1.0)},
            "whiten": WHITEN,
        },
        "reinforce_plus_plus_baseline": {"advantage": {"name": "group_mean", "single": "keep"}, "whiten": WHITEN},
        "gae": {
            "advantage": {"name": "gae", "gamma": knobs.get("gamma", 1.0), "lam": knobs.get("lam", 1.0)},
            "whiten": WHITEN,
        },
        "gdpo": {
            "advantage": {
                "name": "gdpo",
                "ddof": 1,
                "eps": 1e-6,
                "component_weights": knobs.get("gdpo_reward_weights"),
            },
            "whiten": WHITEN,
        },
    }
    return table[name]


def weights(mode: str, knobs: Mapping[str, Any], *, columns: int | None = None) -> dict[str, Any]:
    """`loss_agg_mode`; without global batch information empty rollouts do not count."""
    rollouts = {"rollouts": "all" if knobs.get("global_batch_info") else "nonempty"}
    length = knobs.get("loss_scale_factor") or columns or "max_response_tokens"
    return {
        "token-mean": {"name": "token_mean"},
        "token-sum": {"name": "token_sum"},
        "seq-mean-token-sum": {"name": "sequence_sum", **rollouts},
        "seq-mean-token-mean": {"name": "sequence_mean", "eps": 1e-8, **rollouts},
        "seq-mean-token-sum-norm": {"name": "fixed_length", "max_tokens": length, **rollouts},
    }[mode]


def kl(name: str) -> dict[str, Any]:
    """`kl_penalty`: k3 is clamped; a "+" keeps the value and takes k2's gradient."""
    base = {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}.get(name.rstrip("+"), name.rstrip("+"))
    clamps = {"clamp_in": 20.0, "clamp_out": 10.0} if base == "k3" else {}
    return {"name": base, **clamps, "straight_through": name.endswith("+")}


def _surrogate(knobs: Mapping[str, Any], bypass: Mapping[str, Any] | None) -> dict[str, Any]:
    loss = knobs["policy_loss"]
    low, high = _range(knobs)
    dual_clip = {"name": "dual_clip", "low": low, "high": high, "dual": knobs["clip_ratio_c"]}
    if bypass is not None:
        return {"name": "log_prob"} if bypass.get("loss_type") == "reinforce" else dual_clip
    cov = {"cov_low": loss["clip_cov_lb"], "cov_high": loss["clip_cov_ub"], "share": loss["clip_cov_ratio"]}
    table: dict[str, dict[str, Any]] = {
        "vanilla": dual_clip,
        "gspo": {"name": "clip", "low": low, "high": high},
        "cispo": {"name": "cispo", "floor": 1 - low, "cap": 1 + high},
        "sapo": {"name": "sapo", "tau_pos": knobs["tau_pos"], "tau_neg": knobs["tau_neg"]},
        "gpg": {"name": "log_prob"},
        "dro": {"name": "log_prob"},
        "geo_mean": {"name": "gmpo", "low": low, "high": high, "eps": 1e-8},
        "clip_cov": {"name": "clip_cov", "low": low, "high": high, **cov},
        "kl_cov": {"name": "kl_cov", "share": loss["kl_cov_ratio"], "coef": loss["ppo_kl_coef"]},
        "dppo_tv": {"name": "cispo", "floor": 0.0, "cap": knobs["clip_ratio_c"]},
        "dppo_kl": {"name": "cispo", "floor": 0.0, "cap": knobs["clip_ratio_c"]},
    }
    return table[loss["loss_mode"]]


def _trust_region(knobs: Mapping[str, Any]) -> list[dict[str, Any]]:
    name = knobs["policy_loss"]["loss_mode"]
    if name not in ("dppo_tv", "dppo_kl"):
        return []
    low, high = _range(knobs)
    return [{"name": "trust_region", "divergence": name.removeprefix("dppo_"), "low": low, "high": high}]


def _range(knobs: Mapping[str, Any]) -> tuple[float, float]:
    """clip_ratio stands in for a side that is null."""
    low, high = knobs["clip_ratio_low"], knobs["clip_ratio_high"]
    return knobs["clip_ratio"] if low is None else low, knobs["clip_ratio"] if high is None else high


def _importance(settings: Mapping[str, Any], bypass: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """`rollout_is`: a number truncates, "low_high" zeroes outside. With bypass and ppo_clip the ratio does its work."""
    level = settings.get("rollout_is")
    if level is None or (bypass is not None and bypass.get("loss_type") != "reinforce"):
        return []
    threshold = settings.get("rollout_is_threshold", 2.0)
    if isinstance(threshold, str) and "_" in threshold:
        low, high = (float(part) for part in threshold.split("_"))
        return [{"name": "mask_outside", "level": level, "low": low, "high": high}]
    normalize = bool(settings.get("rollout_is_batch_normalize", False))
    return [{"name": "truncate", "level": level, "high": float(threshold), "self_normalize": normalize}]


def _rejections(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`rollout_rs`: comma-separated statistics; k1's bounds are ratios and bound log(behavior / old)."""
    if not settings.get("rollout_rs"):
        return []
    components: list[dict[str, Any]] = []
    thresholds = str(settings["rollout_rs_threshold"]).split(",")
    for option, threshold in zip(settings["rollout_rs"].split(","), thresholds, strict=True):
        level, estimator = option.strip().removeprefix("seq_").rsplit("_", 1)
        bounds = [float(part) for part in threshold.strip().split("_")]
        if estimator == "k1":
            upper = bounds[-1]
            lower = bounds[0] if len(bounds) == 2 else 1 / upper
            low, high = math.log(lower), math.log(upper)
        else:
            low, high = None, bounds[0]
        components.append({"name": "rejection", "estimator": estimator, "level": level, "low": low, "high": high})
    return components
