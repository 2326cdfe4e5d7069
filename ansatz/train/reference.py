"""The reference: the model that a KL penalty keeps the policy near. It is not trained."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch
from torch import nn

from ansatz.models.load import Policy


def frozen_copy(policy: Policy, dtype: torch.dtype) -> Policy:
    """A copy of the policy in dtype that is not trained."""
    copies: dict[int, Any] = {
        id(parameter): nn.Parameter(parameter.detach().to(dtype, copy=True), requires_grad=False)
        for parameter in policy.model.parameters()
    }
    return dataclasses.replace(policy, model=copy.deepcopy(policy.model, copies))
