"""OpenRLHF 0.11: experience maker, PolicyLoss, DPOLoss."""

from __future__ import annotations

from typing import Any

from ansatz.objectives.projects.options import Options

_SEQUENCE_MEAN = {"name": "sequence_mean", "rollouts": "nonempty", "eps": 1e-8}


def spec(options: Options) -> dict[str, Any]:
    gspo = options["policy_loss_type"] == "gspo"
    corrected = options["enable_vllm_is_correction"]
    if not corrected or gspo:
        options.ignore("vllm_is_correction_type", "vllm_is_truncated_threshold")
    dual = options["dual_clip"]
    surrogate = {"name": "clip", "low": options["clip_eps_low"], "high": options["clip_eps_high"]}
    per_token = options["token_level_loss"] and not gspo  # gspo forces the mean over rollouts
    return {
        **advantage(options),
        "anchor": "behavior" if gspo and corrected else "old",
        "ratio": {"name": "sequence"} if gspo else {"name": "token", "clamp": 20.0},
        "surrogate": {**surrogate, "name": "dual_clip", "dual": dual} if dual is not None else surrogate,
        **({"kl_in": "loss"} if options["use_loss"] else {}),
        "weights": "token_mean" if per_token else _SEQUENCE_MEAN,
        "penalty_weights": "token_mean",
        "correction": _correction(options) if corrected and not gspo else "none",
    }


def advantage(options: Options) -> dict[str, Any]:
    """The estimators. With a group baseline, the KL is a reward to go after it; otherwise it is a token reward."""
    name = options["estimator"]
    if name != "gae":
        options.ignore("lambd")
    if name not in ("gae", "reinforce"):
        options.ignore("gamma")
    if name not in ("gae", "reinforce", "reinforce_baseline"):
        options.ignore("no_std_norm")
    limits = options.get("reward_clip_range", [-10, 10])
    return {
        **_estimator(name, options),
        "advantage_clip": [float(limit) for limit in limits] if limits else None,
        "kl": kl_component(options.get("kl_estimator", "k1")),
        "kl_coef": options["init_kl_coef"],
    }


def _estimator(name: str, options: Options) -> dict[str, Any]:
    groups: dict[str, Any] = {
        "group_norm": {"name": "group_zscore", "ddof": 1, "eps": 1e-9},
        "dr_grpo": "group_mean",
        "rloo": "leave_one_out",
    }
    if name in groups:
        return {"advantage": groups[name], "kl_in": "return"}
    scale = not options.get("no_std_norm", False)
    whiten = {"name": "tokens", "ddof": 0, "eps": 1e-8, "eps_in": "floor", "scale": scale}
    if name == "reinforce_baseline":
        return {"advantage": "group_mean", "kl_in": "return", "whiten": whiten}
    if name == "reinforce":
        advantage: dict[str, Any] = {"name": "reward_to_go", "gamma": options["gamma"]}
    else:
        advantage = {"name": "gae", "gamma": options["gamma"], "lam": options["lambd"]}
    return {"advantage": advantage, "kl_in": "reward", "whiten": whiten}


def kl_component(name: str) -> dict[str, Any]:
    return {"name": name, "clamp_out": 10.0}


def critic_weights(options: Options) -> Any:
    return "token_mean" if options["token_level_loss"] else _SEQUENCE_MEAN


def dpo(options: Options) -> list[tuple[float, str, dict[str, Any]]]:
    """Return (weight, loss, settings)."""
    if options["ipo"]:
        options.ignore("label_smoothing")
        return [(1.0, "ipo", {"beta": options["beta"]})]
    return [(1.0, "dpo", {"beta": options["beta"], "label_smoothing": options["label_smoothing"]})]


def _correction(options: Options) -> list[dict[str, Any]]:
    """seq-mask-tis filters by the geometric mean and leaves the token weights unclamped, whatever its comment says."""
    low, high = options["vllm_is_truncated_threshold"]
    bounds = {"low": low, "high": high}
    free = {"name": "truncate", "low": None, "high": None}
    return {
        "tis": [{"name": "truncate", **bounds}],
        "icepop": [{"name": "mask_outside", **bounds}],
        "seq-mask-tis": [{"name": "drop_outside", "level": "mean", **bounds}, free],
    }[options["vllm_is_correction_type"]]
