"""Small trainers: GRPO-Zero, nano-aha-moment, torchtune's GRPO."""

from __future__ import annotations

from typing import Any

from ansatz.errors import ConfigError
from ansatz.objectives.projects.options import Options


def grpo_zero(options: Options) -> dict[str, Any]:
    """std with ddof 0, no ratio, no KL, token mean."""
    options.ignore("micro_batch_size")
    return {
        "advantage": {"name": "group_zscore", "ddof": 0, "eps": 1e-4},
        "surrogate": "log_prob",
        "weights": "token_mean",
    }


def nano(options: Options) -> dict[str, Any]:
    return {**grpo_zero(options), "kl": "k3", "kl_coef": options["kl_coeff"]}


def torchtune(options: Options) -> dict[str, Any]:
    """GRPOSimpleLoss has no ratio and takes the mean over rollouts; GRPOLoss averages over tokens."""
    loss = options["loss"]
    if loss not in ("GRPOSimpleLoss", "GRPOLoss"):
        raise ConfigError(f"torchtune: loss = {loss!r} is refused: it has one ratio for the whole batch, a known bug.")
    simple = loss == "GRPOSimpleLoss"
    return {
        "advantage": {"name": "group_zscore", "ddof": 1, "eps": 1e-4},
        "anchor": "policy" if simple else "old",
        "surrogate": {"name": "clip", "low": options["epsilon"], "high": options["epsilon"]},
        "kl": "k3",
        "kl_coef": options["kl_coeff"],
        "weights": {"name": "sequence_mean", "eps": 1e-8} if simple else {"name": "token_mean", "eps": 1e-8},
    }
