"""TRL 1.16: GRPOConfig (and GMPOConfig), RLOOConfig, DPOConfig, CPOConfig."""

from __future__ import annotations

from typing import Any

from ansatz.errors import ConfigError
from ansatz.objectives.projects.options import Options

_WEIGHTS = {
    "grpo": "sequence_mean",
    "sapo": "sequence_mean",
    "gmpo": "sequence_mean",
    "bnpo": "token_mean",
    "dapo": "token_mean",
    "cispo": "token_mean",
    "vespo": "token_mean",
    "luspo": "sequence_sum",
}
_GLOBAL_TOKEN_MEAN = ("dapo", "cispo", "vespo")
_OWN_CLIP = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")


def spec(options: Options, *, aligned: bool | None = None) -> dict[str, Any]:
    """GRPOConfig. loss_type "gmpo" stands for the experimental GMPOTrainer.

    aligned: whether every update sees only samples of the weights before it; None: if there is one iteration.
    """
    loss_type = options["loss_type"]
    corrected = bool(options["use_vllm"] and options["vllm_importance_sampling_correction"])
    if not corrected:
        options.ignore(*(name for name in options if name.startswith("vllm_importance_sampling_")))
    once = options["num_iterations"] == 1
    on_policy = (once if aligned is None else aligned) and not corrected
    weights: Any = _WEIGHTS.get(loss_type)
    if loss_type == "dr_grpo":
        weights = {"name": "fixed_length", "max_tokens": options["max_completion_length"]}
    if weights is None:
        raise ConfigError(f"TRL: loss_type = {loss_type!r} is refused, because it has no counterpart here.")
    return {
        **_advantage(options),
        "anchor": "policy" if on_policy else "old",
        "ratio": {"name": _ratio(options)},
        "surrogate": _surrogate(options),
        **_kl(options),
        "weights": weights,
        "correction": _corrections(options, corrected, on_policy),
        "masks": "not_truncated" if options["mask_truncated_completions"] else "none",
        **_entropy(options),
    }


def rloo(options: Options) -> dict[str, Any]:
    """RLOOConfig: the KL in the reward, one ratio for the whole response."""
    whiten = {"name": "rollouts", "ddof": 1, "eps": 1e-4, "eps_in": "std"}
    options.ignore("num_iterations")
    return {
        "advantage": "leave_one_out",
        "whiten": whiten if options["normalize_advantages"] else "none",
        "ratio": "product",
        "surrogate": _clip(options),
        "kl": "k1",
        "kl_coef": options["beta"],
        "kl_in": "reward",
        "weights": "sequence_mean",
    }


def dpo(options: Options) -> list[tuple[float, str, dict[str, Any]]]:
    """DPOConfig: (weight, loss, settings) of each loss."""
    named: Any = options["loss_type"]
    names: list[str] = [named] if isinstance(named, str) else list(named)
    weights = options["loss_weights"] or [1.0] * len(names)
    return [(weight, *_preference(name, options)) for name, weight in zip(names, weights, strict=True)]


def divergence(options: Options) -> dict[str, Any]:
    """Return the f-divergence of DPO's scores."""
    name = options["f_divergence_type"]
    if name == "alpha_divergence":
        return {"name": "alpha", "alpha": options["f_alpha_divergence_coef"]}
    options.ignore("f_alpha_divergence_coef")
    return {"name": {"js_divergence": "js"}.get(name, name)}


def cpo(options: Options) -> list[tuple[float, str, dict[str, Any]]]:
    """CPOConfig. cpo_alpha is a number, or text in certificate files that measure the loss without it."""
    likelihood = options["cpo_alpha"]
    terms: list[tuple[float, str, dict[str, Any]]] = []
    if not isinstance(likelihood, str) and likelihood != 0:
        terms = [(float(likelihood), "likelihood", {"kind": "token_mean"})]
    smooth = {"beta": options["beta"], "label_smoothing": options["label_smoothing"]}
    if options["loss_type"] != "simpo":
        options.ignore("simpo_gamma", "alpha")
        return [(1.0, "cpo", smooth), *terms]
    return [(1.0, "simpo", {**smooth, "margin": options["simpo_gamma"], "alpha": options["alpha"]}), *terms]


def _preference(name: str, options: Options) -> tuple[str, dict[str, Any]]:
    if name == "sft":
        return "likelihood", {"kind": "token_mean"}
    settings: dict[str, Any] = {"beta": options["beta"]}
    if name in ("robust", "exo_pair", "aot", "aot_unpaired"):
        settings["label_smoothing"] = options["label_smoothing"]
    else:
        options.ignore("label_smoothing")
    if name == "discopop":
        settings["tau"] = options["discopop_tau"]
    else:
        options.ignore("discopop_tau")
    if name == "bco_pair":
        settings["centered"] = False
    if name == "ipo":
        settings["per_token"] = True
    return name, settings


