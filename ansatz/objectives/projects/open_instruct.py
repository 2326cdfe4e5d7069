"""open-instruct (mid 2026): grpo_utils, dpo_utils."""

from __future__ import annotations

from typing import Any

from ansatz.objectives.projects.options import Options

_KLS = [{"name": "k1"}, {"name": "k2"}, {"name": "k3"}, {"name": "k1", "weight": "ratio"}]


def spec(options: Options) -> dict[str, Any]:
    """A loss_denominator other than "token" is a constant that the sum over tokens is divided by."""
    high = options["clip_higher"]
    if options["loss_fn"] == "cispo":
        options.ignore("clip_lower")
        surrogate = {"name": "cispo", "floor": 0.0, "cap": 1 + high}
    else:
        surrogate = {"name": "clip", "low": options["clip_lower"], "high": high}
    standard = {"name": "group_zscore", "ddof": 0, "eps": 1e-8}
    denominator, corrected = options["loss_denominator"], options["use_rho_correction"]
    if not corrected:
        options.ignore(*(name for name in options if name.startswith("rho_")))
    return {
        "advantage": {"centered": "group_mean", "standard": standard}[options["advantage_normalization_type"]],
        "surrogate": surrogate,
        "kl": {**_KLS[options["kl_estimator"]], "clamp_in": 40.0},
        "kl_coef": options["beta"] * bool(options["load_ref_policy"]),
        "weights": "token_mean" if denominator == "token" else {"name": "token_sum", "divisor": float(denominator)},
        "correction": _corrections(options) if corrected else "none",
    }


def dpo(options: Options, name: str) -> list[tuple[float, str, dict[str, Any]]]:
    """Return (weight, loss, settings) of dpo, dpo_norm or simpo."""
    settings = {"beta": options["beta"], "label_smoothing": options["label_smoothing"]}
    if name == "simpo":
        settings["margin"] = options["beta"] * options["gamma_beta_ratio"]
    return [(1.0, name, settings)]


def _corrections(options: Options) -> list[dict[str, Any]]:
    """A bound of 0 means none. Weights are masked, then clamped; a sequence mask replaces the weights of tokens."""
    mask = {"low": options["rho_mask_lower_bound"] or None, "high": options["rho_mask_upper_bound"] or None}
    clamp = {"low": options["rho_clamp_lower_bound"] or None, "high": options["rho_clamp_upper_bound"] or None}
    level = "mean" if options["rho_mask_sequence_level"] else "token"
    components: list[dict[str, Any]] = [{"name": "truncate", "level": level, **clamp}]
    if options["rho_mask_tv_divergence"]:
        components.append({"name": "total_variation", **mask})
    elif mask["low"] is not None or mask["high"] is not None:
        components.append({"name": "drop_outside", "level": level, **mask})
    return components
