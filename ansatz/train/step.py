"""One optimiser step: slices of a batch, their gradients added up, one update.

Axes: T flat tokens. Weights were computed on the whole batch, so the slices' losses and gradients are plain sums and
`tokens_per_microbatch` changes no number beyond rounding.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ansatz.errors import AlignmentError, NonFiniteError
from ansatz.models.load import Policy
from ansatz.models.logps import chunked_kl, token_logps
from ansatz.models.threads import parallel_map
from ansatz.objectives.objective import LossParts, Objective, TokenBatch
from ansatz.train.batch import PackedRollouts, TrainBatch, select_rollouts, slices
from ansatz.train.critic import Critic
from ansatz.train.optim import MasterAdamW


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What one update did. metrics: under the names of docs/metrics.md. tokens: response tokens that it learned from.

    stopped: the minibatch was dropped, because its mean ratio passed the objective's max_ratio; nothing was changed.
    """

    loss: float
    metrics: dict[str, float]
    tokens: int
    seconds: float
    stopped: bool = False


def train_step(
    policy: Policy,
    optimizer: MasterAdamW,
    batch: TrainBatch,
    objective: Objective,
    *,
    step: int,
    lr: float,
    max_grad_norm: float,
    tokens_per_microbatch: int,
    temperature: float = 1.0,
    reference: Policy | None = None,
    entropy_coef: float | None = None,
    max_logprob_gap: float = math.inf,
) -> StepReport:
    """One update of the policy on the batch. entropy_coef: of an adaptive bonus, in place of the objective's own.
    reference: asked for by a KL over whole distributions alone; the others have the batch's ref_logp_T.

    Raises, before anything has changed: NonFiniteError when the loss or the gradient is nan or inf; AlignmentError when
    exp(mean |behavior_logp - old_logp|) is over max_logprob_gap.
    """
    started = time.perf_counter()
    total = _Totals()
    limit = len(batch.layout.token_T) * batch.num_rollouts if objective.whole_minibatch else tokens_per_microbatch
    parts = list(batch.split(limit, multiple=1 if objective.whole_minibatch else policy.parallel_microbatches))

    def learn(part: TrainBatch) -> tuple[TokenBatch, LossParts, list[Tensor | None]]:
        policy_logp_T, entropy_T = layout_logps(policy, part.layout, temperature=temperature)
        with_old_logps = part.with_old_logps(policy_logp_T)
        full_kl_T = None
        if reference is not None and "full_kl_T" in objective.kl.inputs:
            full_kl_T = token_kl(policy, reference, part.layout, temperature=temperature)
        losses = objective.loss(
            with_old_logps, policy_logp_T, entropy_T, full_kl_T=full_kl_T, entropy_coef=entropy_coef
        )
        return with_old_logps, losses, optimizer.gradients(losses.loss)

    for with_old_logps, losses, gradients in parallel_map(learn, parts, policy.parallel_microbatches):
        if not math.isfinite(loss := float(losses.loss.detach())):
            optimizer.zero_grad()
            raise NonFiniteError(_stopped(step, f"the loss is {loss}"))
        optimizer.accumulate(gradients)
        total.add(losses, with_old_logps)
    measure = total.alignment()
    if not measure <= max_logprob_gap:  # so that nan is refused
        optimizer.zero_grad()
        raise AlignmentError(
            f"step {step}: sampler and trainer disagree about log-probs: exp(mean |behavior_logp - old_logp|) = "
            f"{measure:.4f}, at most train.max_logprob_gap = {max_logprob_gap} is allowed. Check that both use the "
            "same weights, temperature and precision (model.dtype = float32 rules rounding out)."
        )
    metrics, stopped = total.metrics(), objective.stops(total.sums)
    if stopped:
        optimizer.zero_grad()
    else:
        try:
            metrics["train/grad_norm"] = optimizer.step(lr=lr, max_grad_norm=max_grad_norm)
        except NonFiniteError as error:
            raise NonFiniteError(_stopped(step, str(error))) from error
    return StepReport(
        loss=total.loss,
        metrics={**metrics, "train/lr": lr},
        tokens=int(total.sums["tokens"]),
        seconds=time.perf_counter() - started,
        stopped=stopped,
    )


def logps_of(policy: Policy, layout: PackedRollouts, *, tokens_per_microbatch: int, temperature: float = 1.0) -> Tensor:
    """Log-probs [T] of a layout's response tokens under a policy, without gradient; 0 outside its mask."""
    return _without_gradient(
        lambda part: layout_logps(policy, part, temperature=temperature)[0],
        layout,
        tokens_per_microbatch,
        policy.parallel_microbatches,
    )


def _without_gradient(
    numbers: Callable[[PackedRollouts], Tensor], layout: PackedRollouts, tokens_per_microbatch: int, width: int
) -> Tensor:
    """numbers(layout) [T], slice by slice, `width` of them side by side."""
    parts = slices(layout, tokens_per_microbatch, multiple=width)
    return torch.cat(
        list(parallel_map(torch.no_grad()(lambda one: numbers(select_rollouts(layout, one))), parts, width))
    )


