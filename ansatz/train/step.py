"""One optimizer step: the gradients of a minibatch's microbatches are added up, then the policy is updated once.

Axes: T flat tokens, M sampled ones, N rollouts. Weights are computed on the whole minibatch, so the losses and
gradients of microbatches add up, and `tokens_per_microbatch` changes no number beyond rounding. Measured are the batch
before the first update, and the loss and rollouts of each microbatch; docs/metrics.md explains every name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import torch
from torch import Tensor

from ansatz.errors import AlignmentError, NonFiniteError
from ansatz.models.load import Policy
from ansatz.models.logps import token_logps
from ansatz.models.threads import parallel_map
from ansatz.objectives import segments
from ansatz.objectives.objective import LossParts, Objective
from ansatz.track.measurements import Measurement, Measurements, mean, merge, values
from ansatz.train.alignment import check_alignment, measure_alignment
from ansatz.train.batch import LossBatch, TrainBatch
from ansatz.train.optim import MasterAdamW
from ansatz.train.packed import PackedRollouts
from ansatz.train.ranks import ONE_RANK, Ranks, whole_of_shares


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


Exact = Callable[[PackedRollouts], Tensor]
MicrobatchResult = tuple[float, Measurements, list[Tensor | None]]
"""The loss of a microbatch, its measurements, and its gradients by parameter; no gradients if all are 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSettings:
    """The input of one optimizer step besides the model, the batch and the objective.

    max_grad_norm: the gradient is scaled down to this norm; 0: never. temperature: the sampler's, which divides the
    logits. entropy_coef: coefficient of an adaptive entropy bonus; None: the objective's own.
    max_logprob_gap: the update is made only if the minibatch's alignment is at most this. Alignment is the mean over
    tokens of exp(|behavior_logp - old_logp|): 1 if sampler and trainer agree (`train.alignment`).
    """

    lr: float
    max_grad_norm: float
    tokens_per_microbatch: int
    temperature: float = 1.0
    entropy_coef: float | None = None
    max_logprob_gap: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport:
    """The outcome of one optimizer step.

    measurements: under the names of docs/metrics.md. num_tokens: prompt and response tokens of the minibatch.
    stopped: nothing was changed, because the mean ratio of the minibatch passed the objective's max_ratio.
    skipped: nothing was changed, because the loss or the gradient was nan or inf. `LocalTrainer` makes this report if
    `train_step` raises NonFiniteError.
    rollouts: see `measure_rollouts`.
    """

    measurements: Measurements
    num_tokens: int
    stopped: bool
    skipped: bool = False
    rollouts: Mapping[int, Mapping[str, float]] = field(default_factory=dict[int, Mapping[str, float]])

    @property
    def metrics(self) -> dict[str, float]:
        return values(self.measurements)


def train_step(
    policy: Policy,
    optimizer: MasterAdamW,
    batch: TrainBatch,
    objective: Objective,
    settings: UpdateSettings,
    *,
    step: int,
    exact: Exact | None = None,
    ranks: Ranks = ONE_RANK,
) -> UpdateReport:
    """Update the policy, a model with its tokenizer, once. exact: computes a KL of whole distributions in the loss.

    optimizer: keeps the float32 weights behind the model's weights, and sums of gradients.
    ranks: the processes that train the policy together. Each holds the whole batch and computes its share of it; the
    report and every decision are the same on all of them.
    A batch without old log-probs gets the policy's own. Raise, before anything has changed, NonFiniteError if the loss
    or the gradient is nan or inf, AlignmentError if sampler and trainer differ by more than settings.max_logprob_gap.
    """
    rollouts = dict[int, dict[str, float]]()

    def forward(packed: PackedRollouts) -> tuple[Tensor, ...]:  # policy_logp_T, entropy_T, and full_kl_T if needed
        outputs = token_logps(policy, packed, temperature=settings.temperature)
        return outputs if exact is None else (*outputs, exact(packed))

    def compute(part: TrainBatch) -> MicrobatchResult:
        outputs = whole_of_shares(forward, part.packed, ranks) if objective.whole_minibatch else forward(part.packed)
        policy_logp_T, entropy_T, *rest = outputs
        loss_batch, coef, full_kl_T = part.for_loss(policy_logp_T), settings.entropy_coef, rest[0] if rest else None
        losses = objective.loss(loss_batch, policy_logp_T, entropy_T, full_kl_T=full_kl_T, entropy_coef=coef)
        rollouts.update(measure_rollouts(losses, loss_batch, entropy_T))
        gradients = _gradients(optimizer, losses.loss, outputs, always=ranks.size > 1 or part is parts[0])
        return float(losses.loss.detach()), measure_loss(losses, loss_batch), gradients

    parallel = policy.parallel_microbatches  # computed at the same time, by several threads of a CPU
    max_tokens = policy.microbatch_tokens(settings.tokens_per_microbatch)
    parts, num_counted = _microbatches(batch, objective, max_tokens, ranks, parallel=parallel)
    computed = parallel_map(compute, parts, parallel)
    total_loss, merged = accumulate_gradients(optimizer, computed, num_counted, ranks, step=step)
    try:
        check_alignment(merged, limit=settings.max_logprob_gap, step=step)
    except AlignmentError:
        optimizer.zero_grad()
        raise
    ratio = merged["train/ratio_mean"]
    stopped = objective.stops({"ratio": ratio.total, "tokens": ratio.weight})
    scalars = {"train/loss": total_loss, "train/lr": settings.lr, "train/early_stops": float(stopped)}
    merged |= {name: Measurement(value) for name, value in scalars.items()}
    if stopped:
        optimizer.zero_grad()
    else:
        try:
            norm = optimizer.step(lr=settings.lr, max_grad_norm=settings.max_grad_norm)
        except NonFiniteError as error:
            raise NonFiniteError(not_made(step, str(error))) from error
        merged["train/grad_norm"] = Measurement(norm)
    all_rollouts = dict(chain.from_iterable(ranks.gather(list(rollouts.items()))))
    return UpdateReport(measurements=merged, num_tokens=batch.packed.num_tokens, stopped=stopped, rollouts=all_rollouts)


