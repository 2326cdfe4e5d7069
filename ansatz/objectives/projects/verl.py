"""verl 0.9 (and 0.10.0.dev): algorithm, actor and rollout_correction sections."""

from __future__ import annotations

import math
from typing import Any

from ansatz.errors import ConfigError
from ansatz.objectives.projects.options import Options

WHITEN = {"name": "tokens", "ddof": 1, "eps": 1e-8, "eps_in": "var", "mean_eps": 1e-8}
_TOKEN_RATIO = {"name": "token", "clamp": 20.0}


def spec(options: Options, *, columns: int | None = None, sequence_gspo: bool = False) -> dict[str, Any]:
    """Return the actor's loss with the estimator of `options["adv"]`.

    columns: response columns of the padded batch, the divisor of `seq-mean-token-sum-norm` without a
    loss_scale_factor. sequence_gspo: gspo forces seq-mean-token-mean (0.10.0.dev).
    """
    loss = options["policy_loss"]
    loss_mode = loss["loss_mode"]
    bypass: Options | None = loss.get("rollout_correction", Options({})) if loss_mode == "bypass_mode" else None
    correction: Options = bypass if bypass is not None else options.get("rollout_correction", Options({}))
    shared = weights(options["loss_agg_mode"], options, columns=columns)
    own = _own_weights(loss_mode, shared, sequence_gspo)
    gspo = {"name": "sequence", "gradient": "token", "clamp": 10.0}
    return {
        **advantage(options, options["adv"]),
        "anchor": "old" if bypass is None else "behavior",
        "ratio": gspo if loss_mode == "gspo" else _TOKEN_RATIO,
        "surrogate": _surrogate(options, bypass),
        **_kl(options, loss_mode),
        "weights": own,
        **({"penalty_weights": shared} if own != shared else {}),
        "entropy_coef": options["entropy_coeff"],
        "correction": [*_trust_region(options), *_importance(correction, bypass, loss_mode)],
        "masks": _rejections(correction),
    }


def advantage(options: Options, estimator: Options | None = None) -> dict[str, Any]:
    """The `algorithm` section. Groups of one keep their reward in most of verl's estimators.

    estimator: the options of the estimator, if they are a section of their own; gamma and lam can be in either.
    """
    own = options if estimator is None else estimator
    name = own["adv_estimator"]

    def number(key: str) -> float:
        return own[key] if key in own else options.get(key, 1.0)

    for section in (own, options):
        if name != "gae":
            section.ignore("lam")
        if name not in ("gae", "reinforce_plus_plus"):
            section.ignore("gamma")
    if name not in ("grpo", "grpo_passk"):
        own.ignore("norm_adv_by_std_in_grpo")  # compute_advantage does not pass it on
    if name == "gae":
        gae = {"name": "gae", "gamma": number("gamma"), "lam": number("lam")}
        return {"advantage": gae, "whiten": WHITEN}
    if name == "reinforce_plus_plus":
        return {"advantage": {"name": "reward_to_go", "gamma": number("gamma")}, "whiten": WHITEN}
    if name == "reinforce_plus_plus_baseline":
        return {"advantage": {"name": "group_mean", "single": "keep"}, "whiten": WHITEN}
    if name == "gdpo":
        components = own.get("gdpo_reward_weights")
        zscores = {"name": "gdpo", "ddof": 1, "eps": 1e-6, "single": "keep", "component_weights": components}
        return {"advantage": zscores, "whiten": WHITEN}
    return {"advantage": _group_advantage(name, own)}


def _group_advantage(name: str, options: Options) -> dict[str, Any]:
    """Estimators without whitening."""
    zscore = {"name": "group_zscore", "ddof": 1, "eps": 1e-6, "single": "keep"}
    if name == "grpo":
        by_std = options.get("norm_adv_by_std_in_grpo", True)
        return zscore if by_std else {"name": "group_mean", "single": "keep"}
    if name == "grpo_passk":
        by_std = options.get("norm_adv_by_std_in_grpo", True)
        return {"name": "best_gap", "divide_by_std": by_std, "ddof": 1, "eps": 1e-6}
    table: dict[str, dict[str, Any]] = {
        "grpo_vectorized": zscore,
        "rloo": {"name": "leave_one_out", "single": "keep"},
        "rloo_vectorized": {"name": "leave_one_out"},
        "opo": {"name": "opo", "single": "keep"},
        "gpg": {"name": "gpg", "single": "keep"},
        "remax": {"name": "remax_to_go"},
    }
    if name not in table:
        raise ConfigError(f"verl: adv_estimator = {name!r} is refused, because it has no counterpart here.")
    return table[name]


def weights(mode: str, options: Options, *, columns: int | None = None) -> dict[str, Any]:
    """`loss_agg_mode`. Without global batch information, empty rollouts do not count."""
    rollouts = {"rollouts": "all" if options.get("global_batch_info") else "nonempty"}
    if mode == "seq-mean-token-sum-norm":
        length = options.get("loss_scale_factor") or columns or "max_response_tokens"
        return {"name": "fixed_length", "max_tokens": length, **rollouts}
    options.ignore("loss_scale_factor")
    return {
        "token-mean": {"name": "token_mean"},
        "token-sum": {"name": "token_sum"},
        "seq-mean-token-sum": {"name": "sequence_sum", **rollouts},
        "seq-mean-token-mean": {"name": "sequence_mean", "eps": 1e-8, **rollouts},
    }[mode]


def kl(name: str) -> dict[str, Any]:
    """`kl_penalty`: k3 is clamped; a "+" keeps the value and takes the gradient of k2."""
    base = {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}.get(name.rstrip("+"), name.rstrip("+"))
    clamps = {"clamp_in": 20.0, "clamp_out": 10.0} if base == "k3" else {}
    return {"name": base, **clamps, "straight_through": name.endswith("+")}


