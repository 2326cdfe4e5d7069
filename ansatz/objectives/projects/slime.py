"""slime (mid 2026): the Megatron backend's arguments."""

from __future__ import annotations

from typing import Any

from ansatz.errors import ConfigError
from ansatz.objectives.projects.options import Options


def spec(options: Options) -> dict[str, Any]:
    estimator = options["advantage_estimator"]
    low, high = options["eps_clip"], options["eps_clip_high"]
    whiten = {"name": "tokens", "ddof": 1, "eps": 1e-8, "eps_in": "var"}
    if estimator != "ppo":
        options.ignore("value_clip")
    options.ignore("loss_type")  # which of the two losses is asked for
    return {
        **_advantage(estimator, options),
        **_kl(estimator, options),
        "whiten": whiten if options["normalize_advantages"] else "none",
        "ratio": "sequence" if estimator == "gspo" else "token",
        "surrogate": _surrogate(estimator, low, low if high is None else high, options),
        "weights": weights(options),
        "entropy_coef": options["entropy_coef"],
        "correction": _corrections(options),
        **({"value": {"name": "squared_error", **critic_settings(options)}} if estimator == "ppo" else {}),
    }


def weights(options: Options) -> str:
    return "token_mean" if options["calculate_per_token_loss"] else "sequence_mean"


def critic_settings(options: Options) -> dict[str, Any]:
    """The critic's loss has no factor 1/2."""
    return {"scale": 1.0, "clip": options["value_clip"]}


def _advantage(estimator: str, options: Options) -> dict[str, Any]:
    if estimator != "ppo":
        options.ignore("lambd")
    if estimator not in ("ppo", "reinforce_plus_plus"):
        options.ignore("gamma")
    if estimator in ("ppo", "reinforce_plus_plus"):
        options.ignore("rewards_normalization", "grpo_std_normalization")
        if estimator == "ppo":
            return {"advantage": {"name": "gae", "gamma": options["gamma"], "lam": options["lambd"]}}
        return {"advantage": {"name": "reward_to_go", "gamma": options["gamma"]}}
    if estimator not in ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline"):
        raise ConfigError(f"slime: advantage_estimator = {estimator!r} is refused, because it has no counterpart here.")
    if not options["rewards_normalization"]:
        options.ignore("grpo_std_normalization")
        return {"advantage": "reward"}
    if estimator == "reinforce_plus_plus_baseline":
        options.ignore("grpo_std_normalization")
        return {"advantage": "group_mean"}
    by_std = options["grpo_std_normalization"]
    return {"advantage": {"name": "group_zscore", "ddof": 1, "eps": 1e-6} if by_std else "group_mean"}


def _kl(estimator: str, options: Options) -> dict[str, Any]:
    """In the loss with use_kl_loss; otherwise kl_coef acts where the estimator takes it."""
    places = {"ppo": "reward", "reinforce_plus_plus": "reward", "reinforce_plus_plus_baseline": "advantage"}
    place = places.get(estimator)
    in_reward = options["kl_coef"] if place is not None else 0.0
    options.ignore("kl_coef")  # without a place for it
    name = options["kl_loss_type"]
    component: dict[str, Any] = {"name": "k3", "clamp_out": 10.0} if name == "low_var_kl" else {"name": name}
    if not options["use_kl_loss"]:
        options.ignore("kl_loss_coef", "use_unbiased_kl")
        return {"kl": component, "kl_coef": in_reward, "kl_in": place or "loss"}
    in_loss = options["kl_loss_coef"]
    if in_reward and in_loss:
        raise ConfigError("slime: kl_coef together with use_kl_loss is refused: an objective has one KL, in one place.")
    if in_reward:
        return {"kl": component, "kl_coef": in_reward, "kl_in": place}
    return {
        "kl": {**component, "weight": "ratio" if options["use_unbiased_kl"] else "none"},
        "kl_coef": in_loss,
        "kl_in": "loss",
    }


def _surrogate(estimator: str, low: float, high: float, options: Options) -> dict[str, Any]:
    if estimator == "cispo":
        options.ignore("eps_clip_c")
        return {"name": "cispo", "floor": 1 - low, "cap": 1 + high}
    dual = options["eps_clip_c"]
    if dual is not None:
        return {"name": "dual_clip", "low": low, "high": high, "dual": dual}
    return {"name": "clip", "low": low, "high": high}


def _corrections(options: Options) -> list[dict[str, Any]]:
    components: list[dict[str, Any]] = []
    if options["use_tis"]:
        path = options["custom_tis_function_path"]
        if path not in (None, "icepop"):
            raise ConfigError(f"slime: custom_tis_function_path = {path!r} is refused: the function is not known here.")
        name = "truncate" if path is None else "mask_outside"
        components.append({"name": name, "low": options["tis_clip_low"], "high": options["tis_clip"]})
    else:
        options.ignore("tis_clip", "tis_clip_low", "custom_tis_function_path")
    if options["use_opsm"]:
        components.append({"name": "stale_negatives", "threshold": options["opsm_delta"], "sampler": "old"})
    else:
        options.ignore("opsm_delta")
    return components
