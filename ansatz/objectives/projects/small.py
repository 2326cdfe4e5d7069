"""Small trainers: GRPO-Zero, nano-aha-moment, torchtune's GRPO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def grpo_zero(_: Mapping[str, Any]) -> dict[str, Any]:
    """std with ddof 0, no ratio, no KL, token mean."""
    return {
        "advantage": {"name": "group_zscore", "ddof": 0, "eps": 1e-4},
        "surrogate": "log_prob",
        "weights": "token_mean",
    }


def nano(knobs: Mapping[str, Any]) -> dict[str, Any]:
    return {**grpo_zero(knobs), "kl": "k3", "kl_coef": knobs["kl_coeff"]}


def torchtune(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """`loss` GRPOSimpleLoss has no ratio; both take the mean over rollouts of token means."""
    simple = knobs.get("loss") == "GRPOSimpleLoss"
    return {
        "advantage": {"name": "group_zscore", "ddof": 1, "eps": 1e-4},
        "anchor": "policy" if simple else "old",
        "surrogate": {"name": "clip", "low": knobs["epsilon"], "high": knobs["epsilon"]},
        "kl": "k3",
        "kl_coef": knobs["kl_coeff"],
        "weights": {"name": "sequence_mean", "eps": 1e-8} if simple else {"name": "token_mean", "eps": 1e-8},
    }
