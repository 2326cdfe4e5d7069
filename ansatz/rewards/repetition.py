"""A penalty for repeated n-grams of tokens, such as loops and format blocks that are written again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from ansatz.config.fields import Positive
from ansatz.ngrams import REPETITION_NGRAM, repeated_frac
from ansatz.rewards.base import RewardResult
from ansatz.types import Rollout


def repetition(
    rollouts: Sequence[Rollout],
    *,
    ngram: Positive = REPETITION_NGRAM,
    allowed: Annotated[float, Field(ge=0, lt=1)] = 0.0,
) -> list[RewardResult]:
    """Return -(repeated - allowed) / (1 - allowed) if the repeated fraction of n-grams exceeds `allowed`, else 0; in
    (-1, 0].

    ngram: length in tokens; the default is the same as in the metric rollout/repetition.
    """
    fracs = [repeated_frac(rollout.token_ids, ngram=ngram) for rollout in rollouts]
    return [RewardResult(value=min((allowed - frac) / (1 - allowed), 0.0)) for frac in fracs]
