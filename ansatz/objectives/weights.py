"""Per-token weights: how token losses become one number.

Axes: N rollouts of the minibatch, T its tokens that count in the loss. Weights are computed once, in float64, on the
whole minibatch, so the loss of a microbatch is a plain weighted sum and microbatches add up exactly. The formulas call
the minibatch the step, which it is with one update per step. Each docstring says what the weights sum to. "Unbiased"
means that no token's weight depends on the length of its own rollout, so the policy gradient is not biased by it.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ansatz.objectives import segments
from ansatz.objectives.components import Function, formula
from ansatz.registry import Registry

WEIGHTS: Registry[Function] = Registry("weights")
Counted = Literal["all", "nonempty"]

_EPS = {"eps": ", {eps} added to the tokens"}


@WEIGHTS.register("token_mean", "token-mean", "dapo", "bnpo")
@formula("1 / response tokens of the step", notes=_EPS)
def token_mean(segment_T: Tensor, *, eps: float = 0.0) -> Tensor:
    """Every token counts the same (DAPO, arXiv:2503.14476 eq. 12). Sums to 1. eps: added to the denominator."""
    return _filled(segment_T, 1 / (max(len(segment_T), 1) + eps))


@WEIGHTS.register("token_sum", "token-sum")
@formula("1 / {divisor}")
def token_sum(segment_T: Tensor, *, divisor: float = 1.0) -> Tensor:
    """The sum divided by a constant, so the update grows with the batch. Sums to the number of tokens / divisor."""
    return _filled(segment_T, 1 / divisor)


@WEIGHTS.register("sequence_mean", "seq-mean-token-mean", "grpo")
@formula("1 / ({rollouts} rollouts of the step x response tokens of the rollout)", notes=_EPS)
def sequence_mean(segment_T: Tensor, num_rollouts: int, *, rollouts: Counted = "all", eps: float = 0.0) -> Tensor:
    """Every rollout counts the same, whatever its length (GRPO, arXiv:2402.03300 eq. 3).

    Sums to 1 if no rollout is empty.

    rollouts: "all", or "nonempty" to not count rollouts without a token. eps: added to each length.
    """
    length_N = segments.count(segment_T, num_rollouts)
    return 1 / (_counted(length_N, rollouts) * (length_N[segment_T].double() + eps))


@WEIGHTS.register("sequence_sum", "seq-mean-token-sum", "luspo")
@formula("1 / {rollouts} rollouts of the step")
def sequence_sum(segment_T: Tensor, num_rollouts: int, *, rollouts: Counted = "all") -> Tensor:
    """The mean over rollouts of token sums: unbiased, long rollouts count for more. Sums to the mean length."""
    return _filled(segment_T, 1 / _counted(segments.count(segment_T, num_rollouts), rollouts))


@WEIGHTS.register("fixed_length", "seq-mean-token-sum-norm", "dr_grpo")
@formula("1 / ({rollouts} rollouts of the step x {max_tokens})")
def fixed_length(segment_T: Tensor, num_rollouts: int, *, max_tokens: int | float, rollouts: Counted = "all") -> Tensor:
    """`sequence_sum` / max_tokens, a constant such as the length limit: unbiased (Dr. GRPO, arXiv:2503.20783 sec. 3.2).

    Sums to the mean length / max_tokens.
    """
    counted = _counted(segments.count(segment_T, num_rollouts), rollouts)
    return _filled(segment_T, 1 / (counted * max_tokens))


@WEIGHTS.register("prompt_mean")
@formula("1 / (prompts of the step x response tokens of the prompt)")
def prompt_mean(segment_T: Tensor, group_N: Tensor) -> Tensor:
    """Every prompt counts the same, and so does every token of a prompt. Sums to 1 if every prompt has a token."""
    prompt_N, prompts = segments.renumbered(group_N)
    prompt_T = prompt_N[segment_T]
    return 1 / (prompts * segments.count(prompt_T, prompts)[prompt_T].double())


def _counted(length_N: Tensor, rollouts: Counted) -> int:
    return max(int((length_N > 0).sum()) if rollouts == "nonempty" else len(length_N), 1)


def _filled(segment_T: Tensor, value: float) -> Tensor:
    return torch.full(segment_T.shape, value, device=segment_T.device, dtype=torch.float64)