def layout_logps(policy: Policy, layout: PackedRollouts, *, temperature: float) -> tuple[Tensor, Tensor]:
    """(logp_T, entropy_T) of a layout's response tokens, over the supports that they were drawn from; with gradient."""
    return token_logps(policy, layout, temperature=temperature)


def critic_step(
    critic: Critic,
    optimizer: MasterAdamW,
    batch: TrainBatch,
    objective: Objective,
    *,
    lr: float,
    max_grad_norm: float,
    tokens_per_microbatch: int,
) -> dict[str, float]:
    """One update of the critic towards the batch's returns. Returns train/value_loss and train/explained_variance."""
    if batch.return_T is None or batch.old_value_T is None:
        raise ValueError("critic_step needs a batch with values and returns, made by an objective with a critic")

    def learn(part: TrainBatch) -> tuple[Tensor, list[Tensor | None]]:
        assert part.old_value_T is not None
        assert part.return_T is not None
        value_T = critic.values(part.layout)
        loss = objective.value_loss(part.with_old_logps(value_T), value_T, part.old_value_T, part.return_T)
        return loss, optimizer.gradients(loss)

    value_loss = 0.0
    parts = list(batch.split(tokens_per_microbatch, multiple=critic.parallel_microbatches))
    for loss, gradients in parallel_map(learn, parts, critic.parallel_microbatches):
        optimizer.accumulate(gradients)
        value_loss += float(loss.detach())
    optimizer.step(lr=lr, max_grad_norm=max_grad_norm)
    returns_M, error_M = batch.return_T[batch.mask_T], (batch.return_T - batch.old_value_T)[batch.mask_T]
    spread = float(returns_M.var(correction=0))
    explained = 1 - float(error_M.var(correction=0)) / spread if spread > 0 else 0.0
    return {"train/value_loss": value_loss, "train/explained_variance": explained}


def values_of(critic: Critic, layout: PackedRollouts, *, tokens_per_microbatch: int) -> Tensor:
    """The critic's values [T] at a layout's response tokens, without gradient; 0 outside its mask."""
    return _without_gradient(critic.values, layout, tokens_per_microbatch, critic.parallel_microbatches)


def token_kl(policy: Policy, reference: Policy, layout: PackedRollouts, *, temperature: float) -> Tensor:
    """The exact KL [T] of policy to reference at a layout's response tokens, with gradient; 0 outside its mask."""
    where = layout.token_T, layout.position_T, layout.segment_T
    which = {"prompt_id_T": layout.prompt_id_T, "at_M": layout.mask_T.nonzero().squeeze(-1) - 1}
    with torch.no_grad():
        reference_MH = reference.packed_hidden(*where, **which)
    kl_M = chunked_kl(
        policy.packed_hidden(*where, **which),
        policy.head.weight,
        reference_MH,
        reference.head.weight,
        temperature=temperature,
    )
    return torch.zeros(len(layout.token_T), device=kl_M.device).masked_scatter(layout.mask_T, kl_M)


class _Totals:
    """Sums and maxima over the slices of a batch."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.sums: dict[str, float] = {}
        self.maxima: dict[str, float] = {}

    def add(self, parts: LossParts, part: TokenBatch) -> None:
        self.loss += float(parts.loss.detach())
        gap_T = (part.behavior_logp_T - part.old_logp_T).abs()[part.mask_T]
        sums = {**parts.sums, "gap": gap_T.sum()}
        maxima = {**parts.maxima, "gap": gap_T.max() if len(gap_T) else gap_T.sum()}
        for name, value in sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value)
        for name, value in maxima.items():
            self.maxima[name] = max(self.maxima.get(name, -math.inf), float(value))

    def alignment(self) -> float:
        """exp(mean |behavior_logp - old_logp|) over response tokens: 1 is perfect."""
        return math.exp(min(self.sums["gap"] / max(self.sums["tokens"], 1.0), 700.0))

    def metrics(self) -> dict[str, float]:
        sums, tokens = self.sums, max(self.sums["tokens"], 1.0)
        out = {
            "train/loss": self.loss,
            "train/tokens": sums["tokens"],
            "train/entropy": sums["entropy"] / tokens,
            "train/clip_frac": (sums["clipped_low"] + sums["clipped_high"]) / tokens,
            "train/ratio_mean": sums["ratio"] / tokens,
            "train/ratio_max": self.maxima["ratio"],
            "train/approx_kl": sums["approx_kl"] / tokens,
            "align/mean_gap": self.alignment(),
            "align/max_gap": self.maxima["gap"],
        }
        if "kl" in sums:
            out["train/kl_ref"] = sums["kl"] / tokens
        return out


def _stopped(step: int, what: str) -> str:
    return (
        f"step {step}: {what}; expected a finite number. Stopped before the update: the weights and the last "
        "checkpoint are untouched. Lower train.lr or look at the step's samples, then go on with --resume."
    )
