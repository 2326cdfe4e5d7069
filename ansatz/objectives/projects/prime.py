"""prime-rl 0.8: rl loss and orchestrator advantages."""

from __future__ import annotations

from typing import Any

from ansatz.errors import ConfigError
from ansatz.objectives.projects.options import Options


def spec(options: Options) -> dict[str, Any]:
    """kl_tau (log-ratio)^2 is 2 kl_tau k2 to the sampler's policy. There are no old log-probs."""
    algorithm, loss = options["algo"], options["loss"]
    if algorithm not in ("grpo", "max_rl"):
        raise ConfigError(f"prime-rl: algo = {algorithm!r} is refused, because it has no counterpart here.")
    if loss["type"] == "ipo":
        loss.ignore("dppo_mask_low", "dppo_mask_high")
        bounds = {"low": loss["ipo_threshold"], "high": loss["ipo_threshold"], "sided": False}
    else:
        loss.ignore("ipo_threshold")
        bounds = {"low": loss["dppo_mask_low"], "high": loss["dppo_mask_high"], "sided": True}
    return {
        "advantage": {"name": "mean_ratio", "eps": 0.0} if algorithm == "max_rl" else "group_mean",
        "anchor": "behavior",
        "surrogate": "plain",
        "correction": {"name": "trust_region", "divergence": "tv", **bounds},
        "policy_coef": loss["adv_tau"],
        "kl": "k2",
        "kl_to": "behavior",
        "kl_coef": 2 * loss["kl_tau"],
        "weights": "token_mean",
    }
