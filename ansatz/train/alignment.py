"""Alignment: whether sampler and trainer give the same tokens the same log-probs.

Axes: T flat tokens, M the tokens that are compared. The measure is the mean over tokens of exp(|behavior_logp -
old_logp|). It is 1 for equal log-probs, and a single token with a gap of several nats raises it, which a mean of gaps
would hide. Rounding keeps it within 1 to 1.05. It costs nothing, because both log-probs are there anyway.
"""

from __future__ import annotations

from torch import Tensor

from ansatz.errors import AlignmentError
from ansatz.track.measurements import Measurement, Measurements, mean, values
from ansatz.train.batch import LossBatch

MEASURE, LARGEST = "align/mean_exp_gap", "align/max_gap"
LARGEST_EXPONENT = 600.0
"""Larger gaps count as this one, in nats. Without it, the exponential would overflow."""


def measure_alignment(batch: LossBatch) -> dict[str, Measurement]:
    """Both metrics, over all tokens that the policy to be updated has sampled, whether or not they count in the loss.

    Stale tokens differ because the policy has changed, which is not a fault of the sampler.
    """
    compared_T = batch.sampled_mask_T & ~batch.stale_T
    gap_M: Tensor = (batch.behavior_logp_T - batch.old_logp_T).abs()[compared_T]
    measured = {MEASURE: mean(float(gap_M.clamp(max=LARGEST_EXPONENT).double().exp().sum()), len(gap_M))}
    if len(gap_M):
        measured[LARGEST] = Measurement(float(gap_M.max()))
    return measured


def check_alignment(measured: Measurements, *, limit: float, step: int) -> None:
    """AlignmentError if the measure is above the limit, or nan. No tokens to compare are no disagreement."""
    if measured[MEASURE].weight == 0:
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
