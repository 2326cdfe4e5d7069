"""How well a policy predicts demonstrations that it is not trained on: loss and token accuracy, without sampling.

Axes: T flat tokens, M response tokens, H hidden.
"""

from __future__ import annotations

import torch

from ansatz.models.load import Policy
from ansatz.models.logps import chunked_logps, most_likely
from ansatz.models.threads import parallel_map
from ansatz.track.measurements import Measurements, mean, merge
from ansatz.train.packed import PackedRollouts, select_rollouts
from ansatz.train.ranks import ONE_RANK, Ranks, split_for_rank


def measure_demonstrations(
    policy: Policy, packed: PackedRollouts, *, tokens_per_microbatch: int, ranks: Ranks = ONE_RANK
) -> Measurements:
    """sft/heldout_loss and sft/heldout_accuracy over the response tokens, each given the true ones before it.

    ranks: each computes its share, and all get the measurements of the whole.
    """

    def measure(segments: torch.Tensor) -> Measurements:
        part = select_rollouts(packed, segments)
        target_M = part.token_T[part.mask_T]
        with torch.no_grad():
            logp_M, hit_M = policy.run(lambda: _predictions(policy, part, target_M))
        return {
            "sft/heldout_loss": mean(-float(logp_M.sum()), len(target_M)),
            "sft/heldout_accuracy": mean(float(hit_M.sum()), len(target_M)),
        }

    workers = policy.parallel_microbatches
    microbatches, num_counted = split_for_rank(packed, tokens_per_microbatch, ranks, multiple=workers)
    measured = list(parallel_map(measure, microbatches, workers))[:num_counted]
    return merge(each for part in ranks.gather(measured) for each in part)


def _predictions(policy: Policy, part: PackedRollouts, target_M: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The log-probs of the targets, and whether each is the most likely token."""
    hidden_MH = policy.packed_hidden(
        part.token_T,
        part.position_T,
        part.segment_T,
        prompt_id_T=part.prompt_id_T,
        at_M=part.mask_T.nonzero().squeeze(-1) - 1,
    )
    logp_M, _ = chunked_logps(hidden_MH, policy.head.weight, target_M)
    return logp_M, most_likely(hidden_MH, policy.head.weight) == target_M
