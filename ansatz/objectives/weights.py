"""Per-token weights: how token losses become one number.

Axes: N rollouts of the step, T response tokens. Weights are computed once on the whole step's batch (or the minibatch of an
update), so the loss of any slice is a plain weighted sum and slices add up exactly. Each says what its weights sum to.
Weights are made in float64; `Objective.token_weights` casts them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ansatz.objectives import segments
from ansatz.objectives.pieces import Function, formula
from ansatz.registry import Registry

WEIGHTS: Registry[Function] = Registry("weights")


@WEIGHTS.register("token_mean", "token-mean", "dapo", "bnpo")
@formula("1 / response tokens of the step")
def token_mean(segment_T: Tensor, *, eps: float = 0.0) -> Tensor:
    """Every token counts the same (DAPO, arXiv:2503.14476 eq. 12). Sums to 1. eps: added to the denominator."""
    return _filled(segment_T, 1 / (max(len(segment_T), 1) + eps))


@WEIGHTS.register("sequence_mean", "seq-mean-token-mean", "grpo")
@formula("1 / ({rollouts} rollouts of the step x response tokens of the rollout)")
def sequence_mean(segment_T: Tensor, num_rollouts: int, *, rollouts: str = "all", eps: float = 0.0) -> Tensor:
    """Every rollout counts the same, whatever its length (GRPO, arXiv:2402.03300). Sums to 1 without empty rollouts.

    rollouts: "all", or "nonempty" to leave rollouts without a token out of the count. eps: added to each length.
    """
    length_N = segments.count(segment_T, num_rollouts)
    counted = int((length_N > 0).sum()) if rollouts == "nonempty" else num_rollouts
    return 1 / (max(counted, 1) * (length_N[segment_T].double() + eps))


@WEIGHTS.register("fixed_length", "seq-mean-token-sum-norm", "dr_grpo")
@formula("1 / (rollouts of the step x {max_tokens})")
def fixed_length(segment_T: Tensor, num_rollouts: int, *, max_tokens: int) -> Tensor:
    """Every token counts 1 / max_tokens of a rollout: unbiased in length (Dr. GRPO, arXiv:2503.20783 sec. 3.2).

    max_tokens: a constant such as max_response_tokens. Sums to the mean length / max_tokens.
    """
    return _filled(segment_T, 1 / (max(num_rollouts, 1) * max_tokens))


def _filled(segment_T: Tensor, value: float) -> Tensor:
    return torch.full(segment_T.shape, value, device=segment_T.device, dtype=torch.float64)
