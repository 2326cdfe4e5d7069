"""How good a policy is, estimated from several samples per problem: pass@1, pass@k, maj@k and their intervals.

Axes: P problems, S samples of a problem. Samples of a problem are exchangeable: same distribution, independent noise.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import comb, fsum, isnan
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ansatz.track.rollouts import without_folders
from ansatz.track.sweep_rows import t_quantile
from ansatz.types import ScoredRollout, Verdict

Floats = NDArray[np.float64]
Item = TypeVar("Item")


def pass_at_1(correct_PS: ArrayLike) -> Floats:
    """Return the fraction of correct samples of each problem [P], in 0..1: the probability that a single sample is
    correct."""
    return _table(correct_PS).mean(axis=1)


def pass_at_k(correct_PS: ArrayLike, *, k: int) -> Floats:
    """Return the probability [P] that at least one of k samples is correct: 1 - C(S - c, k) / C(S, k), with c correct
    of S.

    Unbiased for any k <= S (Chen et al. 2021, arXiv:2107.03374, eq. 1). Raise ValueError for k outside 1..S.
    """
    correct = _table(correct_PS)
    num_samples = correct.shape[1]
    _check_k(k, num_samples)
    if not np.isin(correct, (0.0, 1.0)).all():
        raise ValueError("a verdict is neither True (1) nor False (0); expected whether each sample is correct")
    num_wrong_P = num_samples - correct.sum(axis=1)
    # C(w, k) / C(S, k) as a product of k fractions avoids large binomials. A factor is 0 if fewer than k are wrong.
    index_K = np.arange(k)
    return 1.0 - np.prod(np.clip(num_wrong_P[:, None] - index_K, 0.0, None) / (num_samples - index_K), axis=1)


def pass_at_k_exactly(logp_P: ArrayLike, *, k: int = 1) -> Floats:
    """Return the probability [P] that at least one of k samples is the worked solution: 1 - (1 - p)^k, with p = e^logp.

    logp_P: the log-prob of the solution, at most 0. k may be any number: no sample is needed. This is pass@k where no
    other response is correct, and a lower bound of it elsewhere. Accurate for the smallest p too.
    """
    if k < 1:
        raise ValueError(f"k = {k}; expected 1 or more")
    logp = np.minimum(np.asarray(logp_P, dtype=np.float64), 0.0)  # rounding can lift a certain solution above 0
    with np.errstate(divide="ignore"):  # p = 1
        log_wrong = np.where(logp < -1.0, np.log1p(-np.exp(logp)), np.log(-np.expm1(logp)))
    return -np.expm1(k * log_wrong)


def maj_at_k(votes_S: Sequence[Hashable | None], correct_S: Sequence[bool], *, k: int) -> float:
    """Return the probability that the most frequent answer among k samples of one problem is correct, in 0..1.

    votes_S: the answer that each sample votes for (see `vote`); equal values count as the same answer, None means no
    vote. A tie is broken uniformly at random, and so is the choice of the sample that represents the winning answer.
    Without any vote the result is 0. The result is the mean over all C(S, k) subsets of k samples, which is unbiased.
    Raise ValueError for k outside 1..S.
    """
    if len(votes_S) != len(correct_S):
        raise ValueError(f"got {len(votes_S)} votes and {len(correct_S)} verdicts; expected one of each per sample")
    num_samples = len(votes_S)
    _check_k(k, num_samples)
    verdicts: defaultdict[Hashable, list[bool]] = defaultdict(list)
    for answer, is_correct in zip(votes_S, correct_S, strict=True):
        if answer is not None:
            verdicts[answer].append(bool(is_correct))
    if k == num_samples:
        return _majority(verdicts)
    sizes = sorted(len(voters) for voters in verdicts.values())
    chances: list[float] = []
    for voters in verdicts.values():
        if any(voters):
            rivals = sizes.copy()
            rivals.remove(len(voters))
            chances.append(fmean(voters) * _win_chance(len(voters), tuple(rivals), num_samples=num_samples, k=k))
    return fsum(chances)


def _majority(verdicts: Mapping[Hashable, Sequence[bool]]) -> float:
    """Return the vote of all samples. verdicts: of the voters for each answer."""
    if not verdicts:
        return 0.0
    most = max(len(voters) for voters in verdicts.values())
    return fmean(fmean(voters) for voters in verdicts.values() if len(voters) == most)


@functools.lru_cache(maxsize=4096)
def _win_chance(voters: int, rivals: tuple[int, ...], *, num_samples: int, k: int) -> float:
    """Return the probability that an answer wins the vote of k < S samples drawn without replacement.

    voters, rivals: how many of the S samples vote for this answer and for each other one; the rest do not vote. A draw
    is treated as S coin flips that choose each sample with probability k/S, given that k are chosen, so that counts are
    independent and all terms lie in 0..1. If the answer gets c votes, rivals with fewer voters cannot tie and are
    merged; ways_RC[r, n] is the probability that the samples of the other answers and of no answer give n chosen ones,
    with r rivals at c votes and none above. With r ties the chance is 1 / (1 + r).
    """
    chance = 0.0
    for count in range(1, min(voters, k) + 1):
        rest = k - count
        strong = [size for size in rivals if size >= count]
        ways_RC = np.zeros((min(len(strong), rest // count) + 1, rest + 1))
        ways_RC[0] = _flips(num_samples - voters - sum(strong), rest, num_samples=num_samples, k=k)
        for size in strong:
            flips = _flips(size, count, num_samples=num_samples, k=k)
            added_RC = np.zeros_like(ways_RC)
            for votes in range(min(count - 1, rest) + 1):
                added_RC[:, votes:] += flips[votes] * ways_RC[:, : rest + 1 - votes]
            added_RC[1:, count:] += flips[count] * ways_RC[:-1, : max(0, rest + 1 - count)]
            ways_RC = added_RC
        tie_share_R = 1.0 / (1.0 + np.arange(len(ways_RC)))
        chosen = _flips(voters, count, num_samples=num_samples, k=k)[count]
        chance += float(chosen * (ways_RC[:, rest] @ tie_share_R))
    return chance / float(_flips(num_samples, k, num_samples=num_samples, k=k)[k])


def _flips(size: int, most: int, *, num_samples: int, k: int) -> Floats:
    """Return the binomial probabilities of 0..most chosen among `size` samples, each chosen with probability k/S.

    Computed as quotients of integers: exact up to one rounding, without overflow for any S.
    """
    numbers = [comb(size, n) * k**n * (num_samples - k) ** (size - n) if n <= size else 0 for n in range(most + 1)]
    return np.array([number / num_samples**size for number in numbers])


def vote(verdict: Verdict, *, gold: str) -> str | None:
    """Return the answer that a response votes for in `maj_at_k`. Training and evaluation share this rule.

    Every correct response votes for the gold answer, however it is written and whatever the reason of its verdict. Any
    other response votes for its extracted answer without spaces. Without an extracted answer there is no vote.
    """
    if verdict.correct:
        return gold
    return None if verdict.extracted is None else f"wrong:{''.join(verdict.extracted.split())}"


def accuracy_interval(score_P: ArrayLike, *, num_samples: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return Wilson's interval of mean(score_P), with problems as clusters. It is computed for as many independent
    answers as the scores are worth (Wilson 1927, with an effective sample size: Dean & Pagano 2015).

    score_P: fractions in 0..1. num_samples: of each problem. With the variance s2 of the scores, P problems are worth
    n = m (1 - m) P / s2 answers: at least P, if the samples of a problem all agree, and at most P x S. The quantile is
    taken from the t distribution with P - 1 degrees of freedom. Where all scores are 0 or all are 1 there is no
    variance, and n is P, as if the samples of a problem could only agree: 0 of 12 problems gives [0, 0.29]. One problem
    gives the quantile of one degree of freedom.
    """
    score = np.asarray(score_P, dtype=np.float64)
    if score.ndim != 1 or score.size == 0:
        raise ValueError(f"scores have shape {score.shape}; expected one axis with at least one problem")
    count, mean = score.size, float(score.mean())
    spread = mean * (1.0 - mean)
    variance = float(score.var(ddof=1)) if count > 1 else spread
    worth = min(count * num_samples, max(count, count * spread / variance)) if variance * spread > 0 else count
    squared = t_quantile(confidence, max(count - 1, 1)) ** 2
    centre = mean + squared / (2 * worth)
    half = (squared * (spread / worth + squared / (4 * worth**2))) ** 0.5
    low, high = (centre - half) / (1 + squared / worth), (centre + half) / (1 + squared / worth)
    return (0.0 if mean == 0 else max(low, 0.0)), (1.0 if mean == 1 else min(high, 1.0))


