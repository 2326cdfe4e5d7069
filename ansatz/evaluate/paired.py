"""Two evaluations on the same problems: is the difference more than chance, and where does it come from?

Axes: P problems that both have. Everything is paired by problem: what is hard for both says nothing about either.
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
    """The samples of each problem that both have, in the order of `a`.

    ConfigError where there is none; DataError where a problem has another question or answer in the one than the other.
    """
    of_b = {samples[0].id: samples for samples in b}
    pairs = [(samples, of_b[samples[0].id]) for samples in a if samples[0].id in of_b]
    if not pairs:
        raise ConfigError(
            f"the two evaluations have no problem in common ({a[0][0].id!r} and {b[0][0].id!r} are their first). "
            "Compare evaluations on the same suite."
        )
    for left, right in pairs:
        if (left[0].question, left[0].answer) != (right[0].question, right[0].answer):
            raise DataError(
                f"problem {left[0].id!r} is not the same in both evaluations (answers {left[0].answer!r} and "
                f"{right[0].answer!r}). Compare evaluations on the same version of a suite."
            )
    return pairs


def comparison(pairs: Sequence[Pair], *, mode: str, seed: int, most: int = 10) -> dict[str, Any]:
    """What B is against A under one reading of the responses.

    Keys: num_problems, a and b (pass@1), difference (b - a) with its 95 % paired bootstrap interval, wins_a, wins_b,
    ties (problems by which has the higher share of right responses), p_value (see `sign_test`), by_level and by_subject
    (the same for each), and changed: the up to `most` problems that changed most.
    """
    return {
        **_numbers(pairs, mode=mode, seed=seed),
        "by_level": _parts(pairs, lambda one: one.level, mode=mode, seed=seed),
        "by_subject": _parts(pairs, lambda one: one.subject, mode=mode, seed=seed),
        "changed": _changed(pairs, mode=mode, most=most),
    }


def sign_test(wins_a: int, wins_b: int) -> float:
    """Exact two-sided p-value of the split of untied problems under a fair coin; 1 without any.

    With one sample a problem it is McNemar's exact test (https://doi.org/10.1007/BF02295996).
    """
    count, least = wins_a + wins_b, min(wins_a, wins_b)
    tail = sum(comb(count, i) for i in range(least + 1))
    return min(1.0, 2 * tail / 2**count)


def _numbers(pairs: Sequence[Pair], *, mode: str, seed: int) -> dict[str, Any]:
    a_P = [_share(left, mode) for left, _ in pairs]
    b_P = [_share(right, mode) for _, right in pairs]
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


def _changed(pairs: Sequence[Pair], *, mode: str, most: int) -> list[dict[str, Any]]:
    rows = [
        {"id": left[0].id, "question": left[0].question, "a": _share(left, mode), "b": _share(right, mode)}
        for left, right in pairs
    ]
    moved = [row for row in rows if row["a"] != row["b"]]
    return sorted(moved, key=lambda row: -abs(row["b"] - row["a"]))[:most]  # stable: ties stay in the suite's order


def _share(samples: Sequence[Response], mode: str) -> float:
    return sum(one.verdicts[mode].correct for one in samples) / len(samples)
