"""Two evaluations of the same problems: is the difference more than chance, and where does it come from?

Axes: P problems that both have. Everything is paired by problem: a problem that is hard for both says nothing about
either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb, fsum
from statistics import fmean
from typing import Any

from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.estimators import bootstrap_interval
from ansatz.evaluate.responses import Response

Pair = tuple[Sequence[Response], Sequence[Response]]


def paired(a: Sequence[Sequence[Response]], b: Sequence[Sequence[Response]]) -> list[Pair]:
    """Return the samples of each problem that both have, in the order of `a`.

    Raise ConfigError if there is none. Raise DataError if a problem has different questions or answers in the two.
    """
    b_by_id = {samples[0].id: samples for samples in b}
    pairs = [(samples, b_by_id[samples[0].id]) for samples in a if samples[0].id in b_by_id]
    if not pairs:
        raise ConfigError(
            f"the two evaluations have no problem in common (they start with {a[0][0].id!r} and {b[0][0].id!r}). "
            "Compare evaluations on the same problems."
        )
    for left, right in pairs:
        if (left[0].question, left[0].answer) != (right[0].question, right[0].answer):
            raise DataError(
                f"problem {left[0].id!r} is not the same in both evaluations (answers {left[0].answer!r} and "
                f"{right[0].answer!r}). Compare evaluations on the same version of the problems."
            )
    return pairs


def comparison(pairs: Sequence[Pair], *, mode: str, seed: int, num_changed: int = 10) -> dict[str, Any]:
    """Return how B compares with A in one mode.

    Keys: num_problems, a and b (pass@1), difference (b - a) with its 95 % paired bootstrap interval, wins_a, wins_b and
    ties (problems by which side has the higher fraction of correct responses), p_value (see `sign_test`), by_level and
    by_subject (the same for each), and changed: at most `num_changed` problems, those that changed most.
    """
    return {
        **_numbers(pairs, mode=mode, seed=seed),
        "by_level": _parts(pairs, lambda response: response.level, mode=mode, seed=seed),
        "by_subject": _parts(pairs, lambda response: response.subject, mode=mode, seed=seed),
        "changed": _list_changed(pairs, mode=mode)[:num_changed],
    }


def sign_test(wins_a: int, wins_b: int) -> float:
    """Return the exact two-sided p-value of the split of untied problems under a fair coin; 1 if all problems are tied.

    With one sample per problem it is McNemar's exact test (https://doi.org/10.1007/BF02295996).
    """
    count, fewer = wins_a + wins_b, min(wins_a, wins_b)
    tail = sum(comb(count, i) for i in range(fewer + 1))
    return min(1.0, 2 * tail / 2**count)


def _numbers(pairs: Sequence[Pair], *, mode: str, seed: int) -> dict[str, Any]:
    a_P = [_correct_frac(left, mode) for left, _ in pairs]
    b_P = [_correct_frac(right, mode) for _, right in pairs]
    change_P = [b - a for a, b in zip(a_P, b_P, strict=True)]
    wins_a, wins_b = sum(change < 0 for change in change_P), sum(change > 0 for change in change_P)
    return {
        "num_problems": len(pairs),
        "a": fmean(a_P),
        "b": fmean(b_P),
        "difference": fsum(change_P) / len(pairs),
        "difference_interval": list(bootstrap_interval(change_P, seed=seed)),
        "wins_a": wins_a,
        "wins_b": wins_b,
        "ties": len(pairs) - wins_a - wins_b,
        "p_value": sign_test(wins_a, wins_b),
    }


def _parts(pairs: Sequence[Pair], label: Callable[[Response], str], *, mode: str, seed: int) -> dict[str, Any]:
    labels = {label(left[0]) for left, _ in pairs} - {""}
    return {
        name: _numbers([pair for pair in pairs if label(pair[0][0]) == name], mode=mode, seed=seed)
        for name in sorted(labels, key=lambda name: (len(name), name))
    }


def _list_changed(pairs: Sequence[Pair], *, mode: str) -> list[dict[str, Any]]:
    rows = [
        {
            "id": left[0].id,
            "question": left[0].question,
            "a": _correct_frac(left, mode),
            "b": _correct_frac(right, mode),
        }
        for left, right in pairs
    ]
    moved = [row for row in rows if row["a"] != row["b"]]
    return sorted(moved, key=lambda row: -abs(row["b"] - row["a"]))  # stable: ties stay in the suite's order


def _correct_frac(samples: Sequence[Response], mode: str) -> float:
    return sum(response.verdicts[mode].correct for response in samples) / len(samples)
