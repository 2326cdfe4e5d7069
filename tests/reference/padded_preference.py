"""Preference losses on padded P x L log-probs in float64, from their papers; no code of `ansatz`.

Axes: P pairs, L columns. `Pair` holds the padded arrays of both sides. Every loss is the mean over pairs. The papers
write them as expectations of probabilities and ratios, and so does this file, where float64 allows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Side:
    """policy: with gradient. All are P x L."""

    policy: Tensor
    ref: Tensor
    mask: Tensor

    @property
    def length(self) -> Tensor:
        return self.mask.sum(1)

    def sum(self, values: Tensor, weight: Tensor | None = None) -> Tensor:
        kept = torch.where(self.mask > 0, values, torch.zeros_like(values))
        return (kept if weight is None else kept * weight).sum(1)


def tail_weights(side: Side, other: Side, tail: float) -> Tensor:
    """LD-DPO (arXiv:2409.06411): tokens beyond the length that both responses have count `tail`."""
    weight = torch.ones_like(side.mask)
    for pair in range(len(weight)):
        public, seen = int(min(side.length[pair], other.length[pair])), 0
        for column in range(weight.shape[1]):
            seen += int(side.mask[pair, column])
            if side.mask[pair, column] and seen > public:
                weight[pair, column] = tail
    return weight


# f of the f-divergences, arXiv:2309.16240. The implicit reward is beta f'(policy / reference).
F_DIVERGENCES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "reverse_kl": lambda u, a: u * u.log(),
    "forward_kl": lambda u, a: -u.log(),
    "js": lambda u, a: u * u.log() - (u + 1) * ((u + 1) / 2).log(),
    "alpha": lambda u, a: (u**a - a * u - (1 - a)) / (a * (a - 1)),  # the paper's alpha is 1 - a
}


def slope_of_f(divergence: str, log_ratio: Tensor, alpha: float) -> Tensor:
    """f'(u) at u = exp(log_ratio), by differentiating f."""
    u = log_ratio.exp()
    f = F_DIVERGENCES[divergence](u, alpha)
    (slope,) = torch.autograd.grad(f.sum(), u, create_graph=True)
    return slope


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + (-x).exp())


def nls(x: Tensor) -> Tensor:
    """-log sigmoid(x)."""
    return -sigmoid(x).log()


def flipped(x: Tensor, e: float) -> Tensor:
    """DPO's loss where a label is wrong with probability e."""
    return (1 - e) * nls(x) + e * nls(-x)


