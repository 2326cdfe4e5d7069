"""Advantages that differ between the tokens of a rollout, and the whitening of any advantages.

Axes: N rollouts, T response tokens. `token_reward_T` holds the reward at a rollout's last token (or dense rewards),
minus the KL if the recipe puts it in the reward.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ansatz.objectives import segments
from ansatz.objectives.advantages import ADVANTAGES
from ansatz.objectives.components import Function, formula
from ansatz.registry import Registry

WHITENS: Registry[Function] = Registry("whiten")
REWARD_WHITENS: Registry[Function] = Registry("reward_whiten")
EpsIn = Literal["var", "std", "floor"]

_WHITENED = {
    "center": {True: "(A - mean)", False: "A"},
    "scale": {True: " / {eps_in}", False: ""},
    "eps_in": {
        "var": "sqrt(var (ddof {ddof}) + {eps})",
        "std": "(std (ddof {ddof}) + {eps})",
        "floor": "sqrt(max(var (ddof {ddof}), {eps}))",
    },
}
_MEAN_EPS = ", {mean_eps} added to the number that means divide by"


@ADVANTAGES.register("reward_to_go", "reinforce_pp")
@formula("A = rewards from the token on, discounted by {gamma} a token")
def reward_to_go(token_reward_T: Tensor, segment_T: Tensor, *, gamma: float = 1.0) -> Tensor:
    """sum_{s >= t} gamma^(s - t) r_s: the return of a token (REINFORCE++, arXiv:2501.03262, without its whitening)."""
    return segments.discounted_sum(token_reward_T, segment_T, gamma)


@ADVANTAGES.register("remax_to_go")
@formula("A = rewards from the token on - reward of a greedy rollout of the prompt")
def remax_to_go(token_reward_T: Tensor, baseline_N: Tensor, segment_T: Tensor) -> Tensor:
    """`remax` for dense rewards: the reward to go minus the greedy rollout's reward, per token (arXiv:2310.10505)."""
    return segments.discounted_sum(token_reward_T, segment_T, 1.0) - baseline_N[segment_T]


@ADVANTAGES.register("gae", "ppo")
@formula(
    "A = generalized advantage of the critic (gamma {gamma}, lambda {lam_length})",
    words={"lam_length": lambda per: "{lam}" if per is None else f"1 - 1 / ({per} x response tokens)"},
)
def gae(
    token_reward_T: Tensor,
    value_T: Tensor,
    segment_T: Tensor,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    lam_length: float | None = None,
) -> Tensor:
    """A_t = delta_t + gamma lambda A_{t+1}, delta_t = r_t + gamma V_{t+1} - V_t, V = 0 after the end
    (arXiv:1506.02438 eq. 16).

    gamma = lambda = 1 is the reward-to-go minus the value. lam_length a: lambda = 1 - 1 / (a x response length)
    instead of lam (VAPO, arXiv:2504.05118).
    """
    delta_T = token_reward_T + gamma * segments.next_in_segment(value_T, segment_T) - value_T
    factor: float | Tensor = gamma * lam
    if lam_length is not None:
        length_S = segments.count(segment_T, segments.num_segments(segment_T)).to(value_T.dtype)
        factor = gamma * (1 - 1 / (lam_length * length_S.clamp(min=1))).clamp(min=0)
    return segments.discounted_sum(delta_T, segment_T, factor)


@ADVANTAGES.register("process")
@formula("A = sum of the z-scored (ddof {ddof}, eps {eps}) rewards of the steps that end at or after the token")
def process(
    step_reward_T: Tensor, step_end_T: Tensor, segment_T: Tensor, group_N: Tensor, *, ddof: int = 1, eps: float = 1e-6
) -> Tensor:
    """GRPO with process supervision (arXiv:2402.03300 sec. 4.1.3): step rewards are pooled over the prompt's group.

    step_reward_T: the reward of a step at its last token, ignored elsewhere; step_end_T: True at those tokens.
    """
    ends_T = step_end_T.bool()
    group_T = group_N[segment_T]
    normal_T = torch.zeros_like(step_reward_T)
    scores_S = ADVANTAGES.get("group_zscore")(step_reward_T[ends_T], group_T[ends_T], ddof=ddof, eps=eps)
    normal_T[ends_T] = scores_S
    return segments.discounted_sum(normal_T, segment_T, 1.0)


