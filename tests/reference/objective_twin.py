"""Slow twins of the objectives: plain Python floats and loops, written from the papers' formulas; no torch, no ansatz.

A rollout is a dict of equally long lists, one entry a response token. Group statistics take the list of one group's
rewards.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

Rollout = dict[str, list[float]]


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def std(values: Sequence[float], ddof: int) -> float:
    middle = mean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - ddof))


# Advantages of one group ------------------------------------------------------------------------------------------


def group_mean(rewards: Sequence[float]) -> list[float]:
    """Dr. GRPO, arXiv:2503.20783."""
    return [reward - mean(rewards) for reward in rewards]


def group_zscore(rewards: Sequence[float], ddof: int, eps: float) -> list[float]:
    """GRPO, arXiv:2402.03300 sec. 4.1.2."""
    return [(reward - mean(rewards)) / (std(rewards, ddof) + eps) for reward in rewards]


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """RLOO, arXiv:2402.14740."""
    return [reward - mean([*rewards[:i], *rewards[i + 1 :]]) for i, reward in enumerate(rewards)]


def leave_one_out_std(rewards: Sequence[float], ddof: int, eps: float) -> list[float]:
    out = []
    for i, reward in enumerate(rewards):
        others = [*rewards[:i], *rewards[i + 1 :]]
        spread = 0.0 if len(set(others)) == 1 else std(others, ddof)
        out.append((reward - mean(others)) / (spread + eps if spread else 1.0))
    return out


def mean_ratio(rewards: Sequence[float], eps: float) -> list[float]:
    """MaxRL; for rewards >= 0 that are not all 0."""
    return [(reward - mean(rewards)) / (mean(rewards) + eps) for reward in rewards]


def opo(rewards: Sequence[float], lengths: Sequence[int]) -> list[float]:
    """arXiv:2505.23585: the baseline weighs rewards by length."""
    baseline = math.fsum(r * n for r, n in zip(rewards, lengths, strict=True)) / sum(lengths)
    return [reward - baseline for reward in rewards]


def log_partition(rewards: Sequence[float], tau: float) -> list[float]:
    """Kimi k1.5, arXiv:2501.12599: r - tau log Z."""
    return [reward - tau * math.log(mean([math.exp(r / tau) for r in rewards])) for reward in rewards]


def pass_at_k(rewards: Sequence[float], k: int) -> list[float]:
    """arXiv:2508.10751 from its definition: every draw of k is one sample of pass@k, a rollout takes the mean of its
    draws' z-scores (population std)."""
    draws = list(itertools.combinations(range(len(rewards)), k))
    scores = [max(rewards[i] for i in draw) for draw in draws]
    spread = std(scores, 0)
    if spread == 0:
        return [0.0] * len(rewards)
    return [
        mean([(score - mean(scores)) / spread for draw, score in zip(draws, scores, strict=True) if i in draw])
        for i in range(len(rewards))
    ]


# Advantages of one rollout's tokens --------------------------------------------------------------------------------


def reward_to_go(rewards: Sequence[float], gamma: float) -> list[float]:
    return [math.fsum(gamma ** (s - t) * rewards[s] for s in range(t, len(rewards))) for t in range(len(rewards))]


def gae(rewards: Sequence[float], values: Sequence[float], gamma: float, lam: float) -> list[float]:
    """arXiv:1506.02438 eq. 16, as the explicit sum over l of (gamma lambda)^l delta_{t+l}."""
    following = [*values[1:], 0.0]
    deltas = [r + gamma * after - v for r, v, after in zip(rewards, values, following, strict=True)]
    return reward_to_go(deltas, gamma * lam)


def process(
    step_rewards: Sequence[Sequence[float]], step_ends: Sequence[Sequence[int]], lengths: Sequence[int]
) -> list:
    """arXiv:2402.03300 sec. 4.1.3, z-scores with the sample std."""
    pooled = [reward for rewards in step_rewards for reward in rewards]
    middle, spread = mean(pooled), std(pooled, 1)
    return [
        [
            math.fsum((r - middle) / spread for r, end in zip(rewards, ends, strict=True) if end >= t)
            for t in range(length)
        ]
        for rewards, ends, length in zip(step_rewards, step_ends, lengths, strict=True)
    ]


