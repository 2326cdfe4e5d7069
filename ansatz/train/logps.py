"""Log-probs and KLs of packed rollouts under a model, and its predictions of demonstrations; without sampling.

Axes: N rollouts, T flat tokens, M sampled tokens, H hidden, K temperatures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from ansatz.models.load import Policy
from ansatz.models.logps import chunked_kl, chunked_logps, hidden_before, most_likely, token_logps
from ansatz.models.threads import parallel_map
from ansatz.objectives.advantage_rule import scattered
from ansatz.objectives.kl import Divergence
from ansatz.track.measurements import Measurements, mean, merge
from ansatz.train.packed import PackedRollouts, select_rollouts
from ansatz.train.ranks import ONE_RANK, Ranks, scatter_shares, split_for_rank

V = TypeVar("V")


def logps_of(policy: Policy, packed: PackedRollouts, *, tokens_per_microbatch: int, temperature: float = 1.0) -> Tensor:
    """Compute log-probs [T] without gradient, one microbatch after the other; 0 outside the mask."""

    def logps(part: PackedRollouts) -> Tensor:
        return token_logps(policy, part, temperature=temperature)[0]

    return without_gradient(logps, policy, packed, tokens_per_microbatch, ONE_RANK)


def exact_kl(
    packed: PackedRollouts, policy: Policy, reference: Policy, divergence: Divergence, *, temperature: float
) -> Tensor:
    """Compute a divergence [T] of policy and reference over the whole vocabulary, with gradient; 0 outside the mask."""

    def compute() -> Tensor:
        with torch.no_grad():
            reference_MH = hidden_before(reference, packed)
        return chunked_kl(
            hidden_before(policy, packed),
            policy.head.weight,
            reference_MH,
            reference.head.weight,
            divergence=divergence,
            temperature=temperature,
            softcap=policy.softcap,
            ref_softcap=reference.softcap,
        )

    kl_M = reference.run(lambda: policy.run(compute))
    return scattered(kl_M, packed.sampled_mask_T)


def without_gradient(
    function: Callable[[PackedRollouts], Tensor], policy: Policy, packed: PackedRollouts, max_tokens: int, ranks: Ranks
) -> Tensor:
    """Return function(packed), whose first axis is T, computed microbatch by microbatch; each rank computes its share.

    policy: the model that the function runs, which says how many microbatches run in parallel.
    """
    shares = _own_shares(function, policy, packed, max_tokens, ranks)
    return torch.cat([value for _, value in shares]) if ranks.size == 1 else scatter_shares(packed, shares, ranks)


def _own_shares(
    function: Callable[[PackedRollouts], V], policy: Policy, packed: PackedRollouts, max_tokens: int, ranks: Ranks
) -> list[tuple[Tensor, V]]:
    """Return (rollouts, function(microbatch)) of the microbatches of this rank that count. It computes no gradient."""
    function, workers = torch.no_grad()(function), policy.parallel_microbatches
    microbatches, num_counted = split_for_rank(packed, max_tokens, ranks, multiple=workers)
    values = list(parallel_map(lambda rollouts: function(select_rollouts(packed, rollouts)), microbatches, workers))
    return list(zip(microbatches, values, strict=True))[:num_counted]


def measure_demonstrations(
    policy: Policy, packed: PackedRollouts, *, tokens_per_microbatch: int, ranks: Ranks = ONE_RANK
) -> Measurements:
    """Measure sft/heldout_loss and sft/heldout_accuracy over the response tokens, each given the true ones before it.

    ranks: each computes its share, and all get the measurements of the whole.
    """

    def measure(part: PackedRollouts) -> Measurements:
        target_M = part.token_T[part.sampled_mask_T]
        logp_M, hit_M = policy.run(lambda: _predictions(policy, part, target_M))
        return {
            "sft/heldout_loss": mean(-float(logp_M.sum()), len(target_M)),
            "sft/heldout_accuracy": mean(float(hit_M.sum()), len(target_M)),
        }

    return merge(_of_microbatches(measure, policy, packed, tokens_per_microbatch, ranks))


def _of_microbatches(
    measure: Callable[[PackedRollouts], V], policy: Policy, packed: PackedRollouts, max_tokens: int, ranks: Ranks
) -> list[V]:
    """Return measure(microbatch), which is plain data, for the microbatches of all ranks. It computes no gradient."""
    own = [measured for _, measured in _own_shares(measure, policy, packed, max_tokens, ranks)]
    return [each for part in ranks.gather(own) for each in part]


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

    def measure(part: PackedRollouts) -> list[list[float]]:
        logp_KM = policy.run(lambda: _target_logps(policy, part, temperatures))
        logp_KN = torch.zeros(len(temperatures), part.num_rollouts, dtype=torch.float64, device=logp_KM.device)
        logp_KN.index_add_(1, part.segment_T[part.sampled_mask_T], logp_KM.double())
        return [[number, *logps] for number, logps in zip(part.sample_N.tolist(), logp_KN.T.tolist(), strict=True)]

    rows = _of_microbatches(measure, policy, packed, tokens_per_microbatch, ranks)
    return [logps for _, *logps in sorted(row for part in rows for row in part)]


def _target_logps(policy: Policy, part: PackedRollouts, temperatures: Sequence[float]) -> Tensor:
    """Compute the log-probs [K, M] of the tokens in the mask, over the whole vocabulary."""
    hidden_MH, target_M = hidden_before(policy, part), part.token_T[part.sampled_mask_T]
    return torch.stack(
        [
            chunked_logps(hidden_MH, policy.head.weight, target_M, temperature=temperature, softcap=policy.softcap)[0]
            for temperature in temperatures
        ]
    )


def _predictions(policy: Policy, part: PackedRollouts, target_M: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-probs of the targets, and whether each is the most likely token."""
    hidden_MH = hidden_before(policy, part)
    logp_M, _ = chunked_logps(hidden_MH, policy.head.weight, target_M, softcap=policy.softcap)
    return logp_M, most_likely(hidden_MH, policy.head.weight) == target_M