def _advantage(options: Options) -> dict[str, Any]:
    if options["multi_objective_aggregation"] == "normalize_then_sum":
        options.ignore("scale_rewards")
        return {
            "advantage": {"name": "gdpo", "component_weights": options.get("reward_weights"), "ddof": 1, "eps": 1e-4},
            "whiten": {"name": "rollouts", "ddof": 1, "eps": 1e-4, "eps_in": "std"},
        }
    zscore = {"name": "group_zscore", "ddof": 1, "eps": 1e-4}
    scales: dict[Any, dict[str, Any]] = {
        "group": zscore,
        True: zscore,
        "batch": {**zscore, "std_over": "batch"},
        "none": {"name": "group_mean"},
        False: {"name": "group_mean"},
    }
    advantage = scales[options["scale_rewards"]]
    return {"advantage": advantage}


def _ratio(options: Options) -> str:
    level = options["importance_sampling_level"]
    if level == "sequence" and options["loss_type"] in ("gmpo", "vespo"):
        raise ConfigError(
            f"TRL: importance_sampling_level = 'sequence' is refused with loss_type {options['loss_type']}, whose own "
            'ratio is already one per rollout. Use "token".'
        )
    return "sequence" if level == "sequence" else "token"


def _clip(options: Options) -> dict[str, Any]:
    high = options["epsilon_high"]
    return {"name": "clip", "low": options["epsilon"], "high": options["epsilon"] if high is None else high}


def _surrogate(options: Options) -> dict[str, Any]:
    """CISPO's epsilon_high is the cap itself, not 1 + epsilon_high, and there is no floor."""
    loss_type = options["loss_type"]
    if loss_type not in _OWN_CLIP:
        options.ignore("delta")
    if loss_type in ("sapo", "vespo"):
        options.ignore("epsilon", "epsilon_high")
    if loss_type != "sapo":
        options.ignore(*(f"sapo_temperature_{side}" for side in _SIDES))
    if loss_type != "vespo":
        options.ignore(*(f"vespo_{setting}_{side}" for setting in ("k", "lambda") for side in _SIDES))
    if loss_type == "cispo":
        return {"name": "cispo", "floor": 0.0, "cap": _clip(options)["high"]}
    if loss_type == "sapo":
        return {"name": "sapo", "tau_pos": options["sapo_temperature_pos"], "tau_neg": options["sapo_temperature_neg"]}
    if loss_type == "vespo":
        gates = {f"gate_{side}": [options[f"vespo_k_{side}"], options[f"vespo_lambda_{side}"]] for side in _SIDES}
        return {"name": "vespo", **gates}
    if loss_type == "gmpo":
        return {**_clip(options), "name": "gmpo"}
    if options["delta"] is not None:
        return {**_clip(options), "name": "two_sided", "delta": options["delta"]}
    return _clip(options)


_SIDES = ("pos", "neg")


def _kl(options: Options) -> dict[str, Any]:
    """k3, multiplied by the ratio; GMPO's is plain."""
    weighted = options["loss_type"] != "gmpo" and options["use_bias_correction_kl"]
    options.ignore("use_bias_correction_kl")
    return {"kl": {"name": "k3", "weight": "ratio" if weighted else "none"}, "kl_coef": options["beta"]}


def _entropy(options: Options) -> dict[str, Any]:
    """Take the mean entropy of the kept tokens; with a global token mean, their sum over the number of all tokens."""
    coef, loss_type = options["entropy_coef"], options["loss_type"]
    if coef == 0 or loss_type == "gmpo":
        return {}
    if options["beta"] and _WEIGHTS.get(loss_type) != "token_mean":
        raise ConfigError(
            f"TRL: entropy_coef together with beta is refused for loss_type {loss_type}: its KL is averaged like the "
            "loss, but its entropy over tokens, and both share penalty_weights here."
        )
    partial = options["top_entropy_quantile"] < 1
    kept = "kept" if loss_type in _GLOBAL_TOKEN_MEAN else "kept_mean"
    return {"entropy_coef": coef, "entropy_tokens": kept if partial else "all", "penalty_weights": "token_mean"}


def _corrections(options: Options, corrected: bool, on_policy: bool) -> list[dict[str, Any]]:
    if options["loss_type"] == "gmpo":
        options.ignore("entropy_coef", "off_policy_mask_threshold")
        options.ignore(*(name for name in options if name.startswith("vllm_importance_sampling_")))
        if options["top_entropy_quantile"] < 1:
            raise ConfigError("TRL: top_entropy_quantile is refused with GMPO, where it thins out the geometric mean.")
        return []
    components: list[dict[str, Any]] = []
    if corrected:
        level, _, action = options["vllm_importance_sampling_mode"].partition("_")
        components.append(
            {
                "name": "truncate" if action == "truncate" else "mask_outside",
                "level": level,
                "low": options["vllm_importance_sampling_clip_min"],
                "high": options["vllm_importance_sampling_clip_max"],
            }
        )
    if options["top_entropy_quantile"] < 1:
        components.append({"name": "high_entropy", "share": options["top_entropy_quantile"]})
    threshold = options["off_policy_mask_threshold"]
    if threshold is not None and (options["use_vllm"] or not on_policy):
        sampler = "behavior" if options["use_vllm"] else "old"
        components.append({"name": "stale_negatives", "threshold": threshold, "sampler": sampler})
    return components
