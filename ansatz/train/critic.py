"""A critic: a copy of the policy's transformer with a linear value in place of its output embedding.

Axes: T flat tokens, H hidden. The value at a response token is that of the state before it: what the critic expects of
the prompt and the tokens so far, in units of reward.
"""

from __future__ import annotations

import copy
import dataclasses

import torch
from torch import Tensor, nn

from ansatz.models.load import Policy
from ansatz.train.batch import PackedRollouts


class Critic(nn.Module):
    """Starts as the policy's own weights under a zero head, so its first values are 0 everywhere. Weights that the
    policy keeps frozen (under its adapters) are shared with it."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        frozen = [parameter for parameter in policy.model.parameters() if not parameter.requires_grad]
        self.transformer = copy.deepcopy(policy.model, {id(parameter): parameter for parameter in frozen})
        self._policy = dataclasses.replace(policy, model=self.transformer)
        self.value = nn.Linear(policy.head.weight.shape[1], 1, device=policy.device)
        nn.init.zeros_(self.value.weight)
        nn.init.zeros_(self.value.bias)

    @property
    def parallel_microbatches(self) -> int:
        """As many as of a policy of its size."""
        return self._policy.parallel_microbatches

    def values(self, layout: PackedRollouts) -> Tensor:
        """[T], float32; 0 outside the layout's mask."""
        before_MH = self._policy.packed_hidden(
            layout.token_T,
            layout.position_T,
            layout.segment_T,
            prompt_id_T=layout.prompt_id_T,
            at_M=layout.mask_T.nonzero().squeeze(-1) - 1,
        )
        value_M = self.value(before_MH.to(self.value.weight.dtype)).squeeze(-1).float()
        return torch.zeros(len(layout.token_T), device=value_M.device).masked_scatter(layout.mask_T, value_M)
