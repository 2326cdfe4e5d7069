"""Advantage rules as plain numpy: which of them explains the advantages of a step?

Axes: N rollouts, K rewards. The rules of `objectives.advantages` that take nothing but rewards, groups and lengths are
written here a second time, so that an audit of a log needs no torch. A test holds the two together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from ansatz.audit.bundle import Array

TOLERANCE = 2e-5
"""Of the largest advantage: rounding of float32, several times over."""


@dataclass(frozen=True, slots=True)
class Rewards:
    """The inputs of a rule. weight_K: of the components; all of them 1 if a project has none."""

    reward_N: Array
    group_N: Array
    component_NK: Array
    weight_K: Array
    length_N: Array


Baseline = Callable[[Rewards], Array | float]


@dataclass(frozen=True, slots=True)
class Rule:
    """name and settings as in a recipe. text: for people. change: how it differs from the promised rule, if at all."""

    name: str
    settings: Mapping[str, Any]
    change: str = ""

    def text(self) -> str:
        settings = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in self.settings.items())
        return f"{self.name}{f' ({settings})' if settings else ''}{f', {self.change}' if self.change else ''}"

    def __call__(self, rewards: Rewards) -> Array:
        return RULES[self.name](rewards, **self.settings)


def _mean(value_N: Array, group_N: Array) -> Array:
    index_N = np.unique(group_N, return_inverse=True)[1]
    return (np.bincount(index_N, value_N) / np.bincount(index_N))[index_N]


def _size(group_N: Array) -> Array:
    index_N = np.unique(group_N, return_inverse=True)[1]
    return np.bincount(index_N)[index_N].astype(float)


def _std(value_N: Array, group_N: Array, ddof: int) -> Array:
    size_N = _size(group_N)
    squares_N = _mean((value_N - _mean(value_N, group_N)) ** 2, group_N) * size_N
    return np.sqrt(squares_N / np.maximum(size_N - ddof, 1))


def _scaled(value_N: Array, baseline_N: Array | float, over_N: Array, *, ddof: int, eps: float) -> Array:
    """Subtract the baseline, and divide by std + eps of the values in each group of `over_N`."""
    centred_N, divisor_N = value_N - baseline_N, _std(value_N, over_N, ddof) + eps
    return np.where(np.abs(centred_N) > 1e-12, centred_N / np.maximum(divisor_N, 1e-30), 0.0)


def _group_mean(given: Rewards) -> Array:
    return _mean(given.reward_N, given.group_N)


def _batch_mean(given: Rewards) -> float:
    return given.reward_N.mean()


def _zscore(
    given: Rewards, *, ddof: int = 1, eps: float = 1e-4, std_over: str = "group", baseline: Baseline = _group_mean
) -> Array:
    over_N = given.group_N if std_over == "group" else np.zeros_like(given.group_N)
    return _scaled(given.reward_N, baseline(given), over_N, ddof=ddof, eps=eps)


def _leave_one_out(given: Rewards, **_: Any) -> Array:
    size_N = _size(given.group_N)
    return (given.reward_N - _mean(given.reward_N, given.group_N)) * size_N / np.maximum(size_N - 1, 1)


def _leave_one_out_std(given: Rewards, *, ddof: int = 1, eps: float = 1e-6) -> Array:
    out_N = np.zeros(len(given.reward_N))
    for row, group in enumerate(given.group_N):
        is_member_N = given.group_N == group
        others = given.reward_N[is_member_N & (np.arange(len(out_N)) != row)]
        if len(others):
            std = np.sqrt(((others - others.mean()) ** 2).sum() / max(len(others) - ddof, 1))
            even = np.ptp(others) <= 1e-6 * np.abs(given.reward_N[is_member_N]).max()
            out_N[row] = (given.reward_N[row] - others.mean()) / (1.0 if even else std + eps)
    return out_N


def _mean_ratio(given: Rewards, *, eps: float = 1e-6, **_: Any) -> Array:
    mean_N = _mean(given.reward_N, given.group_N)
    return np.where(mean_N > 0, (given.reward_N - mean_N) / np.where(mean_N > 0, mean_N + eps, 1.0), 0.0)


def _opo(given: Rewards, **_: Any) -> Array:
    length_N = given.length_N.astype(float)
    baseline_N = _mean(length_N * given.reward_N, given.group_N) / np.maximum(_mean(length_N, given.group_N), 1e-30)
    even_N = np.abs(given.reward_N - _mean(given.reward_N, given.group_N)) < 1e-12
    return np.where(_mean(even_N.astype(float), given.group_N) < 1, given.reward_N - baseline_N, 0.0)


def _gdpo(given: Rewards, *, ddof: int = 1, eps: float = 1e-4, whiten: bool = True, **_: Any) -> Array:
    parts = [
        weight * _scaled(column, _mean(column, given.group_N), given.group_N, ddof=ddof, eps=eps)
        for column, weight in zip(given.component_NK.T, given.weight_K, strict=True)
    ]
    total_N = np.sum(parts, 0) if parts else np.zeros(len(given.group_N))
    whole_N = np.zeros_like(given.group_N)
    return _scaled(total_N, total_N.mean(), whole_N, ddof=ddof, eps=eps) if whiten else total_N


RULES: dict[str, Callable[..., Array]] = {
    "group_zscore": _zscore,
    "group_mean": lambda given, **_: given.reward_N - _mean(given.reward_N, given.group_N),
    "leave_one_out": _leave_one_out,
    "leave_one_out_std": _leave_one_out_std,
    "batch_zscore": partial(_zscore, eps=1e-8, std_over="batch", baseline=_batch_mean),
    "reward": lambda given: given.reward_N,
    "mean_ratio": _mean_ratio,
    "opo": _opo,
    "gdpo": _gdpo,
}


def candidates() -> Iterator[Rule]:
    """Yield every rule with the constants that projects use."""
    for ddof, eps, over in product((1, 0), (1e-4, 1e-6, 1e-8), ("group", "batch")):
        yield Rule("group_zscore", {"ddof": ddof, "eps": eps, "std_over": over})
    for name in ("group_mean", "leave_one_out", "reward", "mean_ratio", "opo"):
        yield Rule(name, {})
    for ddof, eps in product((1, 0), (1e-4, 1e-6, 1e-8)):
        yield Rule("batch_zscore", {"ddof": ddof, "eps": eps})
        yield Rule("leave_one_out_std", {"ddof": ddof, "eps": eps})
    for ddof, whiten in product((1, 0), (True, False)):
        yield Rule("gdpo", {"ddof": ddof, "eps": 1e-4, "whiten": whiten})


def mistaken() -> Iterator[tuple[Rule, Callable[[Rewards], Array]]]:
    """Yield rules that no project documents, each with its function: the reward less a wrong baseline, divided by 1 or
    by a std. Those that are also in `candidates` are left out."""
    for ddof, eps, over in product((1, 0), (1e-4, 1e-6, 1e-8), ("group", "batch")):
        how = {"ddof": ddof, "eps": eps, "std_over": over}
        yield Rule("group_zscore", how, "without a baseline"), partial(_zscore, baseline=lambda given: 0.0, **how)
    words = "with the mean of the batch as the baseline"
    yield Rule("group_mean", {}, words), lambda given: given.reward_N - _batch_mean(given)
    for ddof, eps in product((1, 0), (1e-4, 1e-6, 1e-8)):
        how = {"ddof": ddof, "eps": eps, "std_over": "group"}
        yield Rule("group_zscore", how, words), partial(_zscore, baseline=_batch_mean, **how)


def changed(given: Rewards) -> Iterator[tuple[str, Rewards]]:
    """Yield the inputs as they are, then inputs that a rule could have got by mistake, each with the words for it."""
    total_N = (given.component_NK @ np.ones(given.component_NK.shape[1])) if given.component_NK.size else given.reward_N
    ones_K = np.ones_like(given.weight_K)
    yield "", given
    if not np.allclose(total_N, given.reward_N):
        yield "with the weights of the rewards ignored", dataclasses.replace(given, reward_N=total_N, weight_K=ones_K)
    sizes = np.unique(_size(given.group_N)).astype(int)
    blocks_N = np.arange(len(given.group_N)) // max(int(sizes[0]), 1) if len(sizes) else given.group_N
    if len(sizes) == 1 and not _same_groups(blocks_N, given.group_N):
        yield "with blocks of neighbouring rows as groups, not prompts", dataclasses.replace(given, group_N=blocks_N)
    for size in (size for size in range(2, len(given.group_N)) if len(sizes) == 1 and size != sizes[0]):
        if len(given.group_N) % size == 0:
            words = f"with blocks of {size} rows as groups instead of {sizes[0]}"
            yield words, dataclasses.replace(given, group_N=np.arange(len(given.group_N)) // size)
    for by, words in ((-1, "of the next row"), (1, "of the row before")):
        moved = {name: np.roll(getattr(given, name), by, 0) for name in ("reward_N", "component_NK")}
        yield f"with the reward {words}", dataclasses.replace(given, **moved)


def _same_groups(a_N: Array, b_N: Array) -> bool:
    pairs = {(int(a), int(b)) for a, b in zip(a_N, b_N, strict=True)}
    return len(pairs) == len(set(a_N.tolist())) == len(set(b_N.tolist()))


def distance(rule: Callable[[Rewards], Array], given: Rewards, advantage_N: Array) -> float:
    """Return the largest deviation as a share of the largest advantage."""
    found_N = rule(given)
    scale = max(float(np.abs(advantage_N).max(initial=0)), float(np.abs(found_N).max(initial=0)), 1e-30)
    return float(np.abs(found_N - advantage_N).max(initial=0)) / scale


def explanations(given: Rewards, advantage_N: Array) -> list[Rule]:
    """Return every rule that explains the advantages; those without a change come first."""
    found = list[Rule]()
    for change, rewards in changed(given):
        for rule in candidates():
            if distance(rule, rewards, advantage_N) <= TOLERANCE:
                found.append(Rule(rule.name, rule.settings, change))
        if found:
            return found
    return [rule for rule, function in mistaken() if distance(function, given, advantage_N) <= TOLERANCE]
