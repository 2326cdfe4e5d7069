"""A critic's advantages, returns and loss on padded N x L arrays: float64, plain loops, no code of `ansatz`.

Axes: N rollouts, L response columns. A mask marks the tokens that the policy sampled; tool output and padding are
outside of it. `time` marks the columns at which time passes: the mask, or with tool output every response column.
"""

from __future__ import annotations

import math

Rows = list[list[float]]
Marks = list[list[bool]]


def token_rewards(reward: list[float], time: Marks, kl: Rows, kl_coef: float) -> Rows:
    """The reward of a rollout at its last column, minus kl_coef x the KL of each token."""
    rows = []
    for n, marks in enumerate(time):
        columns = [column for column, inside in enumerate(marks) if inside]
        row = [-kl_coef * value for value in kl[n]]
        if columns:
            row[columns[-1]] += reward[n]
        rows.append(row)
    return rows


def kl(kind: str, old: float, ref: float) -> float:
    """k1, k2 and k3 of one token (joschu.net/blog/kl-approx.html), ratio = ref / old."""
    ratio = math.exp(ref) / math.exp(old)
    return {"k1": -math.log(ratio), "k2": math.log(ratio) ** 2 / 2, "k3": ratio - 1 - math.log(ratio)}[kind]


def gae(rewards: Rows, values: Rows, time: Marks, *, gamma: float, lam: float, lam_length: float | None) -> Rows:
    """arXiv:1506.02438 eq. 16, from the definition: the exponentially weighted mean of the k-step advantages.

    A^(k) = r_t + ... + gamma^(k-1) r_(t+k-1) + gamma^k V_(t+k) - V_t. The last of them ends with the rollout, after
    which V is 0, whether it ended by itself or was truncated; it takes the whole weight that is left.
    lam_length a: lambda = 1 - 1 / (a x length), at least 0 (VAPO, arXiv:2504.05118).
    """
    out = [[0.0] * len(row) for row in rewards]
    for n, marks in enumerate(time):
        columns = [column for column, inside in enumerate(marks) if inside]
        length = len(columns)
        lam_n = lam if lam_length is None else max(1 - 1 / (lam_length * max(length, 1)), 0.0)
        for t in range(length):
            left = length - t
            total = 0.0
            for k in range(1, left + 1):
                advantage = math.fsum(gamma**i * rewards[n][columns[t + i]] for i in range(k))
                advantage += gamma**k * values[n][columns[t + k]] if k < left else 0.0
                advantage -= values[n][columns[t]]
                total += advantage * (lam_n ** (k - 1) if k == left else (1 - lam_n) * lam_n ** (k - 1))
            out[n][columns[t]] = total
    return out


def whitened(values: Rows, mask: Marks, *, keep_mean: bool = False) -> Rows:
    """Mean 0 (or as it was) and sample variance 1 over the tokens of the mask, 1e-8 added to the variance."""
    inside = [x for row, marks in zip(values, mask, strict=True) for x, mark in zip(row, marks, strict=True) if mark]
    mean = math.fsum(inside) / len(inside)
    variance = math.fsum((x - mean) ** 2 for x in inside) / max(len(inside) - 1, 1)
    return [[(x - mean) / math.sqrt(variance + 1e-8) + mean * keep_mean for x in row] for row in values]


def aggregate(losses: Rows, mask: Marks, groups: list[int], *, kind: str, max_tokens: float = 1.0) -> float:
    """Token losses as one number, in the words of verl's loss_agg_mode and of ours."""
    kept = [[x for x, mark in zip(row, marks, strict=True) if mark] for row, marks in zip(losses, mask, strict=True)]
    tokens = [x for row in kept for x in row]
    if kind == "token_mean":
        return math.fsum(tokens) / len(tokens)
    if kind == "token_sum":
        return math.fsum(tokens) / max_tokens
    if kind == "sequence_mean":
        return math.fsum(math.fsum(row) / len(row) for row in kept if row) / len(kept)
    if kind == "sequence_mean_nonempty":
        means = [math.fsum(row) / len(row) for row in kept if row]
        return math.fsum(means) / len(means)
    if kind == "sequence_sum":
        return math.fsum(tokens) / len(kept)
    if kind == "fixed_length":
        return math.fsum(tokens) / len(kept) / max_tokens
    assert kind == "prompt_mean"
    by_prompt: dict[int, list[float]] = {}
    for row, group in zip(kept, groups, strict=True):
        by_prompt.setdefault(group, []).extend(row)
    return math.fsum(math.fsum(row) / len(row) for row in by_prompt.values() if row) / len(by_prompt)


def value_loss(value: float, old: float, target: float, *, clip: float | None) -> tuple[float, float]:
    """The squared error of one token, or the larger of it and that of the clipped value (PPO2), and its slope.

    The slope is 0 where the clipped value, a constant there, has the larger error.
    """
    error, slope = (value - target) ** 2, 2 * (value - target)
    if clip is None or abs(value - old) <= clip:
        return error, slope
    clipped = old + math.copysign(clip, value - old)
    return ((clipped - target) ** 2, 0.0) if (clipped - target) ** 2 > error else (error, slope)
