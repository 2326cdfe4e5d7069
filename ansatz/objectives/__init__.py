"""Objectives: pure tensor functions from rewards and log-probs to a loss. Start at `build_objective`."""

from ansatz.objectives.advantage_rule import Advantages
from ansatz.objectives.build import build_objective
from ansatz.objectives.objective import LossParts, Objective, TokenBatch
from ansatz.objectives.presets import KEYS, PRESETS

__all__ = ["KEYS", "PRESETS", "Advantages", "LossParts", "Objective", "TokenBatch", "build_objective"]
