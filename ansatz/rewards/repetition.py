"""A penalty for repeated n-grams of tokens: loops, and format blocks written over and over."""

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
    """-(share - allowed) / (1 - allowed) where the share of repeated n-grams is above `allowed`, else 0; in (-1, 0].

    ngram: tokens; the default is that of the metric rollout/repetition.
    """
    shares = [repeated_frac(rollout.token_ids, ngram=ngram) for rollout in rollouts]
    return [RewardResult(value=min((allowed - share) / (1 - allowed), 0.0)) for share in shares]
