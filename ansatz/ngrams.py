"""Repetition of tokens: one definition for the metric that shows it and the reward that penalises it."""

from __future__ import annotations

from collections.abc import Sequence

REPETITION_NGRAM = 8
"""Tokens. Short enough to detect loops, long enough that the set phrases of an honest derivation rarely count."""


def repeated_frac(token_ids: Sequence[int], *, ngram: int = REPETITION_NGRAM) -> float:
    """Return the fraction of repeated n-grams, 1 - distinct / all: 0 if all differ or there are none, close to 1 for
    a loop.

    ngram: length in tokens, 1 or more.
    """
    total = len(token_ids) - ngram + 1
    if total < 1:
        return 0.0
    return 1 - len({tuple(token_ids[start : start + ngram]) for start in range(total)}) / total
