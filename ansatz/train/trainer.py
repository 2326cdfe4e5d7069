"""The trainer: a policy, what updates it, and what its objective asks for besides (reference, critic, adaptive bonus).

It turns scored groups into a batch and a batch into optimiser steps; between steps its whole state is `tensors` and
`state`, so a checkpoint of these goes on bit for bit.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ansatz.config.schema import TrainSection
from ansatz.errors import ConfigError
from ansatz.models import lora
from ansatz.models.load import Policy
from ansatz.objectives.coefficients import adapt_entropy_coef
from ansatz.objectives.objective import Objective
from ansatz.train.batch import PackedRollouts, TrainBatch, build_batch, pack_rollouts
from ansatz.train.critic import Critic
from ansatz.train.optim import Schedule
from ansatz.train.optimizers import bind_optimizer
from ansatz.train.sample import TrainSample
from ansatz.train.step import StepReport, critic_step, logps_of, train_step, values_of


class Trainer:
    """Trains `policy` (cast to dtype in place) on an objective. The reference, where one is needed, is the policy as it
    is now; of one with adapters, the model below them, so no second copy is held.

    lr: of the policy; the critic's is settings.critic_lr; schedule is that of both. temperature: the one that rollouts
    are sampled at. version: optimiser steps so far.
    """

    def __init__(
        self,
        policy: Policy,
        objective: Objective,
        *,
        settings: TrainSection,
        dtype: torch.dtype,
        lr: float,
        schedule: Schedule,
        temperature: float = 1.0,
    ) -> None:
        self.policy, self.objective, self.settings = policy, objective, settings
        self.lr, self.schedule, self.temperature = lr, schedule, temperature
        self.version = 0
        self.entropy_coef = objective.entropy_coef
        if policy.base is not None and settings.reference_update_interval and objective.needs_ref:
            raise ConfigError(
                f"train.reference_update_interval = {settings.reference_update_interval}: with model.lora the "
                "reference is the model without its adapters and cannot become the policy. Set it to 0, "
                "or leave model.lora out."
            )
        make = bind_optimizer(settings.optimizer)
        critic = Critic(policy) if objective.needs_values else None
        self.optimizer = make(policy.model, dtype)
        self.critic = None if critic is None else (critic, make(critic, dtype))
        self.reference = _frozen(policy) if objective.needs_ref else None

    def batch(self, rows: Sequence[TrainSample], *, baseline_of_group: Mapping[int, float] | None = None) -> TrainBatch:
        """A whole step's rows with everything that the objective asks for, computed once.

        baseline_of_group: the reward of a greedy response to each prompt, where `needs_greedy`. Old log-probs are
        computed only where a second update, or a component outside the loss, will need them.
        """
        layout = pack_rollouts(rows, device=self.policy.device)
        baselines = baseline_of_group or {}
        return build_batch(
            layout,
            self.objective,
            old_logp_T=self._logps(self.policy, layout) if self._needs_old else None,
            ref_logp_T=None if self.reference is None else self._logps(self.reference, layout),
            value_T=None
            if self.critic is None
            else values_of(self.critic[0], layout, tokens_per_microbatch=self._slice),
            baseline_N=torch.tensor([baselines[group] for group in layout.group_N.tolist()], device=self.policy.device)
            if self.needs_greedy
            else None,
        )

    def update(self, batch: TrainBatch, *, step: int, check_alignment: bool = False) -> list[StepReport]:
        """Every optimiser step on one step's batch: epochs_per_step times through its minibatches.

        After a minibatch whose ratio passes the objective's max_ratio the step's later updates are left out.
        check_alignment: raise AlignmentError before the first of them where sampler and trainer disagree by more than
        train.max_logprob_gap.
        """
        settings, reports = self.settings, list[StepReport]()
        for minibatch in batch.minibatches(settings.updates_per_step, self.objective) * settings.epochs_per_step:
            report = train_step(
                self.policy,
                self.optimizer,
                minibatch,
                self.objective,
                step=step,
                lr=self.lr * self.schedule.share(step),
                max_grad_norm=settings.max_grad_norm,
                tokens_per_microbatch=self._slice,
                temperature=self.temperature,
                reference=self.reference,
                entropy_coef=self.entropy_coef,
                max_logprob_gap=settings.max_logprob_gap if check_alignment and not reports else math.inf,
            )
            if not report.stopped and self.critic is not None:
                critic_metrics = critic_step(
                    *self.critic,
                    minibatch,
                    self.objective,
                    lr=settings.critic_lr * self.schedule.share(step),
                    max_grad_norm=settings.max_grad_norm,
                    tokens_per_microbatch=self._slice,
                )
                report = dataclasses.replace(report, metrics=report.metrics | critic_metrics)
            reports.append(report)
            if report.stopped:
                break
            self.version += 1
        self._after_step(reports, step)
        return reports

    @property
    def needs_greedy(self) -> bool:
        """Whether each prompt's greedy response must be sampled and graded too (ReMax)."""
        return "baseline_N" in self.objective.advantage.inputs

    def weights(self) -> dict[str, Tensor]:
        """The policy's float32 weights by the names of a model without adapters, which are merged into them."""
        own = self.optimizer.weights()
        return own if self.policy.base is None else lora.merge_adapters(self.policy, own)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """What a checkpoint keeps beside the policy's trained weights, by file name."""
        out = {"optimizer": self.optimizer.state()}
        if self.critic is not None:
            _, optimizer = self.critic
            weights = {f"weights/{name}": value for name, value in optimizer.weights().items()}
            out["critic"] = weights | optimizer.state()
        if self.reference is not None and self.policy.base is None:
            out["reference"] = {name: value.detach() for name, value in self.reference.model.named_parameters()}
        return out

    def state(self) -> dict[str, Any]:
        return {"version": self.version, "entropy_coef": self.entropy_coef}

    def restore(
        self, weights: Mapping[str, Tensor], tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]
    ) -> None:
        """The inverse of `tensors` and `state`, bit for bit. weights: the policy's float32 ones that are trained."""
        self.optimizer.load(weights, tensors["optimizer"])
        if self.critic is not None:
            own = {
                name.removeprefix("weights/"): value
                for name, value in tensors["critic"].items()
                if name.startswith("weights/")
            }
            moments = {name: value for name, value in tensors["critic"].items() if not name.startswith("weights/")}
            self.critic[1].load(own, moments)
        if self.reference is not None and self.policy.base is None:
            for name, parameter in self.reference.model.named_parameters():
                parameter.data.copy_(tensors["reference"][name])
        self.version, self.entropy_coef = state["version"], state["entropy_coef"]

    @property
    def _slice(self) -> int:
        return self.settings.tokens_per_microbatch

    @property
    def _needs_old(self) -> bool:
        objective = self.objective
        several = self.settings.optimizer_steps_per_step > 1
        asked = any("old_logp_T" in component.inputs for component in objective.masks)
        return several or asked or objective.advantages_need_old_logp

    def _logps(self, policy: Policy, layout: PackedRollouts) -> Tensor:
        return logps_of(policy, layout, tokens_per_microbatch=self._slice, temperature=self.temperature)

    def _after_step(self, reports: Sequence[StepReport], step: int) -> None:
        target = self.objective.entropy_target
        if target is not None:
            entropy = sum(report.metrics["train/entropy"] for report in reports) / len(reports)
            self.entropy_coef = adapt_entropy_coef(self.entropy_coef, entropy, target=target)
        every = self.settings.reference_update_interval
        if self.reference is not None and every and step % every == 0:  # iterative GRPO, arXiv:2402.03300 alg. 1
            for mine, current in zip(self.reference.model.parameters(), self.policy.model.parameters(), strict=True):
                mine.data.copy_(current.data)


def _frozen(policy: Policy) -> Policy:
    if policy.base is not None:
        return dataclasses.replace(policy, model=policy.base, base=None)
    model = copy.deepcopy(policy.model)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return dataclasses.replace(policy, model=model)