def whitened(values: Sequence[float]) -> list[float]:
    return [(value - mean(values)) / std(values, 1) for value in values]


# Ratios, surrogates, KL -------------------------------------------------------------------------------------------


def log_ratios(rollout: Rollout, kind: str) -> list[float]:
    """log rho at each token: its own, the rollout's mean (GSPO eq. 7), or the rollout's sum."""
    own = [p - q for p, q in zip(rollout["policy"], rollout["old"], strict=True)]
    return {"token": own, "sequence": [mean(own)] * len(own), "product": [math.fsum(own)] * len(own)}[kind]


def clip(log_ratio: float, advantage: float, low: float, high: float) -> float:
    """arXiv:1707.06347 eq. 7."""
    rho = math.exp(log_ratio)
    return -min(rho * advantage, min(max(rho, 1 - low), 1 + high) * advantage)


def dual_clip(log_ratio: float, advantage: float, low: float, high: float, dual: float) -> float:
    """arXiv:1912.09729: for A < 0 the objective is max(min(...), c A)."""
    inner = -clip(log_ratio, advantage, low, high)
    return -(max(inner, dual * advantage) if advantage < 0 else inner)


def two_sided(log_ratio: float, advantage: float, low: float, high: float, delta: float) -> float:
    """arXiv:2505.07291."""
    rho = math.exp(log_ratio)
    return -min(min(rho, delta) * advantage, min(max(rho, 1 - low), 1 + high) * advantage)


def cispo_gradient(log_ratio: float, advantage: float, floor: float, cap: float) -> float:
    """d loss / d log policy of arXiv:2506.13585: the clipped ratio is a constant."""
    return -min(max(math.exp(log_ratio), floor), cap) * advantage


def sapo(log_ratio: float, advantage: float, tau_pos: float, tau_neg: float) -> float:
    """arXiv:2511.20347."""
    tau = tau_pos if advantage > 0 else tau_neg
    return -advantage * 4 / tau / (1 + math.exp(-tau * (math.exp(log_ratio) - 1)))


def gmpo(ratios: Sequence[float], advantage: float, low: float, high: float) -> float:
    """One rollout's loss of arXiv:2507.20673, from its log ratios."""
    sign = 1 if advantage > 0 else -1
    clipped = [sign * min(sign * x, sign * min(max(x, -low), high)) for x in ratios]
    return -advantage * math.prod(math.exp(x) for x in clipped) ** (1 / len(clipped))


def k1(policy: float, ref: float) -> float:
    return policy - ref


def k2(policy: float, ref: float) -> float:
    return (policy - ref) ** 2 / 2


def k3(policy: float, ref: float) -> float:
    return math.exp(ref - policy) - 1 - (ref - policy)


# Aggregation ------------------------------------------------------------------------------------------------------


def token_mean(losses: Sequence[Sequence[float]]) -> float:
    return mean([x for rollout in losses for x in rollout])


def sequence_mean(losses: Sequence[Sequence[float]]) -> float:
    return mean([mean(rollout) for rollout in losses])


def sequence_sum(losses: Sequence[Sequence[float]]) -> float:
    return mean([math.fsum(rollout) for rollout in losses])


def fixed_length(losses: Sequence[Sequence[float]], max_tokens: int) -> float:
    return sequence_sum(losses) / max_tokens


def prompt_mean(losses: Sequence[Sequence[float]], groups: Sequence[int]) -> float:
    by_prompt: dict[int, list[float]] = {}
    for rollout, group in zip(losses, groups, strict=True):
        by_prompt.setdefault(group, []).extend(rollout)
    return mean([mean(tokens) for tokens in by_prompt.values()])
