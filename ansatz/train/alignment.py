"""Alignment: how well sampler and trainer agree about the log-probs of the same tokens.

Axes: T flat tokens, M the tokens that are compared. The measure is the mean over tokens of exp(|behavior_logp -
old_logp|). It is 1 for equal log-probs. A single token with a gap of several nats raises it; a mean of gaps would hide
that token. Rounding keeps it within 1 to 1.05. It costs nothing, because both log-probs are there anyway.

With a lag, all tokens are stale: the policy has changed since they were sampled. `measure_with` then computes the
log-probs of a microbatch with the weights that sampled it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ansatz.errors import AlignmentError
from ansatz.models.load import Policy
from ansatz.models.logps import token_logps
from ansatz.models.weights import LiveWeights, load_trained
from ansatz.track.measurements import Measurement, Measurements, mean, values
from ansatz.train.batch import LossBatch, TrainBatch
from ansatz.train.packed import select_rollouts
from ansatz.train.placement import placed_like

MEASURE, LARGEST, LAG = "align/mean_exp_gap", "align/max_gap", "align/lag"
LARGEST_EXPONENT = 600.0
"""Larger gaps count as this one, in nats. Without it, the exponential would overflow."""


def measure_alignment(batch: LossBatch) -> dict[str, Measurement]:
    """Compute both metrics over all tokens that the policy to be updated has sampled, in the loss or not.

    Stale tokens differ because the policy has changed, and the sampler is not at fault. If a correction accounts for
    them, they are measured separately, as LAG.
    """
    gap_T = (batch.behavior_logp_T - batch.old_logp_T).abs()
    measured = _measure(gap_T[batch.sampled_mask_T & ~batch.stale_T])
    if batch.stale_corrected:
        measured[LAG] = _mean_exp(gap_T[batch.sampled_mask_T & batch.stale_T])
    return measured


def measure_with(
    policy: Policy,
    batch: TrainBatch,
    tensors: Mapping[str, Tensor],
    *,
    version: int,
    temperature: float,
    tokens: int,
    step: int,
) -> dict[str, Measurement]:
    """Compute the metrics over the tokens that an earlier version of the policy sampled, with its weights.

    tensors: the result of `WeightSource.trained`. They are loaded for one microbatch of at most `tokens` tokens, or for
    a single rollout. Afterwards the policy gets its own weights back, bit for bit. The result is empty if that version
    sampled no token. step: selects which rollouts of the batch are measured.
    """
    packed = batch.packed
    segments = torch.unique(packed.segment_T[packed.sampled_mask_T & (packed.version_T == version)])
    if not len(segments):
        return {}
    packed = select_rollouts(packed, _spread(segments, torch.bincount(packed.segment_T), tokens=tokens, step=step))
    trained = LiveWeights(policy=policy, version=0).trained()
    own = {name: value.detach().clone() for name, value in trained.items()}
    try:
        load_trained(policy, {name: placed_like(value, trained.get(name)) for name, value in tensors.items()})
        with torch.no_grad():
            logp_T, _ = token_logps(policy, packed, temperature=temperature)
    finally:
        load_trained(policy, own)
    return _measure((packed.behavior_logp_T - logp_T).abs()[packed.sampled_mask_T & (packed.version_T == version)])


def _spread(segments: Tensor, length_N: Tensor, *, tokens: int, step: int) -> Tensor:
    """Return rollouts from all over the batch: up to a padded size of `tokens`, or a single rollout.

    Without this, the groups of one worker could be missing in every step.
    """
    count = max(1, tokens // int(length_N[segments].max()))
    every = math.ceil(len(segments) / count)
    return segments[step % every :: every].contiguous()


def _measure(gap_M: Tensor) -> dict[str, Measurement]:
    measured = {MEASURE: _mean_exp(gap_M)}
    if len(gap_M):
        measured[LARGEST] = Measurement(float(gap_M.max()))
    return measured


def _mean_exp(gap_M: Tensor) -> Measurement:
    return mean(float(gap_M.clamp(max=LARGEST_EXPONENT).double().exp().sum()), len(gap_M))


def check_alignment(measured: Measurements, *, limit: float, step: int) -> None:
    """Raise AlignmentError if the measure is above the limit, or nan. Pass if there were no tokens to compare."""
    if MEASURE not in measured or measured[MEASURE].weight == 0:
        return
    metrics = values(measured)
    if metrics[MEASURE] <= limit:
        return
    raise AlignmentError(
        f"step {step}: sampler and trainer disagree about log-probs: the mean of exp(|behavior_logp - old_logp|) over "
        f"{measured[MEASURE].weight:,.0f} tokens is {metrics[MEASURE]:.4f}, but train.max_logprob_gap = {limit:g} (the "
        f"largest difference is {metrics[LARGEST]:.3g} nats). Nothing was changed by this step. Check that both use "
        "the same weights, temperature and precision. With model.dtype = float32, rounding cannot be the cause. To "
        "accept the difference, continue with --resume, a larger --train.max_logprob_gap and --allow-changes."
    )