def preference(
    name: str, o: dict[str, Any], chosen: Side, rejected: Side, *, divergence: str = "reverse_kl", alpha: float = 0.5
) -> Tensor:
    """The mean loss over pairs. o: every setting of the loss. alpha: of the divergence.

    `tail` in o: see `tail_weights`.
    """
    tail = o.get("tail")
    weights = (
        (None, None) if tail is None else (tail_weights(chosen, rejected, tail), tail_weights(rejected, chosen, tail))
    )
    logp = [side.sum(side.policy, weight) for side, weight in zip((chosen, rejected), weights, strict=True)]
    gain = [side.sum(side.policy - side.ref, w) for side, w in zip((chosen, rejected), weights, strict=True)]
    length = [chosen.length, rejected.length]
    reward = gain if divergence == "reverse_kl" else [slope_of_f(divergence, each, alpha) for each in gain]
    beta, e = o.get("beta", 1.0), o.get("label_smoothing", 0.0)
    gap = reward[0] - reward[1]
    if name == "dpo":  # arXiv:2305.18290 eq. 7, conservative with e
        loss = flipped(beta * gap, e)
    elif name == "dpo_norm":  # arXiv:2411.15124 sec. 5.1
        loss = flipped(beta * gain[0] / length[0] - beta * gain[1] / length[1], e)
    elif name == "robust":  # arXiv:2403.00409
        loss = ((1 - e) * nls(beta * gap) - e * nls(-beta * gap)) / (1 - 2 * e)
    elif name == "ipo":  # arXiv:2310.12036 eq. 17
        if o["per_token"]:
            gap = gain[0] / length[0] - gain[1] / length[1]
        loss = (gap - 1 / (2 * beta)) ** 2
    elif name == "hinge":  # arXiv:2309.06657
        loss = torch.where(beta * gap < 1, 1 - beta * gap, torch.zeros_like(gap))
    elif name == "cpo":  # arXiv:2401.08417
        loss = flipped(beta * logp[0] - beta * logp[1], e)
    elif name == "simpo":  # arXiv:2405.14734 eq. 6; arXiv:2501.03884 with alpha
        rewards = [each / tokens for each, tokens in zip(logp, length, strict=True)]
        if o["alpha"]:
            rewards = [(1 - each.exp() ** -o["alpha"]) / o["alpha"] for each in rewards]
        loss = flipped(beta * rewards[0] - beta * rewards[1] - o["margin"], e)
    elif name == "orpo":  # arXiv:2403.07691 eq. 7: the log of the odds ratio, p the geometric mean of the tokens
        odds = [(each / tokens).exp() / (1 - (each / tokens).exp()) for each, tokens in zip(logp, length, strict=True)]
        loss = nls((odds[0] / odds[1]).log())
    elif name == "exo":  # arXiv:2402.00856: KL of two distributions over the pair
        policy = torch.stack([beta * reward[0], beta * reward[1]], 1).softmax(1)
        labels = torch.tensor([1 - e, e], dtype=torch.float64)
        loss = (policy * (policy / labels).log()).sum(1)
    elif name == "nca":  # arXiv:2402.05369, two responses
        loss = nls(beta * gain[0]) + 0.5 * (nls(-beta * gain[0]) + nls(-beta * gain[1]))
    elif name == "bco":  # arXiv:2404.04656
        rewards = [beta * gain[0], beta * gain[1]]
        shift = (rewards[0].sum() + rewards[1].sum()).item() / (2 * len(rewards[0])) if o["centered"] else 0.0
        loss = nls(rewards[0] - shift) + nls(-(rewards[1] - shift))
    elif name == "sppo":  # arXiv:2405.00675 with a probability of winning of 1 and 0, over eta^2
        loss = (gain[0] - 0.5 / beta) ** 2 + (gain[1] + 0.5 / beta) ** 2
    elif name == "apo_zero":  # arXiv:2408.06266
        loss = (1 - sigmoid(beta * gain[0])) + sigmoid(beta * gain[1])
    elif name == "apo_down":  # arXiv:2408.06266
        loss = sigmoid(beta * gain[0]) + (1 - sigmoid(beta * gap))
    elif name == "discopop":  # arXiv:2406.08414 (log-ratio modulated loss)
        x = beta * gap
        loss = (1 - sigmoid(x / o["tau"])) * nls(x) + sigmoid(x / o["tau"]) * (-x).exp()
    elif name == "aot":  # arXiv:2406.05882: quantiles of the policy's margin against the reference's
        margin = [float(x) for x in (logp[0] - logp[1]).detach()]
        reference = sorted(float(x) for x in ((logp[0] - gain[0]) - (logp[1] - gain[1])).detach())
        order = sorted(range(len(margin)), key=lambda pair: margin[pair])
        sorted_margin = (logp[0] - logp[1])[order]
        loss = flipped(beta * (sorted_margin - torch.tensor(reference, dtype=torch.float64)), e)
    elif name == "aot_unpaired":  # arXiv:2406.05882
        order = [sorted(range(len(each)), key=lambda pair, each=each: float(each[pair].detach())) for each in gain]
        loss = flipped(beta * (gain[0][order[0]] - gain[1][order[1]]), e)
    else:
        assert name == "likelihood"
        own = chosen.sum(chosen.policy)
        if o["kind"] == "token_mean":
            return -own.sum() / chosen.mask.sum()
        loss = -own if o["kind"] == "sequence_sum" else -own / chosen.length
    return loss.sum() / len(loss)


def kto(o: dict[str, Any], response: Side, mismatched: Side, labels: list[bool]) -> Tensor:
    """The mean over labelled responses of w(y) (1 - v(x, y)), as the documentation of TRL writes arXiv:2402.01306.

    v = sigmoid(beta (log-ratio - KL)) of a desirable response, sigmoid(beta (KL - log-ratio)) of another. KL: the mean
    log-ratio of mismatched responses, a number without a gradient, and not below 0.
    """
    ratios = mismatched.sum(mismatched.policy - mismatched.ref).tolist()
    kl = max(0.0, sum(ratios) / len(ratios))
    losses = [
        o["desirable_weight"] * (1 - sigmoid(o["beta"] * (ratio - kl)))
        if label
        else o["undesirable_weight"] * (1 - sigmoid(o["beta"] * (kl - ratio)))
        for ratio, label in zip(response.sum(response.policy - response.ref), labels, strict=True)
    ]
    return torch.stack(losses).mean()


def bradley_terry(chosen: Tensor, rejected: Tensor, margin: Tensor | None, center: float) -> Tensor:
    """-log P(chosen beats rejected) = -log(e^c / (e^c + e^(r + margin))) (arXiv:2203.02155 eq. 1), plus the square of
    the pair's total."""
    rival = rejected if margin is None else rejected + margin
    wins = chosen.exp() / (chosen.exp() + rival.exp())
    return -wins.log() + center * (chosen**2 + 2 * chosen * rejected + rejected**2)
