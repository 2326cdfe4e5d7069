"""Repetition of tokens: one definition, for the metric that shows it and for the reward that punishes it."""

from __future__ import annotations

from collections.abc import Sequence

REPETITION_NGRAM = 8
"""Tokens. Short enough to see loops, long enough that set phrases of an honest derivation seldom count."""


def repeated_frac(token_ids: Sequence[int], *, ngram: int = REPETITION_NGRAM) -> float:
    """Share of repeated n-grams, 1 - distinct / all: 0 when all differ (or there is none), towards 1 for a loop.

    ngram: tokens, 1 or more.
    """
    total = len(token_ids) - ngram + 1
    if total < 1:
        return 0.0
    return 1 - len({tuple(token_ids[start : start + ngram]) for start in range(total)}) / total
