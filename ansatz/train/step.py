"""One optimiser step: slices of a batch, their gradients added up, one update.

Axes: T flat tokens. Weights were computed on the whole batch, so the slices' losses and gradients are plain sums and
`tokens_per_slice` changes no number beyond rounding.
"""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from ansatz.errors import AlignmentError, NonFiniteError
from ansatz.models.load import Policy
from ansatz.models.logps import token_logps
from ansatz.objectives.objective import LossParts, Objective
from ansatz.train.batch import Layout, TrainBatch, pick, slices
from ansatz.train.optim import MasterAdamW


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What one update did. metrics: under the names of docs/metrics.md. tokens: response tokens that it learned from."""

    loss: float
    metrics: dict[str, float]
    tokens: int
    seconds: float


def train_step(
    policy: Policy,
    optimizer: MasterAdamW,
    batch: TrainBatch,
    objective: Objective,
    *,
    step: int,
    lr: float,
    max_grad_norm: float,
    tokens_per_slice: int,
    temperature: float = 1.0,
    max_misalignment: float = math.inf,
) -> StepReport:
    """One update of the policy on the batch.

    Raises, before anything has changed: NonFiniteError when the loss or the gradient is nan or inf; AlignmentError when
    exp(mean |behavior_logp - old_logp|) is over max_misalignment.
    """
    started = time.perf_counter()
    total = _Totals()
    limit = len(batch.layout.token_T) * batch.num_rollouts if objective.whole_minibatch else tokens_per_slice
    for part in batch.split(limit):
        layout = part.layout
        policy_logp_T, entropy_T = token_logps(
            policy, layout.token_T, layout.position_T, layout.segment_T, layout.mask_T, temperature=temperature
        )
        if part.old_logp_T is None:
            part = dataclasses.replace(part, old_logp_T=policy_logp_T.detach())
        parts = objective.loss(part, policy_logp_T, entropy_T)
        _refuse_non_finite(parts.loss, step)
        parts.loss.backward()
        optimizer.accumulate()
        total.add(parts, part)
    measure = total.alignment()
    if measure > max_misalignment:
        optimizer.zero_grad()
        raise AlignmentError(
            f"step {step}: sampler and trainer disagree about log-probs: exp(mean |behavior_logp - old_logp|) = {measure:.4f}, "
            f"at most train.max_misalignment = {max_misalignment} is allowed. Check that both use the same weights, "
            "temperature and precision (model.dtype = float32 rules rounding out)."
        )
    try:
        grad_norm = optimizer.step(lr=lr, max_grad_norm=max_grad_norm)
    except NonFiniteError as error:
        raise NonFiniteError(_stopped(step, str(error))) from error
    return StepReport(
        loss=total.loss,
        metrics={**total.metrics(), "train/grad_norm": grad_norm, "train/lr": lr},
        tokens=int(total.sums["tokens"]),
        seconds=time.perf_counter() - started,
    )


@torch.no_grad()
def logps_of(policy: Policy, layout: Layout, *, tokens_per_slice: int, temperature: float = 1.0) -> Tensor:
    """Log-probs [T] of a layout's response tokens under a policy, without gradient; 0 outside its mask."""
    logps: list[Tensor] = []
    for segments in slices(layout, tokens_per_slice):
        part = pick(layout, segments)
        logp_T, _ = token_logps(
            policy, part.token_T, part.position_T, part.segment_T, part.mask_T, temperature=temperature
        )
        logps.append(logp_T)
    return torch.cat(logps)


class _Totals:
    """Sums and maxima over the slices of a batch."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.sums: dict[str, float] = {}
        self.maxima: dict[str, float] = {}

    def add(self, parts: LossParts, part: TrainBatch) -> None:
        self.loss += float(parts.loss.detach())
        assert part.old_logp_T is not None
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
            "align/measure": self.alignment(),
            "align/max_gap": self.maxima["gap"],
        }
        if "kl" in sums:
            out["train/kl_ref"] = sums["kl"] / tokens
        return out


def _refuse_non_finite(loss: Tensor, step: int) -> None:
    if not math.isfinite(float(loss.detach())):
        raise NonFiniteError(_stopped(step, f"the loss is {float(loss.detach())}"))


def _stopped(step: int, what: str) -> str:
    return (
        f"step {step}: {what}; expected a finite number. Stopped before the update: the weights and the last checkpoint "
        "are untouched. Lower train.lr or look at the step's samples, then go on with --resume."
    )
