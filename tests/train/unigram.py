"""A policy that can be computed by hand: two tokens, 0 with probability 1/4 and 1 with probability 3/4, everywhere."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from ansatz.models.load import Policy

LOG_P = (math.log(1 / 4), math.log(3 / 4))
ENTROPY = -(LOG_P[0] / 4 + 3 * LOG_P[1] / 4)


class _Model(nn.Module):
    """Two logits. The hidden state is always 1."""

    config = SimpleNamespace(hidden_size=1)  # nothing else of a real model

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(1, 2, bias=False)

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.head.weight.dtype

    def get_output_embeddings(self) -> nn.Linear:
        return self.head


class UnigramPolicy(Policy):
    def packed_hidden(self, token_T: Tensor, *args: Any, at_M: Tensor | None = None, **kwargs: Any) -> Tensor:
        return torch.ones(len(token_T) if at_M is None else len(at_M), 1)


def set_logits(policy: Policy, *logits: float) -> None:
    with torch.no_grad():
        policy.head.weight.copy_(torch.tensor(logits)[:, None])


def unigram_policy(*logits: float) -> UnigramPolicy:
    policy = UnigramPolicy(model=_Model(), tokenizer=None, max_context=99, end_ids=(1,), path="")
    set_logits(policy, *logits)
    return policy