@REWARD_WHITENS.register("token_rewards", "tokens")
@formula(
    "r = (r - mean) / sqrt(var (ddof {ddof}) + {eps}) over response tokens", notes={"keep_mean": ", plus the mean"}
)
def token_rewards(token_reward_T: Tensor, *, keep_mean: bool = True, ddof: int = 1, eps: float = 1e-8) -> Tensor:
    """Token rewards, the KL included, at variance 1 before a critic's advantages (PPO for language models).

    keep_mean: add the mean back after the division. Without it, every token would be rewarded relative to the mean, and
    a longer response would collect more of these differences. Equal rewards keep their value, or become 0.
    """
    centered_T = _centered(token_reward_T, 0.0)
    whitened_T = centered_T / _divisor(token_reward_T, True, ddof, eps, "var", 0.0)
    return whitened_T + (token_reward_T - centered_T) if keep_mean else whitened_T


@WHITENS.register("tokens")
@formula("A = {center}{scale} over response tokens", words=_WHITENED, notes={"mean_eps": _MEAN_EPS})
def tokens(
    advantage_T: Tensor,
    *,
    center: bool = True,
    scale: bool = True,
    ddof: int = 1,
    eps: float = 1e-8,
    eps_in: EpsIn = "var",
    mean_eps: float = 0.0,
) -> Tensor:
    """Mean 0 and variance 1 over all response tokens of the step, so long rollouts count for more (PPO practice).

    center, scale: whether to subtract the mean, whether to divide. eps_in: "var", 1/sqrt(var + eps); "std", 1/(std +
    eps); "floor", 1/sqrt(max(var, eps)). mean_eps: added to the number of tokens that means divide by. Equal
    advantages become 0.
    """
    return _whitened(advantage_T, center, mean_eps) / _divisor(advantage_T, scale, ddof, eps, eps_in, mean_eps)


@WHITENS.register("rollouts")
@formula("A = {center}{scale} over rollouts", words=_WHITENED, notes={"mean_eps": _MEAN_EPS})
def rollouts(
    advantage_N: Tensor,
    *,
    center: bool = True,
    scale: bool = True,
    ddof: int = 1,
    eps: float = 1e-8,
    eps_in: EpsIn = "var",
    mean_eps: float = 0.0,
) -> Tensor:
    """The same over rollouts. Each counts once; for components with one number per rollout."""
    return _whitened(advantage_N, center, mean_eps) / _divisor(advantage_N, scale, ddof, eps, eps_in, mean_eps)


def _whitened(values: Tensor, center: bool, mean_eps: float) -> Tensor:
    return _centered(values, mean_eps) if center else values


def _divisor(values: Tensor, scale: bool, ddof: int, eps: float, eps_in: EpsIn, mean_eps: float) -> Tensor:
    """Return the divisor of whitening: 1 without `scale`, and where there is neither spread nor eps."""
    centered, count = _centered(values, mean_eps), len(values)
    if not scale:
        return torch.ones_like(values)
    var = centered.square().sum() / (count + mean_eps) * count / max(count - ddof, 1)
    divisor = {"var": (var + eps).sqrt(), "std": var.sqrt() + eps, "floor": var.clamp(min=eps).sqrt()}[eps_in]
    return torch.where(divisor > 0, divisor, torch.ones_like(divisor)).expand_as(values)


def _centered(values: Tensor, mean_eps: float) -> Tensor:
    """Subtract the mean of all values; exactly 0 if all are equal."""
    if len(values) == 0 or values.max() == values.min():
        return torch.zeros_like(values)
    return values - values.sum() / (len(values) + mean_eps)