def _gradients(optimizer: MasterAdamW, loss: Tensor, outputs: Sequence[Tensor], *, always: bool) -> list[Tensor | None]:
    """Return the gradients of a microbatch, by parameter; an empty list if all of them are 0. A backward pass, two
    thirds of an update, would only confirm that.

    For most objectives they are 0 if the rewards of each group are equal, because the loss then depends on the outputs
    of the policy at no token. always: for the first microbatch, so that AdamW sees gradients of 0 and not weights
    without a gradient; and for ranks, because all ranks must make the same calls.
    """
    if not always:
        at_tokens = torch.autograd.grad(loss, outputs, retain_graph=True, allow_unused=True)
        if not any(bool(gradient.any()) for gradient in at_tokens if gradient is not None):
            return []
    return optimizer.gradients(loss)  # without backward(): threads would add to the same .grad


def _microbatches(
    batch: TrainBatch, objective: Objective, max_tokens: int, ranks: Ranks, *, parallel: int
) -> tuple[list[TrainBatch], int]:
    """Return (microbatches of this rank, how many of them count in the report). The others have no weight. An objective
    of the whole minibatch is an exception: every rank computes the same loss, the first one reports it, and each rank's
    gradients cover its share."""
    if objective.whole_minibatch:
        return [batch], int(ranks.rank == 0)
    return batch.microbatches(max_tokens, ranks, multiple=parallel, whole_groups=objective.whole_groups)


def accumulate_gradients(
    optimizer: MasterAdamW,
    computed: Iterable[MicrobatchResult],
    num_counted: int,
    ranks: Ranks,
    *,
    step: int,
    of: str = "",
) -> tuple[float, dict[str, Measurement]]:
    """Add up the gradients of all microbatches in the optimizer, and return the loss and the measurements of all ranks.

    num_counted: only the first `num_counted` microbatches count in the loss and the measurements. The others have no
    weight, or another rank reports the same. of: names the trained model in errors. Raise NonFiniteError, and drop the
    gradients, if the loss is nan or inf. Measurements: names and numbers that `track.measurements.merge` can add up.
    """
    total_loss, measured = 0.0, list[Measurements]()
    for number, (loss, measurements, gradients) in enumerate(computed):
        if gradients:
            optimizer.accumulate(gradients)
        if number < num_counted:
            total_loss += loss
            measured.append(measurements)
    gathered = ranks.gather((total_loss, measured))
    total_loss = sum(loss for loss, _ in gathered)
    if not math.isfinite(total_loss):
        optimizer.zero_grad()
        raise NonFiniteError(not_made(step, f"{of}the loss is {total_loss}"))
    return total_loss, merge(part for _, parts in gathered for part in parts)


def not_made(step: int, cause: str) -> str:
    """Return the text of the error for an update that is skipped. cause: a clause without the step."""
    return f"step {step}: {cause}; expected a finite number. The update was not made, so the weights are unchanged."
