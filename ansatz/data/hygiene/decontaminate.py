"""Finds training problems that occur in a test set, by shared word n-grams.

A test question of n words or more (10 by default) is matched by any n consecutive words of it. A test question of 3 to
n-1 words must match exactly. Shorter ones are ignored: "What is 1+1?" says too little. Words are those of
`normalize.normalized_words`: letters and digits without typesetting.

An n-gram can also be a set phrase ("where m and n are relatively prime positive integers"). So each overlap says what
fraction of the test question the row contains and whether the answers agree. A small fraction with a different answer
is a phrase.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from ansatz.data.hygiene.normalize import ngrams, normalized_words, same_answer
from ansatz.errors import ConfigError
from ansatz.types import Problem

SHORTEST = 3  # words


class Overlap(NamedTuple):
    """The overlap of a row with the test problem with which it shares most.

    kind: "ngram" or "exact". shared_frac: fraction of the test question's distinct n-grams that the row contains, 0 to
    1. text: the first shared words.
    """

    kind: str
    test: str
    test_source: str
    shared_frac: float
    same_answer: bool
    text: str


class BenchmarkTexts:
    """The test problems, indexed by their n-grams. ngram: words per n-gram. ConfigError below 4."""

    def __init__(self, problems: Iterable[Problem], *, ngram: int = 10) -> None:
        if ngram <= SHORTEST:
            raise ConfigError(f"ngram = {ngram}, expected {SHORTEST + 1} words or more.")
        self._ngram = ngram
        self._problems: list[Problem] = []
        self._sizes: list[int] = []
        self._index: dict[str, list[int]] = {}
        self.too_short = 0
        for problem in problems:
            self._add(problem)

    def __len__(self) -> int:
        return len(self._problems)

    def overlap(self, problem: Problem, *, min_frac: float = 0.0) -> Overlap | None:
        """The overlap with the test problem that shares most with this one; None if it shares less than min_frac."""
        words = normalized_words(problem.question)
        runs = ngrams(words, self._ngram) if len(words) >= self._ngram else [_whole(words)]
        shared = Counter[int]()
        first: dict[int, str] = {}
        for run in dict.fromkeys(runs):
            for test in self._index.get(run, ()):
                shared[test] += 1
                first.setdefault(test, run)
        if not shared:
            return None
        best = min(shared, key=lambda test: (-shared[test] / self._sizes[test], test))
        shared_frac = shared[best] / self._sizes[best]
        if shared_frac < min_frac:
            return None
        test, run = self._problems[best], first[best]
        return Overlap(
            kind="ngram" if len(words) >= self._ngram else "exact",
            test=test.id,
            test_source=test.source,
            shared_frac=round(shared_frac, 4),
            same_answer=same_answer(test.answer, problem.answer),
            text=run.removeprefix(_WHOLE),
        )

    def _add(self, problem: Problem) -> None:
        words = normalized_words(problem.question)
        runs = set(ngrams(words, self._ngram))
        if SHORTEST <= len(words) < self._ngram:
            runs = {_whole(words)}
        self.too_short += not runs
        for run in runs:
            self._index.setdefault(run, []).append(len(self._problems))
        self._problems.append(problem)
        self._sizes.append(len(runs))


_WHOLE = "= "  # no n-gram starts like this, so a whole text never matches a part of a longer one


def _whole(words: list[str]) -> str:
    return _WHOLE + " ".join(words)
