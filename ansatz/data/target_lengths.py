"""Problems with a target length for the response, drawn per problem and written into the question (L1).

Follows L1 (arXiv:2503.04697, sec. 3): the question ends with "Think for 1200 tokens.", and the reward `target_length`
reads the same number from `meta["target_tokens"]`. A hash of the seed and the problem's id decides the target, so the
target of a row does not change when other rows are added or removed.

    train: {source: target_lengths, split: train, of: {source: jsonl, path: math.jsonl}, max_tokens: 4000}
    rewards: {math_answer: {}, target_length: {mode: exact}}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

from ansatz.data.base import load_problems
from ansatz.data.keyed_random import KeyedRandom
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
    """The problems of another source, each with a target length between min_tokens and max_tokens, both included.

    of: {source, ...settings of that source}. text: the sentence after the question, with {tokens} where the number
    goes. For mode: max of the reward, use "Think for maximum {tokens} tokens.".

    ConfigError for a setting outside its range.
    """
    if not 1 <= min_tokens <= max_tokens:
        raise ConfigError(
            f"target_lengths: min_tokens = {min_tokens} and max_tokens = {max_tokens}, expected 1 <= min <= max."
        )
    if text.count(TOKENS) != 1:
        raise ConfigError(f"target_lengths: text = {text!r}, expected {TOKENS} in it exactly once.")
    settings = dict(of)
    source = settings.pop("source", None)
    if not isinstance(source, str):
        raise ConfigError(f"target_lengths: of.source = {source!r}, expected the name of a data source, such as jsonl.")
    problems = load_problems(source, split=str(settings.pop("split", split)), settings=settings)
    return _WithTargets(problems, range(min_tokens, max_tokens + 1), text, seed)


class _WithTargets(Sequence[Problem]):
    """Each problem gets its target when it is accessed."""

    def __init__(self, problems: Sequence[Problem], lengths: range, text: str, seed: int) -> None:
        self._problems, self._lengths, self._text, self._seed = problems, lengths, text, seed

    def __len__(self) -> int:
        return len(self._problems)

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> list[Problem]: ...
    def __getitem__(self, index: int | slice) -> Problem | list[Problem]:
        if isinstance(index, slice):
            return [self._with_target(problem) for problem in self._problems[index]]
        return self._with_target(self._problems[index])

    def __iter__(self) -> Iterator[Problem]:
        return map(self._with_target, self._problems)

    def _with_target(self, problem: Problem) -> Problem:
        tokens = KeyedRandom("target_lengths", self._seed, problem.id).choice(self._lengths)
        return replace(
            problem,
            question=f"{problem.question}\n{self._text.replace(TOKENS, str(tokens))}",
            meta={**problem.meta, "target_tokens": tokens},
        )
