"""What a step measures: of its batch before the first update, and of the loss of each microbatch.

Axes: M sampled tokens, T flat tokens. The names are those of docs/metrics.md.
"""

from __future__ import annotations

from ansatz.objectives.objective import LossParts, Objective
from ansatz.track.measurements import Measurement, mean
from ansatz.train.alignment import measure_alignment
from ansatz.train.batch import LossBatch, TrainBatch


def measure_batch(batch: TrainBatch, objective: Objective) -> dict[str, Measurement]:
    """What is known about a whole step before its first update.

    objective: with the coefficient that its KL has at this step.
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
    """The metrics of one microbatch."""
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
    if "pairs" in sums:  # those of a preference objective are named as their metrics are
        measured |= {name: mean(value, sums["pairs"]) for name, value in sums.items() if name.startswith("preference/")}
    return measured


def explained_variance(batch: TrainBatch) -> Measurement:
    """1 - var(return - value) / var(return) over the tokens of the batch; 0 where the returns are all equal."""
    assert batch.old_value_T is not None
    assert batch.return_T is not None
    return_M, error_M = batch.return_T[batch.mask_T], (batch.return_T - batch.old_value_T)[batch.mask_T]
    spread = float(return_M.var(correction=0)) if len(return_M) else 0.0
    explained = 1 - float(error_M.var(correction=0)) / spread if spread > 0 else 0.0
    return mean(explained * len(return_M), len(return_M))
