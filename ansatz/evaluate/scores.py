"""The numbers of an evaluation from its graded responses alone; no sampling, no files, no clock.

Axes: P problems, S samples of a problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from ansatz.evaluate.estimators import bootstrap_interval, maj_at_k, pass_at_1, pass_at_k
from ansatz.evaluate.responses import MODES, Response
from ansatz.types import Reason

Answers = Sequence[Sequence[Response]]  # [P][S]


def suite_scores(responses_PS: Answers, *, seed: int) -> dict[str, Any]:
    """All numbers: over all problems, and under by_level and by_subject for each level and subject there is.

    Keys: num_problems, samples_per_problem, mean_length (tokens), truncated_share, and for each of MODES pass@1 with
    its 95 % bootstrap interval over problems [low, high], pass@k and maj@k for k = 1, 2, 4, ... and S, and verdicts
    (share of responses by reason). seed: of the bootstrap. ValueError for no problems, or problems with unequal S.
    """
    return {
        **_numbers(responses_PS, seed=seed),
        "by_level": _parts(responses_PS, lambda one: one.level, seed=seed),
        "by_subject": _parts(responses_PS, lambda one: one.subject, seed=seed),
    }


def powers(count: int) -> list[int]:
    """1, 2, 4, ... up to count, and count itself."""
    return sorted({2**i for i in range(count.bit_length())} | {count})


def _parts(responses_PS: Answers, label: Callable[[Response], str], *, seed: int) -> dict[str, Any]:
    labels = {label(samples[0]) for samples in responses_PS} - {""}
    return {
        name: _numbers([samples for samples in responses_PS if label(samples[0]) == name], seed=seed)
        for name in sorted(labels, key=lambda name: (len(name), name))
    }


def _numbers(responses_PS: Answers, *, seed: int) -> dict[str, Any]:
    if not responses_PS:
        raise ValueError("an evaluation of 0 problems has no numbers; expected at least 1")
    flat = [one for samples in responses_PS for one in samples]
    return {
        "num_problems": len(responses_PS),
        "samples_per_problem": len(responses_PS[0]),
        "mean_length": fmean(one.tokens for one in flat),
        "truncated_share": fmean(one.truncated for one in flat),
        **{mode: _mode_numbers(responses_PS, mode, seed=seed) for mode in MODES},
    }


def _mode_numbers(responses_PS: Answers, mode: str, *, seed: int) -> dict[str, Any]:
    correct_PS = [[one.verdicts[mode].correct for one in samples] for samples in responses_PS]
    votes_PS = [[one.vote(mode) for one in samples] for samples in responses_PS]
    mean_P = pass_at_1(correct_PS)
    reasons = Counter(one.verdicts[mode].reason for samples in responses_PS for one in samples)
    ks = powers(len(correct_PS[0]))
    return {
        "pass@1": float(mean_P.mean()),
        "pass@1_interval": list(bootstrap_interval(mean_P, seed=seed)),
        "pass@k": {str(k): float(pass_at_k(correct_PS, k=k).mean()) for k in ks},
        "maj@k": {
            str(k): fmean(maj_at_k(votes, correct, k=k) for votes, correct in zip(votes_PS, correct_PS, strict=True))
            for k in ks
        },
        "verdicts": {reason.value: reasons[reason] / reasons.total() for reason in Reason if reasons[reason]},
    }
