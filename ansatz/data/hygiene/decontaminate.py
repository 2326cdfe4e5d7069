"""Finds training problems that are copies or near-copies of test problems.

Texts are compared by their word trigrams (`normalize.normalized_words`). Each trigram of a test question has the weight
log(1 + D / d), where d of the D training and test questions contain it. So a set phrase ("relatively prime positive
integers, find m + n") weighs little, and a phrase that only this question has weighs much. A row's `shared_frac` is the
weight of the test question's trigrams that the row contains, divided by the weight of all of them.

A near-copy keeps most of the wording, or it keeps the numbers and the answer. A row is therefore an overlap if its
shared_frac is at least

    0.75                                                              a copy, also with another number
    0.5, and it contains two thirds of the numbers                    a reworded or shortened copy
    0.25, and it contains 80 % of the numbers and has the answer      a paraphrase

Test questions of 3 to 8 words must match exactly; shorter ones are ignored, because "What is 1+1?" says too little.
`benchmarks/decontamination.py` measures recall and false drops with planted near-copies.

`NgramTexts` is the rule of most papers instead: a row overlaps if it shares one run of 10 words with a test question,
and a test question of 3 to 9 words must match exactly (DeepSeekMath, arXiv:2402.03300, sec. 2.1). Two characters of
Chinese or Japanese count as one word there, because most words have two.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ansatz.data.choices import without_choices
from ansatz.data.hygiene.normalize import is_ideograph, ngrams, normalized_words, numbers_of, same_answer
from ansatz.errors import ConfigError
from ansatz.types import Problem

NGRAM = 3
SHORTEST = 3  # words of a test question that is not ignored
SHORTEST_GRADED = 9  # words from which a test question is compared by its trigrams
COPY, REWORDED, PARAPHRASE = 0.75, 0.5, 0.25
REWORDED_NUMBERS, PARAPHRASE_NUMBERS = 2 / 3, 0.8
CANDIDATES = 5  # test questions with the largest shared_frac that are examined


class RowOverlap(NamedTuple):
    """The overlap of a row with a test problem.

    kind: "copy", "reworded" or "paraphrase" as above; "ngram" with that rule; "exact" for a short question.
    shared_frac: 0 to 1. numbers_frac: fraction of the test question's numbers that the row contains; 1 if it has none.
    """

    kind: str
    test: str
    test_source: str
    shared_frac: float
    numbers_frac: float
    same_answer: bool
    question: str
    test_question: str


class BenchmarkTexts:
    """The test problems, indexed by their trigrams.

    Call `count` with every training problem first: the weights of trigrams depend on the training set. Then call
    `overlap` for each problem. Memory depends only on the test problems.

    ngram: words per n-gram. shortest_graded: least words of a test question that is compared by its n-grams.
    """

    least_frac = PARAPHRASE
    """The shared_frac of a test question that is examined."""

    def __init__(
        self, problems: Iterable[Problem], *, ngram: int = NGRAM, shortest_graded: int = SHORTEST_GRADED
    ) -> None:
        self.ngram = ngram
        self._problems = list(problems)
        self._index: dict[str, list[int]] = {}
        self._whole: dict[str, int] = {}
        self._documents = len(self._problems)
        self._frequency = Counter[str]()
        self._sizes: list[float] | None = None
        self.too_short = 0
        for test, problem in enumerate(self._problems):
            words = normalized_words(_text(problem))
            grams = self._find_grams(words)
            if len(words) < shortest_graded or not grams:
                self.too_short += len(words) < SHORTEST
                self._whole.setdefault(" ".join(words), test)
                continue
            for gram in dict.fromkeys(grams):
                self._index.setdefault(gram, []).append(test)
        self._frequency.update({gram: len(tests) for gram, tests in self._index.items()})

    def __len__(self) -> int:
        return len(self._problems)

    def count(self, problem: Problem) -> None:
        """Count the test trigrams in a training question."""
        self._documents += 1
        self._frequency.update(self._find_shared_grams(normalized_words(_text(problem))))

    def overlap(self, problem: Problem, *, min_frac: float = 0.0) -> RowOverlap | None:
        """Return the overlap with the test problem that this problem resembles most; None if there is none.

        min_frac: ignore overlaps with a smaller shared_frac.
        """
        words = normalized_words(_text(problem))
        test = self._whole.get(" ".join(words)) if len(words) >= SHORTEST else None
        if test is not None:
            return self._overlap("exact", test, 1.0, problem)
        for shared_frac, candidate in self._candidates(words):
            kind = self._kind(problem, self._problems[candidate], shared_frac)
            if kind is not None and shared_frac >= min_frac:
                return self._overlap(kind, candidate, shared_frac, problem)
        return None

    def _candidates(self, words: list[str]) -> Iterator[tuple[float, int]]:
        """Yield (shared_frac, test) of the most similar tests, most similar first."""
        shared: dict[int, float] = {}
        for gram in self._find_shared_grams(words):
            weight = self._weight(gram)
            for test in self._index[gram]:
                shared[test] = shared.get(test, 0.0) + weight
        sizes = self._test_sizes()
        ranked = sorted(((weight / sizes[test], test) for test, weight in shared.items()), key=lambda pair: -pair[0])
        return (pair for pair in ranked[:CANDIDATES] if pair[0] >= self.least_frac)

    def _kind(self, problem: Problem, test: Problem, shared_frac: float) -> str | None:
        if shared_frac >= COPY:
            return "copy"
        numbers = numbers_frac(_text(test), _text(problem))
        if shared_frac >= REWORDED and numbers >= REWORDED_NUMBERS:
            return "reworded"
        if numbers >= PARAPHRASE_NUMBERS and same_answer(test.answer, problem.answer):
            return "paraphrase"
        return None

    def _overlap(self, kind: str, test: int, shared_frac: float, problem: Problem) -> RowOverlap:
        found = self._problems[test]
        return RowOverlap(
            kind=kind,
            test=found.id,
            test_source=found.source,
            shared_frac=round(shared_frac, 4),
            numbers_frac=round(numbers_frac(_text(found), _text(problem)), 4),
            same_answer=same_answer(found.answer, problem.answer),
            question=problem.dialogue,
            test_question=found.dialogue,
        )

    def _find_shared_grams(self, words: list[str]) -> list[str]:
        return [gram for gram in dict.fromkeys(self._find_grams(words)) if gram in self._index]

    def _find_grams(self, words: list[str]) -> list[str]:
        return ngrams(words, self.ngram)

    def _weight(self, gram: str) -> float:
        return math.log(1 + self._documents / self._frequency[gram])

    def _test_sizes(self) -> list[float]:
        """Return the weight of all trigrams of each test question; computed once, when counting is over."""
        if self._sizes is None:
            self._sizes = [0.0] * len(self._problems)
            for gram, tests in self._index.items():
                for test in tests:
                    self._sizes[test] += self._weight(gram)
        return self._sizes


class NgramTexts(BenchmarkTexts):
    """The test problems, indexed by their n-grams. One shared n-gram makes an overlap. All weigh the same, so nothing
    has to be counted before, and shared_frac is the fraction of a test question's n-grams that the row contains.

    Raises ConfigError for an `ngram` below 3.
    """

    least_frac = 0.0

    def __init__(self, problems: Iterable[Problem], *, ngram: int) -> None:
        if ngram < SHORTEST:
            raise ConfigError(
                f"--n = {ngram}: expected {SHORTEST} words or more, because shorter runs are in any two texts."
            )
        super().__init__(problems, ngram=ngram, shortest_graded=ngram)

    def _find_grams(self, words: list[str]) -> list[str]:
        """Return the shortest run of `ngram` words from each word on. Two ideographs count as one word."""
        sizes = [1 if is_ideograph(word) else 2 for word in words]
        grams, end, size = list[str](), 0, 0
        for start in range(len(words)):
            while size < 2 * self.ngram and end < len(words):
                size += sizes[end]
                end += 1
            if size < 2 * self.ngram:
                break
            grams.append(" ".join(words[start:end]))
            size -= sizes[start]
        return grams

    def _kind(self, problem: Problem, test: Problem, shared_frac: float) -> str | None:
        return "ngram"

    def _weight(self, gram: str) -> float:
        return 1.0


def _text(problem: Problem) -> str:
    """Return the conversation up to the question, without lettered options: the same question can be asked without
    them."""
    return without_choices(problem.dialogue)


def numbers_frac(test: str, row: str) -> float:
    """Return the number of shared numbers, counted with repetitions, divided by the numbers of the text that has fewer.

    So a shortened copy that lacks some numbers, and a longer copy that has more, both get 1. Without numbers: 1.
    """
    in_test, in_row = Counter(numbers_of(test)), Counter(numbers_of(row))
    fewer = min(in_test.total(), in_row.total())
    return (in_test & in_row).total() / fewer if fewer else 1.0
