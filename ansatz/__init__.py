"""Ansatz: reinforcement learning from verifiable rewards for mathematical reasoning.

The names below are the public interface; docs/api.md describes them. They are imported when they are first used, so
`import ansatz` is fast and does not load torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ansatz.api import (
        Policy,
        PolicyLoss,
        Problem,
        RewardResult,
        Rollout,
        TrainedRun,
        Verdict,
        equivalent,
        load_policy,
        maj_at_k,
        pass_at_k,
        policy_loss,
        sample,
        train_recipe,
        verify,
    )

__version__ = "0.2.0"

__all__ = [
    "Policy",
    "PolicyLoss",
    "Problem",
    "RewardResult",
    "Rollout",
    "TrainedRun",
    "Verdict",
    "equivalent",
    "load_policy",
    "maj_at_k",
    "pass_at_k",
    "policy_loss",
    "sample",
    "train_recipe",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ansatz' has no attribute {name!r}")
    return getattr(importlib.import_module("ansatz.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
