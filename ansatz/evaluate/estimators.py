"""How good a policy is, from k samples a problem: pass@1, pass@k, maj@k and their interval.

Axes: P problems, S samples of a problem. Samples of a problem are exchangeable (same distribution, independent noise).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ansatz.types import Verdict

Floats = NDArray[np.float64]


def pass_at_1(correct_PS: ArrayLike) -> Floats:
    """Share of correct samples of each problem [P], in 0..1: the chance that one sample is right."""
    return _table(correct_PS).mean(axis=1)


def pass_at_k(correct_PS: ArrayLike, *, k: int) -> Floats:
    """Chance [P] that at least one of k samples is right: 1 - C(S - c, k) / C(S, k), c correct of S.

    Unbiased for any k <= S (Chen et al. 2021, arXiv:2107.03374, eq. 1). ValueError for k outside 1..S.
    """
    correct = _table(correct_PS)
    num_samples = correct.shape[1]
    _check_k(k, num_samples)
    num_wrong_P = num_samples - correct.sum(axis=1)
    # C(w, k) / C(S, k) as a product of k shares: no large binomials; a factor is 0 once fewer than k are wrong.
    drawn_K = np.arange(k)
    return 1.0 - np.prod(np.clip(num_wrong_P[:, None] - drawn_K, 0.0, None) / (num_samples - drawn_K), axis=1)


def maj_at_k(answers_S: Sequence[Hashable | None], correct_S: Sequence[bool], *, k: int) -> float:
    """Chance that the most frequent answer among k samples of one problem is right, in 0..1.

    answers_S: a key for each sample, equal for answers that count as the same; None votes for nothing. Tied answers are
    chosen among uniformly, and so is the sample that stands for the chosen answer. Without any vote it is 0. With S
    over k it is the mean over the S // k disjoint runs of k samples, which is unbiased. ValueError for k outside 1..S.
    """
    if len(answers_S) != len(correct_S):
        raise ValueError(f"got {len(answers_S)} answers and {len(correct_S)} verdicts; expected one of each a sample")
    _check_k(k, len(answers_S))
    starts = range(0, len(answers_S) - k + 1, k)
    return fmean(_vote(answers_S[start : start + k], correct_S[start : start + k]) for start in starts)


def _vote(answers: Sequence[Hashable | None], correct: Sequence[bool]) -> float:
    verdicts: defaultdict[Hashable, list[bool]] = defaultdict(list)
    for answer, right in zip(answers, correct, strict=True):
        if answer is not None:
            verdicts[answer].append(bool(right))
    if not verdicts:
        return 0.0
    most = max(len(votes) for votes in verdicts.values())
    return fmean(fmean(votes) for votes in verdicts.values() if len(votes) == most)


def vote(verdict: Verdict, *, gold: str) -> str | None:
    """What a response votes for in `maj_at_k`: the one rule of training and evaluation.

    Every correct response votes for the gold answer, however it is written and whatever the reason of its verdict. Any
    other votes for its extracted answer without spaces. Without an extracted answer there is no vote.
    """
    if verdict.correct:
        return gold
    return None if verdict.extracted is None else f"wrong:{''.join(verdict.extracted.split())}"


def bootstrap_interval(
    score_P: ArrayLike, *, seed: int, confidence: float = 0.95, num_resamples: int = 2000
) -> tuple[float, float]:
    """Percentile bootstrap interval of mean(score_P), resampling problems (Efron 1979).

    The same seed gives the same interval. It covers the choice of problems and, through the spread of their scores, of
    samples. One problem, or equal scores everywhere, give an interval of width 0: the data hold no spread, which is not
    certainty.
    """
    score = np.asarray(score_P, dtype=np.float64)
    if score.ndim != 1 or score.size == 0:
        raise ValueError(f"scores have shape {score.shape}; expected one axis with at least one problem")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence = {confidence}; expected a share between 0 and 1, such as 0.95")
    rng = np.random.default_rng(seed)
    means = np.empty(num_resamples)
    rows = max(1, 2_000_000 // score.size)  # resamples at a time: bounds memory at 16 MB of indices
    for start in range(0, num_resamples, rows):
        part = means[start : start + rows]
        part[:] = score[rng.integers(score.size, size=(part.size, score.size))].mean(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What sampling one problem gave. Every problem of an evaluation has the same number S of samples.

    answers: a key for each sample (see `maj_at_k`). lengths: response tokens. greedy: whether the response at
    temperature 0 is right, None when it was not drawn.
    """

    level: str
    correct: tuple[bool, ...]
    answers: tuple[Hashable | None, ...]
    lengths: tuple[int, ...]
    truncated: tuple[bool, ...]
    greedy: bool | None = None


def summarise(outcomes: Sequence[Outcome], *, k: int, seed: int) -> dict[str, Any]:
    """The numbers of an evaluation, and under "by_level" the same for each level in order.

    Keys: num_problems, samples_per_problem, k, pass@1, pass@1_interval [low, high] (95 %), greedy, pass@k, maj@k,
    mean_length (tokens), truncated_frac. Problems without a level count in none.
    ValueError for no outcomes or k over S.
    """
    numbers = _numbers(outcomes, k=k, seed=seed)
    levels = sorted({outcome.level for outcome in outcomes} - {""}, key=lambda level: (len(level), level))
    numbers["by_level"] = {
        level: _numbers([outcome for outcome in outcomes if outcome.level == level], k=k, seed=seed) for level in levels
    }
    return numbers


def _numbers(outcomes: Sequence[Outcome], *, k: int, seed: int) -> dict[str, Any]:
    if not outcomes:
        raise ValueError("an evaluation of 0 problems has no numbers; expected at least 1 outcome")
    correct_PS = [outcome.correct for outcome in outcomes]
    mean_P = pass_at_1(correct_PS)
    greedy = [outcome.greedy for outcome in outcomes if outcome.greedy is not None]
    return {
        "num_problems": len(outcomes),
        "samples_per_problem": len(outcomes[0].correct),
        "k": k,
        "pass@1": float(mean_P.mean()),
        "pass@1_interval": list(bootstrap_interval(mean_P, seed=seed)),
        "greedy": fmean(greedy) if greedy else None,
        "pass@k": float(pass_at_k(correct_PS, k=k).mean()),
        "maj@k": fmean(maj_at_k(outcome.answers, outcome.correct, k=k) for outcome in outcomes),
        "mean_length": fmean(length for outcome in outcomes for length in outcome.lengths),
        "truncated_frac": fmean(cut for outcome in outcomes for cut in outcome.truncated),
    }


def _table(correct_PS: ArrayLike) -> Floats:
    try:
        correct = np.asarray(correct_PS, dtype=np.float64)
    except ValueError as error:
        raise ValueError("problems have different numbers of samples; expected the same number for each") from error
    if correct.ndim != 2 or correct.size == 0:
        raise ValueError(f"verdicts have shape {correct.shape}; expected [problems, samples], at least one of each")
    return correct


def _check_k(k: int, num_samples: int) -> None:
    if not 1 <= k <= num_samples:
        raise ValueError(f"k = {k} with {num_samples} samples a problem; expected 1 to {num_samples}")
