"""Scores of responses by a finished reward model, for best-of-n and weighted votes at evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ansatz.config.schema import REWARD_MODEL
from ansatz.hub import local_folder
from ansatz.loop.model_recipe import recipe_of
from ansatz.model_config import read_config
from ansatz.rewards.learned import learned
from ansatz.rewards.process import process
from ansatz.types import Rollout

LEAST = 1e-13
"""The probability of a response without a step: below the one of any response that a model has read."""
KEY = "--reward-model"


def score_function(model: str, *, device: str) -> tuple[str, Callable[[Sequence[Rollout]], list[float]]]:
    """Return the kind of a reward model, and the function that scores the rollouts of one problem.

    A score is the logarithm of the rollout's weight in a vote: the logit (bradley_terry), log sigmoid of the logit
    (correctness), or log of the least probability of a step (process). The kind is the one that the run trained the
    model with; of any other model, process for a token classifier and bradley_terry otherwise. Prompt and response are
    read whole. Raise ModelError for a folder that is not a model.

    Example: `kind, score = score_function("runs/NAME/reward_model/checkpoints/step-000300", device="cpu")`.
    """
    folder = local_folder(model, key=KEY)
    recipe = recipe_of(folder, option=KEY, trust_code=False)
    section = getattr(recipe and recipe.config, REWARD_MODEL, None)
    kind: str = getattr(section, "kind", "bradley_terry")
    if str(read_config(folder, key=KEY).get("architectures")).endswith("ForTokenClassification']"):
        kind = "process"

    def score(rollouts: Sequence[Rollout]) -> list[float]:
        if kind == "process":
            steps = process(rollouts, model=str(folder), device=device)
            return [math.log(max(each.value, LEAST)) for each in steps]
        given = learned(rollouts, model=str(folder), max_tokens=10**6, device=device)
        logits = [each.value for each in given if each is not None]
        return [min(x, 0.0) - math.log1p(math.exp(-abs(x))) for x in logits] if kind == "correctness" else logits

    return kind, score
