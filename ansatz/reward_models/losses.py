"""The losses of reward models on the scores of responses or of steps.

Axes: N responses, S reasoning steps, P pairs of a right and a wrong response to one prompt.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ansatz.objectives.preference import bradley_terry


def pairs_of_groups(label_N: Tensor, group_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return (better_P, worse_P): every pair of responses to one prompt with different labels, the higher first."""
    same_NN = group_N[:, None] == group_N
    better_P, worse_P = (same_NN & (label_N[:, None] > label_N)).nonzero(as_tuple=True)
    return better_P, worse_P


def pair_loss(score_N: Tensor, label_N: Tensor, group_N: Tensor, *, num_pairs: int) -> Tensor:
    """Sum -log sigmoid(better - worse) over pairs, divided by num_pairs (Bradley-Terry, arXiv:2203.02155 eq. 1).

    num_pairs: of the whole batch, so that the losses of microbatches of whole groups add up. 0 without a pair.
    """
    better_P, worse_P = pairs_of_groups(label_N, group_N)
    return bradley_terry(score_N[better_P], score_N[worse_P]).sum() / max(num_pairs, 1)


def label_loss(score_S: Tensor, label_S: Tensor, *, num_labels: int) -> Tensor:
    """Sum the cross-entropies between sigmoid(score) and labels in 0..1, divided by num_labels.

    With responses this is correctness as a class (arXiv:2110.14168); with steps the process model of Math-Shepherd
    (arXiv:2312.08935, eq. 2), whose soft labels are fractions. num_labels: of the whole batch.
    """
    loss = F.binary_cross_entropy_with_logits(score_S, label_S.to(score_S.dtype), reduction="sum")
    return loss / max(num_labels, 1)
