"""SkyRL (mid 2026): AlgorithmConfig."""

from __future__ import annotations

from typing import Any

from ansatz.errors import ConfigError
from ansatz.objectives.projects.options import Options

_FROM_SAMPLER = ("dppo", "rollout_is")


def spec(options: Options) -> dict[str, Any]:
    name = options["policy_loss_type"]
    cispo_anchor = options["cispo"]["cispo_anchor"] if name == "cispo" else "old"
    from_sampler = name in _FROM_SAMPLER or cispo_anchor in ("rollout", "behavior")
    if from_sampler and options["off_policy_correction"]["tis_ratio_type"] is not None:
        raise ConfigError(f"SkyRL: tis_ratio_type is refused with {name}, whose ratio is to the sampler already.")
    used = options["use_kl_loss"] is True  # certificate files without the term have text here
    options.ignore("kl_loss_coef")
    gspo = {"name": "sequence", "gradient": "token", "clamp": 10.0}
    return {
        **advantage(options["adv"]),
        "anchor": "behavior" if from_sampler else "old",
        "ratio": gspo if name == "gspo" else {"name": "token", "clamp": 20.0},
        "surrogate": _surrogate(options),
        "kl": kl_component(options.get("kl_estimator_type", "k3")),
        "kl_coef": options["kl_loss_coef"] if used else 0.0,
        "weights": weights(options),
        "penalty_weights": "sequence_mean",
        "correction": [*_trust_region(options), *_off_policy(options["off_policy_correction"])],
    }


def weights(options: Options) -> dict[str, Any]:
    reduction = options["loss_reduction"]
    if reduction == "seq_mean_token_sum_norm":
        return {"name": "fixed_length", "max_tokens": options["max_seq_len"]}
    options.ignore("max_seq_len")
    return {
        "token_mean": {"name": "token_mean"},
        "token_mean_legacy": {"name": "token_mean"},
        "sequence_mean": {"name": "sequence_mean"},
        "prompt_mean": {"name": "prompt_mean"},
    }[reduction]


def advantage(options: Options) -> dict[str, Any]:
    name = options["advantage_estimator"]
    if name != "gae":
        options.ignore("lambd")
    if name not in ("gae", "reinforce++"):
        options.ignore("gamma")
    if name != "grpo":
        options.ignore("grpo_norm_by_std")
    if name == "grpo":
        zscore = {"name": "group_zscore", "ddof": 1, "eps": 1e-6, "single": "keep"}
        by_std = options.get("grpo_norm_by_std", True)
        return {"advantage": zscore if by_std else {"name": "group_mean", "single": "keep"}}
    if name == "rloo":
        return {"advantage": "leave_one_out"}
    if name == "maxrl":
        return {"advantage": {"name": "mean_ratio", "eps": 1e-6, "signed": True, "single": "keep"}}
    whiten = {"name": "tokens", "ddof": 1, "eps": 1e-8, "eps_in": "var"}
    gamma = options.get("gamma", 1.0)
    if name == "reinforce++":
        return {"advantage": {"name": "reward_to_go", "gamma": gamma}, "whiten": whiten}
    if name == "gae":
        return {"advantage": {"name": "gae", "gamma": gamma, "lam": options.get("lambd", 1.0)}, "whiten": whiten}
    raise ConfigError(f"SkyRL: advantage_estimator = {name!r} is refused, because it has no counterpart here.")


def kl_component(name: str) -> dict[str, Any]:
    return {"name": name, **({"clamp_in": 20.0, "clamp_out": 10.0} if name == "k3" else {})}


def _surrogate(options: Options) -> dict[str, Any]:
    name = options["policy_loss_type"]
    if name in ("clip_cov", "kl_cov"):
        raise ConfigError(
            f"SkyRL: policy_loss_type = {name!r} is refused, because its numbers depend on SkyRL's own scaling of "
            f"advantages. Use surrogate {name} with settings of its paper."
        )
    if name in ("cispo", "sapo", "importance_sampling", "dppo"):
        options.ignore("eps_clip_low", "eps_clip_high")
    if name != "dual_clip":
        options.ignore("clip_ratio_c")
    if name == "cispo":
        cispo = options["cispo"]
        return {"name": "cispo", "floor": 1 - cispo["cispo_eps_clip_low"], "cap": 1 + cispo["cispo_eps_clip_high"]}
    if name == "sapo":
        return {"name": "sapo", "tau_pos": options["sapo"]["tau_pos"], "tau_neg": options["sapo"]["tau_neg"]}
    if name in ("importance_sampling", "dppo"):
        return {"name": "plain"}
    low, high = options["eps_clip_low"], options["eps_clip_high"]
    if name == "rollout_is":
        return {"name": "cispo", "floor": 1 - low, "cap": 1 + high, "outside": "zero"}
    if name == "dual_clip":
        return {"name": "dual_clip", "low": low, "high": high, "dual": options["clip_ratio_c"]}
    if name in ("regular", "gspo"):
        return {"name": "clip", "low": low, "high": high}
    raise ConfigError(f"SkyRL: policy_loss_type = {name!r} is refused, because it has no counterpart here.")


def _trust_region(options: Options) -> list[dict[str, Any]]:
    if options["policy_loss_type"] != "dppo":
        return []
    dppo = options["dppo"]
    divergence = dppo["dppo_type"].removeprefix("binary_")
    return [{"name": "trust_region", "divergence": divergence, "low": dppo["delta_low"], "high": dppo["delta_high"]}]


def _off_policy(options: Options) -> list[dict[str, Any]]:
    """Each is a factor: the denominators of the reduction do not see dropped tokens."""
    components: list[dict[str, Any]] = []
    level = options["tis_ratio_type"]
    if level is not None:
        components.append({"name": "truncate", "level": level, "high": options[f"{level}_tis_ratio_clip_high"]})
    metric = options["sequence_mask_metric"]
    if metric is not None:
        short, level = {"geometric": ("geo", "mean"), "product": ("product", "sequence")}[metric]
        bounds = {"low": options[f"{short}_mask_low"], "high": options[f"{short}_mask_high"]}
        components.append({"name": "drop_outside", "level": level, **bounds})
    for prefix, level in (("outlier_token_is_threshold", "any"), ("token_mask_is_threshold", "token")):
        bounds = {"low": options.get(f"{prefix}_low"), "high": options.get(f"{prefix}_high")}
        if any(bound is not None for bound in bounds.values()):
            components.append({"name": "drop_outside", "level": level, **bounds})
    return components
