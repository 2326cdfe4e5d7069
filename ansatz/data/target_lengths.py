"""Problems with a target length for the response, drawn per problem and written into the question (L1).

Follows L1 (arXiv:2503.04697, sec. 3): the question ends with "Think for 1200 tokens.", and the reward `target_length`
reads the same number from `meta["target_tokens"]`. A hash of the seed and the problem's id decides the target, so the
target of a row does not change when other rows are added or removed.

    train: {source: target_lengths, split: train, of: {source: jsonl, path: math.jsonl}, max_tokens: 4000}
    rewards: {math_answer: {}, target_length: {mode: exact}}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansatz.data.keyed_random import KeyedRandom
from ansatz.data.mapped import changed, inner_source
from ansatz.errors import ConfigError
from ansatz.types import Problem

TOKENS = "{tokens}"


def target_lengths(
    *,
    split: str,
    of: Mapping[str, Any],
    min_tokens: int = 100,
    max_tokens: int = 4000,
    text: str = "Think for {tokens} tokens.",
    seed: int = 0,
) -> Sequence[Problem]:
    """Return the problems of another source, each with a target length between min_tokens and max_tokens, both
    included.

    of: {source, ...settings of that source}. text: the sentence after the question, with {tokens} where the number
    goes. For mode: max of the reward, use "Think for maximum {tokens} tokens.".

    Raise ConfigError for a setting outside its range.
    """
    if not 1 <= min_tokens <= max_tokens:
        raise ConfigError(
            f"target_lengths: min_tokens = {min_tokens} and max_tokens = {max_tokens}, expected 1 <= min <= max."
        )
    if text.count(TOKENS) != 1:
        raise ConfigError(f"target_lengths: text = {text!r}, expected {TOKENS} in it exactly once.")
    lengths = range(min_tokens, max_tokens + 1)

    def with_target(problem: Problem) -> Problem:
        tokens = KeyedRandom("target_lengths", seed, problem.id).choice(lengths)
        return replace(
            problem,
            question=f"{problem.question}\n{text.replace(TOKENS, str(tokens))}",
            meta={**problem.meta, "target_tokens": tokens},
        )

    return changed(inner_source(of, split=split, named="target_lengths: of.source"), with_target)