def bootstrap_interval(
    score_P: ArrayLike, *, seed: int, confidence: float = 0.95, num_resamples: int = 2000
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of mean(score_P), resampling problems (Efron 1979).

    The same seed gives the same interval. The interval covers the choice of problems and, through the spread of their
    scores, the choice of samples. One problem, or equal scores everywhere, give an interval of width 0: the data show
    no spread, which does not mean certainty. Differences have such intervals; a score has `accuracy_interval`.
    """
    score = np.asarray(score_P, dtype=np.float64)
    if score.ndim != 1 or score.size == 0:
        raise ValueError(f"scores have shape {score.shape}; expected one axis with at least one problem")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence = {confidence}; expected a value between 0 and 1, such as 0.95")
    rng = np.random.default_rng(seed)
    means = np.empty(num_resamples)
    rows = max(1, 2_000_000 // score.size)  # resamples per chunk: bounds the memory for indices to 16 MB
    for start in range(0, num_resamples, rows):
        chunk = means[start : start + rows]
        chunk[:] = score[rng.integers(score.size, size=(chunk.size, score.size))].mean(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemResult:
    """The samples of one problem, graded. Every problem of an evaluation has the same number S of samples.

    origin: see `Problem.origin`. votes: see `vote`. lengths: response tokens. greedy: whether the response at
    temperature 0 is correct, None if there is none. is_graded: whether a reward said which responses are correct;
    if not, there is no pass@1. rewards: for each reward by its name, its values for the samples that it applies to; for
    the name "", the weighted sums. solution_logp: the log-prob of the worked solution at the temperature of the
    samples; None without a worked solution.
    """

    level: str
    origin: str = ""
    correct: tuple[bool, ...]
    votes: tuple[Hashable | None, ...]
    lengths: tuple[int, ...]
    truncated: tuple[bool, ...]
    greedy: bool | None = None
    solution_logp: float | None = None
    is_graded: bool = True
    rewards: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])


def collect_result(
    samples: Sequence[ScoredRollout], greedy: ScoredRollout, solution_logp: float | None = None
) -> ProblemResult:
    """Return the result of a problem from its samples, and from the response at temperature 0."""
    problem = greedy.rollout.prompt.problem
    return ProblemResult(
        level=problem.level,
        origin=problem.origin,
        correct=tuple(sample.score.verdict.correct for sample in samples),
        votes=tuple(vote(sample.score.verdict, gold=problem.answer) for sample in samples),
        lengths=tuple(sample.rollout.num_tokens for sample in samples),
        truncated=tuple(sample.rollout.truncated for sample in samples),
        greedy=greedy.score.verdict.correct,
        solution_logp=solution_logp,
        is_graded=any(sample.score.is_graded for sample in samples),
        rewards={
            "": tuple(sample.score.value for sample in samples if sample.score.applies),
            **{
                name: tuple(value for sample in samples if not isnan(value := sample.score.parts[name]))
                for name in samples[0].score.parts
            },
        },
    )


def summarise(results: Sequence[ProblemResult], *, k: int) -> dict[str, Any]:
    """Return the numbers of an evaluation, and under "by_level" the same for each level in order. If the problems have
    several origins, "by_source" has them for each.

    Keys: num_problems, samples_per_prompt, k, pass@1, pass@1_interval [low, high] (95 %), greedy, pass@k, maj@k,
    mean_length (tokens), truncated_frac, and exact_pass@1, the mean over the problems with a worked solution, if there
    are any; reward, the mean reward, and rewards, the mean of each one by name. If no reward says which responses are
    correct, pass@1, greedy, pass@k and maj@k are None, and reward_interval is there. A problem without a level does not
    appear under "by_level".
    Raise ValueError for no results or k above S.
    """
    numbers = _numbers(results, k=k)
    levels = split_by(results, lambda result: result.level)
    numbers["by_level"] = {level: _numbers(part, k=k) for level, part in levels.items()}
    origins = list(dict.fromkeys(result.origin for result in results))
    if len(origins) > 1:
        numbers["by_source"] = {
            origin: _numbers([result for result in results if result.origin == origin], k=k) for origin in origins
        }
    return numbers


def split_by(items: Iterable[Item], label: Callable[[Item], str]) -> dict[str, list[Item]]:
    """Return the items of each label, short labels first. Items without a label are left out."""
    parts: defaultdict[str, list[Item]] = defaultdict(list)
    for item in items:
        parts[label(item)].append(item)
    return {name: parts[name] for name in sorted(parts, key=lambda name: (len(name), name)) if name}


def _numbers(results: Sequence[ProblemResult], *, k: int) -> dict[str, Any]:
    if not results:
        raise ValueError("an evaluation of 0 problems has no numbers; expected at least 1 result")
    solution_logps = [result.solution_logp for result in results if result.solution_logp is not None]
    return {
        "num_problems": len(results),
        "samples_per_prompt": len(results[0].correct),
        "k": k,
        **_correctness(results, k=k),
        **_mean_rewards(results),
        "mean_length": fmean(length for result in results for length in result.lengths),
        "truncated_frac": fmean(truncated for result in results for truncated in result.truncated),
        **({"exact_pass@1": float(pass_at_k_exactly(solution_logps).mean())} if solution_logps else {}),
    }


def _correctness(results: Sequence[ProblemResult], *, k: int) -> dict[str, Any]:
    results = [result for result in results if result.is_graded]
    if not results:
        return dict.fromkeys(("pass@1", "pass@1_interval", "greedy", "pass@k", "maj@k"))
    correct_PS = [result.correct for result in results]
    mean_P = pass_at_1(correct_PS)
    greedy = [result.greedy for result in results if result.greedy is not None]
    return {
        "pass@1": float(mean_P.mean()),
        "pass@1_interval": list(accuracy_interval(mean_P, num_samples=len(correct_PS[0]))),
        "greedy": fmean(greedy) if greedy else None,
        "pass@k": float(pass_at_k(correct_PS, k=k).mean()),
        "maj@k": fmean(maj_at_k(result.votes, result.correct, k=k) for result in results),
    }


def _mean_rewards(results: Sequence[ProblemResult]) -> dict[str, Any]:
    names = [*dict.fromkeys(name for result in results for name in result.rewards)]
    mean_P = {name: [fmean(values) for result in results if (values := result.rewards.get(name))] for name in names}
    if not mean_P.get(""):
        return {}
    interval = {}
    if not any(result.is_graded for result in results):
        interval = {"reward_interval": list(bootstrap_interval(mean_P[""], seed=0))}
    means = {shown: fmean(mean_P[name]) for name, shown in without_folders(names).items() if mean_P[name]}
    return {"reward": means.pop(""), **interval, "rewards": means}


def _table(correct_PS: ArrayLike) -> Floats:
    try:
        correct = np.asarray(correct_PS, dtype=np.float64)
    except ValueError as error:
        raise ValueError("problems have different numbers of samples; expected the same number for each") from error
    if correct.ndim != 2 or correct.size == 0:
        raise ValueError(f"verdicts have shape {correct.shape}; expected [problems, samples], at least one of each")
    return correct


def _check_k(k: int, num_samples: int) -> None:
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise ValueError(f"k = {k!r}; expected an integer")
    if not 1 <= k <= num_samples:
        raise ValueError(f"k = {k} with {num_samples} samples per problem; expected 1 to {num_samples}")
