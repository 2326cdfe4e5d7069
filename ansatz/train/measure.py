"""The measurements of a step: of its batch before the first update, and of the loss and rollouts of each microbatch.

Axes: M sampled tokens, T flat tokens, N rollouts. docs/metrics.md explains every name.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ansatz.objectives import segments
from ansatz.objectives.objective import LossParts, Objective
from ansatz.track.measurements import Measurement, mean
from ansatz.train.alignment import measure_alignment
from ansatz.train.batch import LossBatch, TrainBatch


def measure_batch(batch: TrainBatch, objective: Objective) -> dict[str, Measurement]:
    """Measure a whole step before its first update.

    objective: with the KL coefficient of this step.
    """
    measured = {"train/tokens": Measurement(float(batch.num_loss_tokens))}
    if batch.old_value_T is not None:
        measured["train/explained_variance"] = explained_variance(batch)
    if batch.kl_T is not None:
        measured["train/kl_ref"] = mean(float(batch.kl_T[batch.mask_T].sum()), batch.num_loss_tokens)
        measured["train/kl_penalty"] = mean(objective.kl_coef * float(batch.kl_T.sum()), batch.num_rollouts)
    if objective.kl_control is not None:
        measured["train/kl_coef"] = Measurement(objective.kl_coef)
    return measured


def measure_loss(losses: LossParts, batch: LossBatch) -> dict[str, Measurement]:
    """Return the metrics of one microbatch."""
    sums = {name: float(value) for name, value in losses.sums.items()}
    tokens = sums["tokens"]
    measured = {
        "train/clip_frac": mean(sums["clipped_low"] + sums["clipped_high"], tokens),
        "train/ratio_mean": mean(sums["ratio"], tokens),
        "train/ratio_max": Measurement(float(losses.maxima["ratio"])),
        "train/approx_kl": mean(sums["approx_kl"], tokens),
        **measure_alignment(batch),
    }
    for name, key in (("train/entropy", "entropy"), ("train/kl_ref", "kl")):
        if key in sums:
            measured[name] = mean(sums[key], tokens)
    for name, value in sums.items():  # a preference objective names its sums as its metrics are named
        if name.startswith("preference/"):
            side = name.removeprefix("preference/").partition("_")[0]
            measured[name] = mean(value, sums.get(side, sums["pairs"]))  # responses of a label are counted apart
    return measured


def measure_rollouts(losses: LossParts, batch: LossBatch, entropy_T: Tensor) -> dict[int, dict[str, float]]:
    """Return the figures of each rollout of a microbatch in an update, by its place in the samples of the step.

    mismatch_mean, mismatch_max: r - 1 - log r with r = old / behavior, over the tokens that the policy sampled. It
    estimates the KL of sampler to trainer in nats (k3 of http://joschu.net/blog/kl-approx.html), and is 0 where
    `old_logp_T` is the sampler's log-prob. mean_entropy: over the same tokens, in nats. advantage, clip_share: the mean
    over the tokens that count in the loss, and the fraction of them that the objective clipped.
    """
    sampled_T, count = batch.sampled_mask_T, batch.packed.num_rollouts
    segment_M, segment_L = batch.segment_T[sampled_T], batch.segment_T[batch.mask_T]  # L: the tokens that count
    gap_M = (batch.old_logp_T - batch.behavior_logp_T)[sampled_T]
    k3_M = torch.expm1(gap_M) - gap_M
    columns = {
        "advantage": segments.mean(batch.advantage_T[batch.mask_T], segment_L, count),
        "mismatch_mean": segments.mean(k3_M, segment_M, count),
        "mismatch_max": segments.largest(k3_M, segment_M, count),
        "mean_entropy": segments.mean(entropy_T.detach()[sampled_T], segment_M, count),
        "clip_share": segments.mean(losses.clipped_T[batch.mask_T].float(), segment_L, count),
    }
    rows = zip(batch.packed.sample_N.tolist(), *(column_N.tolist() for column_N in columns.values()), strict=True)
    return {place: dict(zip(columns, values, strict=True)) for place, *values in rows}


def explained_variance(batch: TrainBatch) -> Measurement:
    """Compute 1 - var(return - value) / var(return) over the tokens of the batch; 0 if the returns are all equal."""
    assert batch.old_value_T is not None
    assert batch.return_T is not None
    return_M, error_M = batch.return_T[batch.mask_T], (batch.return_T - batch.old_value_T)[batch.mask_T]
    spread = float(return_M.var(correction=0)) if len(return_M) else 0.0
    explained = 1 - float(error_M.var(correction=0)) / spread if spread > 0 else 0.0
    return mean(explained * len(return_M), len(return_M))