def _own_weights(loss_mode: str, shared: dict[str, Any], sequence_gspo: bool) -> dict[str, Any]:
    """Return the weights of the policy term: some losses take the mean over rollouts whatever loss_agg_mode is."""
    if loss_mode == "geo_mean":
        return {"name": "sequence_mean", "eps": 1e-8, "rollouts": "all"}
    if loss_mode == "sapo" or (loss_mode == "gspo" and sequence_gspo):
        return {"name": "sequence_mean", "eps": 1e-8, "rollouts": shared.get("rollouts", "nonempty")}
    return shared


def _kl(options: Options, loss_mode: str) -> dict[str, Any]:
    """DRO's pull to the old policy takes the place of the KL loss."""
    used = bool(options["use_kl_loss"])
    if loss_mode == "dro":
        if used:
            raise ConfigError(
                "verl: use_kl_loss is refused with loss_mode dro, whose pull to the old policy is the KL."
            )
        return {"kl": {"name": "k2"}, "kl_to": "old", "kl_coef": options["policy_loss"]["dro_beta"]}
    options.ignore("kl_loss_coef")  # without use_kl_loss
    return {"kl": kl(options["kl_loss_type"]), "kl_to": "ref", "kl_coef": options["kl_loss_coef"] if used else 0.0}


def _surrogate(options: Options, bypass: Options | None) -> dict[str, Any]:
    loss = options["policy_loss"]
    name = loss["loss_mode"]
    if bypass is not None:
        name = {"reinforce": "gpg"}.get(bypass.get("loss_type", "ppo_clip"), "vanilla")
    if name in ("sapo", "gpg", "dro", "kl_cov"):
        options.ignore("clip_ratio", "clip_ratio_low", "clip_ratio_high")
    if name not in ("vanilla", "dppo_tv", "dppo_kl"):
        options.ignore("clip_ratio_c")
    if name in ("gpg", "dro"):
        return {"name": "log_prob"}
    if name == "sapo":
        return {"name": "sapo", "tau_pos": options["tau_pos"], "tau_neg": options["tau_neg"]}
    if name == "kl_cov":
        return {"name": "kl_cov", "share": loss["kl_cov_ratio"], "coef": loss["ppo_kl_coef"]}
    if name in ("dppo_tv", "dppo_kl"):
        return {"name": "cispo", "floor": 0.0, "cap": options["clip_ratio_c"]}
    low, high = _range(options)
    if name == "vanilla":
        return {"name": "dual_clip", "low": low, "high": high, "dual": options["clip_ratio_c"]}
    if name == "clip_cov":
        cov = {"cov_low": loss["clip_cov_lb"], "cov_high": loss["clip_cov_ub"], "share": loss["clip_cov_ratio"]}
        return {"name": "clip_cov", "low": low, "high": high, **cov}
    return {
        "gspo": {"name": "clip", "low": low, "high": high},
        "cispo": {"name": "cispo", "floor": 1 - low, "cap": 1 + high},
        "geo_mean": {"name": "gmpo", "low": low, "high": high, "eps": 1e-8},
    }[name]


def _trust_region(options: Options) -> list[dict[str, Any]]:
    name = options["policy_loss"]["loss_mode"]
    if name not in ("dppo_tv", "dppo_kl"):
        return []
    low, high = _range(options)
    return [{"name": "trust_region", "divergence": name.removeprefix("dppo_"), "low": low, "high": high}]


def _range(options: Options) -> tuple[float, float]:
    """clip_ratio stands in for a side that is null; otherwise verl ignores it."""
    low, high = options["clip_ratio_low"], options["clip_ratio_high"]
    options.ignore("clip_ratio")
    return options["clip_ratio"] if low is None else low, options["clip_ratio"] if high is None else high


def _importance(settings: Options, bypass: Options | None, loss_mode: str) -> list[dict[str, Any]]:
    """`rollout_is`: a number truncates, "low_high" zeroes outside. In bypass mode with ppo_clip the ratio corrects."""
    level = settings.get("rollout_is")
    if level is None or (bypass is not None and bypass.get("loss_type", "ppo_clip") != "reinforce"):
        settings.ignore("rollout_is_threshold", "rollout_is_batch_normalize")
        return []
    if loss_mode == "geo_mean" and level == "token":
        raise ConfigError(
            "verl: rollout_is = 'token' is refused with loss_mode geo_mean, which multiplies a rollout with the "
            "geometric mean of its weights. Use correction {name: truncate, level: mean}."
        )
    threshold = settings.get("rollout_is_threshold", 2.0)
    normalize = bool(settings.get("rollout_is_batch_normalize", False))
    if isinstance(threshold, str) and "_" in threshold:
        low, high = (float(part) for part in threshold.split("_"))
        bounds: dict[str, Any] = {"name": "mask_outside", "low": low, "high": high}
    else:
        bounds = {"name": "truncate", "high": float(threshold)}
    return [{**bounds, "level": level, "self_normalize": normalize, "mean_eps": 1e-8}]


def _rejections(settings: Options) -> list[dict[str, Any]]:
    """`rollout_rs`: comma-separated statistics. The bounds of k1 are ratios and bound log(behavior / old)."""
    statistics = settings.get("rollout_rs")
    if not statistics:
        settings.ignore("rollout_rs_threshold")
        return []
    thresholds = str(settings["rollout_rs_threshold"]).split(",")
    options = statistics.split(",")
    if len(thresholds) == 1:
        thresholds *= len(options)
    components: list[dict[str, Any]] = []
    for option, threshold in zip(options, thresholds, strict=True):
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
