"""NeMo-RL 0.7: advantage estimators, ClippedPGLossFn, DPOLossFn."""

from __future__ import annotations

from typing import Any

from ansatz.errors import ConfigError
from ansatz.objectives.projects.options import Options

_TRUNCATION = (
    "truncated_importance_sampling_type",
    "truncated_importance_sampling_ratio",
    "truncated_importance_sampling_ratio_min",
)
_WHITEN = {"name": "tokens", "ddof": 0, "eps": 1e-8, "eps_in": "floor"}


def spec(options: Options) -> dict[str, Any]:
    forced = options["force_on_policy_ratio"]
    shared = options["sequence_level_importance_ratios"]
    filtered = options["overlong_filtering"]
    weight = "behavior" if options["use_on_policy_kl_approximation"] else "on_policy"
    sequence_mean = {"name": "sequence_mean", "rollouts": "nonempty" if filtered else "all", "eps": 1e-8}
    likelihood = options["positive_example_nll_weight"]
    return {
        **advantage(options["adv"]),
        "anchor": "policy" if forced else "old",
        "ratio": {"name": "sequence", "mean_eps": 1e-8} if shared and not forced else "token",
        "surrogate": _surrogate(options),
        "kl": {**kl_component(options["reference_policy_kl_type"], options), "weight": weight},
        "kl_coef": options["reference_policy_kl_penalty"],
        "weights": {"name": "token_mean", "eps": 1e-8} if options["token_level_loss"] else sequence_mean,
        "correction": _correction(options, shared),
        "masks": "not_truncated" if filtered else "none",
        **(
            {"likelihood_coef": likelihood, "likelihood_weights": {"name": "token_mean", "eps": 1e-8}}
            if likelihood
            else {}
        ),
    }


def kl_component(name: str, options: Options) -> dict[str, Any]:
    return {
        "name": name,
        "clamp_in": options.get("kl_input_clamp_value", 20.0),
        "clamp_out": options.get("kl_output_clamp_value", 10.0),
    }


def advantage(options: Options) -> dict[str, Any]:
    """Return the estimator called `name` ("grpo" if it is not set)."""
    name = options.get("name", "grpo")
    if name == "grpo":
        return {"advantage": _group_normalizer(options)}
    if name == "gdpo":
        normalizer = _group_normalizer(options)
        gdpo = {**normalizer, "name": "gdpo", "normalizer": normalizer["name"]}
        gdpo["component_weights"] = options["reward_weights"]
        return {"advantage": gdpo, "whiten": {"name": "rollouts", "ddof": 1, "eps": 0.0, "eps_in": "std"}}
    if name == "raw":
        return {"advantage": "reward", "whiten": _WHITEN if options.get("normalize_advantages", True) else "none"}
    if name == "reinforce_plus_plus":
        baseline = "group_mean" if options["minus_baseline"] else "reward"
        return {"advantage": baseline, "whiten": _WHITEN, **_kl_in_reward(options, "advantage")}
    if name != "gae":
        raise ConfigError(f"NeMo-RL: advantage estimator {name!r} is refused, because it has no counterpart here.")
    options.ignore("gae_lambda_value")  # the critic's returns, see `critic_advantage`
    lam = options["gae_lambda_policy"]
    return _gae(options, options["gae_lambda"] if lam is None else lam, options["length_adaptive_alpha"])


def critic_advantage(options: Options) -> dict[str, Any]:
    """Return the estimator whose returns are the critic's targets: its lambda differs from the policy's lambda
    (VAPO)."""
    lam = options["gae_lambda_value"]
    return _gae(options, options["gae_lambda"] if lam is None else lam, 0)


def dpo(options: Options) -> list[tuple[float, str, dict[str, Any]]]:
    """Return (weight, loss, settings)."""
    name = "dpo_norm" if options["preference_average_log_probs"] else "dpo"
    losses = [(options["preference_loss_weight"], name, {"beta": options["reference_policy_kl_penalty"]})]
    kind = "sequence_mean" if options["sft_average_log_probs"] else "sequence_sum"
    weight = options["sft_loss_weight"]
    return [*losses, (weight, "likelihood", {"kind": kind})] if weight else losses


def _gae(options: Options, lam: float, length_alpha: float) -> dict[str, Any]:
    gae: dict[str, Any] = {"name": "gae", "gamma": options["gae_gamma"], "lam": lam}
    if length_alpha:
        gae["lam_length"] = length_alpha
    whitened = options.get("normalize_advantages", True)
    return {
        "advantage": gae,
        "whiten": {"name": "tokens", "ddof": 1, "eps": 1e-8} if whitened else "none",
        **_kl_in_reward(options, "reward"),
    }


def _kl_in_reward(options: Options, place: str) -> dict[str, Any]:
    if not options.get("use_kl_in_reward", False):
        options.ignore("reference_policy_kl_penalty", "reference_policy_kl_type")
        return {"kl_in": place}
    return {
        "kl_in": place,
        "kl": kl_component(options["reference_policy_kl_type"], options),
        "kl_coef": options["reference_policy_kl_penalty"],
    }


def _group_normalizer(options: Options) -> dict[str, Any]:
    others, by_std = options["use_leave_one_out_baseline"], options["normalize_rewards"]
    scaled = {"ddof": 1, "eps": 1e-6}
    if others:
        return {"name": "leave_one_out_std", **scaled} if by_std else {"name": "leave_one_out"}
    return {"name": "group_zscore", **scaled} if by_std else {"name": "group_mean"}


def _surrogate(options: Options) -> dict[str, Any]:
    if options["disable_ppo_ratio"] and not options["force_on_policy_ratio"]:
        options.ignore("ratio_clip_min", "ratio_clip_max")
        options.ignore("ratio_clip_c")  # log-probs are negative, so the bound never holds
        return {"name": "log_prob"}
    if options["force_on_policy_ratio"]:
        options.ignore("ratio_clip_min", "ratio_clip_max", "ratio_clip_c")  # the ratio is 1
        return {"name": "plain"}
    low, high, dual = options["ratio_clip_min"], options["ratio_clip_max"], options["ratio_clip_c"]
    if options["use_cispo"]:
        if dual is not None:
            raise ConfigError("NeMo-RL: ratio_clip_c is refused with use_cispo, as in NeMo-RL itself.")
        return {"name": "cispo", "floor": 1 - low, "cap": 1 + high}
    if dual is not None:
        return {"name": "dual_clip", "low": low, "high": high, "dual": dual}
    return {"name": "clip", "low": low, "high": high}


def _correction(options: Options, shared: bool) -> list[dict[str, Any]]:
    if not options["use_importance_sampling_correction"]:
        options.ignore(*_TRUNCATION)
        return []
    level = {"level": "sequence" if shared else "token"}
    free = {"name": "truncate", "low": None, "high": None, **level}
    kind = options["truncated_importance_sampling_type"]
    if kind is None:
        options.ignore(*_TRUNCATION)
        return [free]
    bounds = {
        "low": options["truncated_importance_sampling_ratio_min"],
        "high": options["truncated_importance_sampling_ratio"],
    }
    return {
        "tis": [{"name": "truncate", **bounds, **level}],
        "icepop": [{"name": "mask_outside", **bounds, **level}],
        "seq-mask-tis": [{"name": "drop_outside", "level": "mean", **bounds}, free],
    }[kind]
