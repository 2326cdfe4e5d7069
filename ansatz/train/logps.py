"""Log-probs and KLs of packed rollouts under a model, and how well it predicts demonstrations; without sampling.

Axes: N rollouts, T flat tokens, M sampled tokens, H hidden, K temperatures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ansatz.models.load import Policy
from ansatz.models.logps import chunked_kl, chunked_logps, most_likely, token_logps
from ansatz.models.threads import parallel_map
from ansatz.track.measurements import Measurements, mean, merge
from ansatz.train.packed import PackedRollouts, select_rollouts
from ansatz.train.ranks import ONE_RANK, Ranks, scatter_shares, split_for_rank


def logps_of(
    policy: Policy,
    packed: PackedRollouts,
    *,
    tokens_per_microbatch: int,
    temperature: float = 1.0,
    ranks: Ranks = ONE_RANK,
) -> Tensor:
    """Log-probs [T] without gradient, one microbatch after the other; 0 outside the mask."""
    return without_gradient(
        lambda part: token_logps(policy, part, temperature=temperature)[0],
        packed,
        tokens_per_microbatch,
        workers=policy.parallel_microbatches,
        ranks=ranks,
    )


def exact_kl(policy: Policy, reference: Policy, packed: PackedRollouts, *, temperature: float) -> Tensor:
    """KL [T] of policy to reference over the whole vocabulary, with gradient; 0 outside the mask."""
    return reference.run(lambda: policy.run(lambda: _exact_kl(policy, reference, packed, temperature)))


def _exact_kl(policy: Policy, reference: Policy, packed: PackedRollouts, temperature: float) -> Tensor:
    tokens = packed.token_T, packed.position_T, packed.segment_T
    at_M = packed.sampled_mask_T.nonzero().squeeze(-1) - 1
    with torch.no_grad():
        reference_MH = reference.packed_hidden(*tokens, prompt_id_T=packed.prompt_id_T, at_M=at_M)
    kl_M = chunked_kl(
        policy.packed_hidden(*tokens, prompt_id_T=packed.prompt_id_T, at_M=at_M),
        policy.head.weight,
        reference_MH,
        reference.head.weight,
        temperature=temperature,
        softcap=policy.softcap,
    )
    return torch.zeros(packed.num_tokens, device=kl_M.device).masked_scatter(packed.sampled_mask_T, kl_M)


def without_gradient(
    function: Callable[[PackedRollouts], Tensor],
    packed: PackedRollouts,
    tokens_per_microbatch: int,
    *,
    workers: int,
    ranks: Ranks,
) -> Tensor:
    """Return function(packed), whose first axis is T, computed microbatch by microbatch, `workers` of them in parallel;
    each rank computes its share."""
    function = torch.no_grad()(function)
    microbatches, num_counted = split_for_rank(packed, tokens_per_microbatch, ranks, multiple=workers)
    values = list(parallel_map(lambda segments: function(select_rollouts(packed, segments)), microbatches, workers))
    if ranks.size == 1:
        return torch.cat(values)
    return scatter_shares(packed, list(zip(microbatches, values, strict=True))[:num_counted], ranks)


def measure_demonstrations(
    policy: Policy, packed: PackedRollouts, *, tokens_per_microbatch: int, ranks: Ranks = ONE_RANK
) -> Measurements:
    """sft/heldout_loss and sft/heldout_accuracy over the response tokens, each given the true ones before it.

    ranks: each computes its share, and all get the measurements of the whole.
    """

    def measure(segments: Tensor) -> Measurements:
        part = select_rollouts(packed, segments)
        target_M = part.token_T[part.sampled_mask_T]
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


def response_logps(
    policy: Policy,
    packed: PackedRollouts,
    *,
    temperatures: Sequence[float],
    tokens_per_microbatch: int,
    ranks: Ranks = ONE_RANK,
) -> list[list[float]]:
    """Compute the log-prob of each response at each temperature: nats, one list of K for each sample, in the order of
    the samples that were packed.

    All temperatures share one forward pass. The log-probs of the tokens are added in float64. ranks: each computes its
    share, and all get the log-probs of all responses.
    """

    def measure(segments: Tensor) -> list[list[float]]:
        part = select_rollouts(packed, segments)
        with torch.no_grad():
            logp_KM = policy.run(lambda: _target_logps(policy, part, temperatures))
        logp_KN = torch.zeros(len(temperatures), part.num_rollouts, dtype=torch.float64, device=logp_KM.device)
        logp_KN.index_add_(1, part.segment_T[part.sampled_mask_T], logp_KM.double())
        return [[number, *logps] for number, logps in zip(part.sample_N.tolist(), logp_KN.T.tolist(), strict=True)]

    workers = policy.parallel_microbatches
    microbatches, num_counted = split_for_rank(packed, tokens_per_microbatch, ranks, multiple=workers)
    measured = list(parallel_map(measure, microbatches, workers))[:num_counted]
    rows = sorted(row for part in ranks.gather(measured) for rows in part for row in rows)
    return [logps for _, *logps in rows]


def _target_logps(policy: Policy, part: PackedRollouts, temperatures: Sequence[float]) -> Tensor:
    """Compute the log-probs [K, M] of the tokens in the mask, over the whole vocabulary."""
    before_M = part.sampled_mask_T.nonzero().squeeze(-1) - 1
    hidden_MH = policy.packed_hidden(
        part.token_T, part.position_T, part.segment_T, prompt_id_T=part.prompt_id_T, at_M=before_M
    )
    weight_VH, target_M = policy.head.weight, part.token_T[part.sampled_mask_T]
    return torch.stack(
        [
            chunked_logps(hidden_MH, weight_VH, target_M, temperature=temperature, softcap=policy.softcap)[0]
            for temperature in temperatures
        ]
    )


def _predictions(policy: Policy, part: PackedRollouts, target_M: Tensor) -> tuple[Tensor, Tensor]:
    """The log-probs of the targets, and whether each is the most likely token."""
    hidden_MH = policy.packed_hidden(
        part.token_T,
        part.position_T,
        part.segment_T,
        prompt_id_T=part.prompt_id_T,
        at_M=part.sampled_mask_T.nonzero().squeeze(-1) - 1,
    )
    logp_M, _ = chunked_logps(hidden_MH, policy.head.weight, target_M)
    return logp_M, most_likely(hidden_MH, policy.head.weight) == target_M
