"""How good a reward model is: order and calibration of its scores, and the gain from choosing responses by them.

Axes: P problems, S scored responses of a problem, C calibrated predictions. Pure functions of scores and verdicts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import comb, fsum
from statistics import fmean

from ansatz.evaluate.estimators import maj_at_k
from ansatz.rewards.learned import sigmoid

NUM_BINS = 10
"""Bins of equal width of the calibration error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredProblem:
    """The responses to one problem. votes: see `estimators.vote`. scores: of the reward model, higher is better."""

    votes: tuple[Hashable | None, ...]
    correct: tuple[bool, ...]
    scores: tuple[float, ...]


def pair_accuracy(problems: Sequence[ScoredProblem]) -> float | None:
    """Return the fraction of pairs of a correct and a wrong response to one problem that the scores order rightly.

    Equal scores count half. None if no problem has both kinds.
    """
    wins = [1.0 if gap > 0 else 0.5 if gap == 0 else 0.0 for gap in _gaps(problems)]
    return fmean(wins) if wins else None


def pair_predictions(problems: Sequence[ScoredProblem]) -> tuple[list[float], list[bool]]:
    """Return the predictions of Bradley-Terry for pairs: the probability that the higher score is the correct response,
    and whether it is."""
    gaps = _gaps(problems)
    return [sigmoid(abs(gap)) for gap in gaps], [gap > 0 for gap in gaps]


def _gaps(problems: Sequence[ScoredProblem]) -> list[float]:
    """Return the score of the correct minus the score of the wrong response, for every pair of the two kinds."""
    gaps = list[float]()
    for problem in problems:
        scored = list(zip(problem.scores, problem.correct, strict=True))
        right, wrong = [s for s, correct in scored if correct], [s for s, correct in scored if not correct]
        gaps += [better - worse for better in right for worse in wrong]
    return gaps


def calibration_error(probability_C: Sequence[float], happened_C: Sequence[bool]) -> float:
    """Return the mean distance between predicted probability and frequency, in 0..1 (ECE, arXiv:1706.04599, eq. 3).

    Predictions are put into ten bins of equal width, and each bin counts by its number of predictions. ValueError
    without a prediction.
    """
    if not probability_C:
        raise ValueError("the calibration of 0 predictions is undefined; expected at least 1")
    bins: defaultdict[int, list[tuple[float, bool]]] = defaultdict(list)
    for probability, happened in zip(probability_C, happened_C, strict=True):
        bins[min(int(probability * NUM_BINS), NUM_BINS - 1)].append((probability, happened))
    distances = (abs(fsum(p for p, _ in members) - sum(h for _, h in members)) for members in bins.values())
    return fsum(distances) / len(probability_C)


def best_of_n(scores_S: Sequence[float], correct_S: Sequence[bool], *, n: int) -> float:
    """Return the probability that the response with the highest score among n is correct, over all subsets of n.

    Of equal scores, each is chosen with the same probability. ValueError for n outside 1..S.
    """
    num_samples = len(scores_S)
    if not 1 <= n <= num_samples:
        raise ValueError(f"n = {n} with {num_samples} scored responses; expected 1 to {num_samples}")
    ordered = sorted(zip(scores_S, correct_S, strict=True))
    total, below = 0.0, 0
    for _, tied in groupby(ordered, key=lambda pair: pair[0]):
        correct = [is_correct for _, is_correct in tied]
        upto = below + len(correct)
        total += fmean(correct) * (comb(upto, n) - comb(below, n)) / comb(num_samples, n)
        below = upto
    return total


def weighted_vote(
    votes_S: Sequence[Hashable | None], correct_S: Sequence[bool], weights_S: Sequence[float], *, n: int
) -> float:
    """Return the probability that the answer with the largest sum of weights among n responses is correct.

    The mean over disjoint blocks of n responses in their order, which is unbiased; responses that are left over are
    not used. A tie counts in equal parts. Responses without a vote do not count. ValueError for n outside 1..S.
    """
    num_samples = len(votes_S)
    if not 1 <= n <= num_samples:
        raise ValueError(f"n = {n} with {num_samples} responses; expected 1 to {num_samples}")
    rows = list(zip(votes_S, correct_S, weights_S, strict=True))
    starts = range(0, num_samples - n + 1, n)
    return fmean(_weighted_winner(rows[start : start + n]) for start in starts)


def _weighted_winner(rows: Sequence[tuple[Hashable | None, bool, float]]) -> float:
    weights: defaultdict[Hashable, list[float]] = defaultdict(list)
    verdicts: defaultdict[Hashable, list[bool]] = defaultdict(list)
    for vote, correct, weight in rows:
        if vote is not None:
            weights[vote].append(weight)
            verdicts[vote].append(correct)
    if not weights:
        return 0.0
    sums = {vote: fsum(values) for vote, values in weights.items()}
    most = max(sums.values())
    return fmean(fmean(verdicts[vote]) for vote, total in sums.items() if total == most)


def selection_curves(problems: Sequence[ScoredProblem], *, weights: Sequence[Sequence[float]]) -> dict[str, float]:
    """Compute best_of_N, weighted_vote_N and maj_N, means over problems, for N = 1, 2, 4, ... up to S.

    weights: [P][S], of the weighted vote.
    """
    curves, n = dict[str, float](), 1
    while n <= len(problems[0].scores):
        curves[f"best_of_{n}"] = fmean(best_of_n(each.scores, each.correct, n=n) for each in problems)
        curves[f"weighted_vote_{n}"] = fmean(
            weighted_vote(each.votes, each.correct, row, n=n) for each, row in zip(problems, weights, strict=True)
        )
        curves[f"maj_{n}"] = fmean(maj_at_k(each.votes, each.correct, k=n) for each in problems)
        n *= 2
    return curves


def first_error_f1(predicted_N: Sequence[int | None], true_N: Sequence[int | None]) -> float:
    """Return the F1 of finding the first wrong step (ProcessBench, arXiv:2412.06559, sec. 3.3): the harmonic mean of
    the accuracy on solutions with an error, whose first step must be named, and on solutions without one.

    None means that no step is wrong. ValueError unless there are solutions of both kinds.
    """
    pairs = list(zip(predicted_N, true_N, strict=True))
    with_error = [predicted == true for predicted, true in pairs if true is not None]
    without = [predicted is None for predicted, true in pairs if true is None]
    if not with_error or not without:
        raise ValueError("first_error_f1 needs solutions with and without an error; one of the two kinds is missing")
    found, passed = fmean(with_error), fmean(without)
    return 2 * found * passed / (found + passed) if found + passed else 0.0
