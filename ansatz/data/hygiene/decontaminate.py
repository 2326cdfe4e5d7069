"""Training problems that stand in a test set: found by shared runs of words.

A test text of n words or more (10 unless told) is matched by any n of them in a row; one of 3 to n-1 words only by a
question that is the same as a whole; one of fewer words by nothing, since "What is 1+1?" says too little. Words are
those of `wording.words_of`: letters and digits, typesetting aside.

A run may also be a set phrase ("where m and n are relatively prime positive integers"). So every finding says how much
of the test text the row holds and whether the answers agree: a small share with another answer is a phrase.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from ansatz.data.hygiene.wording import ngrams, same_answer, words_of
from ansatz.errors import ConfigError
from ansatz.types import Problem

SHORTEST = 3  # words


class Overlap(NamedTuple):
    """What a row shares with the test problem that it shares most with. kind: "ngram" or "exact"; share: of the test
    text's distinct n-grams, 0 to 1; text: the first shared words."""

    kind: str
    test: str
    test_source: str
    share: float
    same_answer: bool
    text: str


class BenchmarkTexts:
    """The test problems, indexed by their words. ngram: words in a row. ConfigError for one under 4."""

    def __init__(self, problems: Iterable[Problem], *, ngram: int = 10) -> None:
        if ngram <= SHORTEST:
            raise ConfigError(f"ngram = {ngram}, expected {SHORTEST + 1} words or more.")
        self._ngram = ngram
        self._problems: list[Problem] = []
        self._sizes: list[int] = []
        self._places: dict[str, list[int]] = {}
        self.too_short = 0
        for problem in problems:
            self._add(problem)

    def __len__(self) -> int:
        return len(self._problems)

    def overlap(self, problem: Problem, *, min_frac: float = 0.0) -> Overlap | None:
        """The test problem that this one shares most with, None where it shares nothing or less than min_frac."""
        words = words_of(problem.question)
        runs = ngrams(words, self._ngram) if len(words) >= self._ngram else [_whole(words)]
        shared = Counter[int]()
        first: dict[int, str] = {}
        for run in dict.fromkeys(runs):
            for place in self._places.get(run, ()):
                shared[place] += 1
                first.setdefault(place, run)
        if not shared:
            return None
        place = min(shared, key=lambda at: (-shared[at] / self._sizes[at], at))
        share = shared[place] / self._sizes[place]
        if share < min_frac:
            return None
        test, run = self._problems[place], first[place]
        return Overlap(
            kind="ngram" if len(words) >= self._ngram else "exact",
            test=test.id,
            test_source=test.source,
            share=round(share, 4),
            same_answer=same_answer(test.answer, problem.answer),
            text=run.removeprefix(_WHOLE),
        )

    def _add(self, problem: Problem) -> None:
        words = words_of(problem.question)
        runs = set(ngrams(words, self._ngram))
        if SHORTEST <= len(words) < self._ngram:
            runs = {_whole(words)}
        self.too_short += not runs
        for run in runs:
            self._places.setdefault(run, []).append(len(self._problems))
        self._problems.append(problem)
        self._sizes.append(len(runs))


_WHOLE = "= "  # no run of words begins so: a whole text is never taken for a part of a longer one


def _whole(words: list[str]) -> str:
    return _WHOLE + " ".join(words)
