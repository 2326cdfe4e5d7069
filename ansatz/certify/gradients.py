"""The gradient of a step, computed the way training does it and in independent ways, and by two processes.

Axes: N rollouts, T flat tokens, L columns of a padded batch, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from ansatz.config.schema import Config
from ansatz.models.load import Policy, load_policy
from ansatz.models.logps import token_logps
from ansatz.objectives.build import build_objective
from ansatz.objectives.components import build_component
from ansatz.objectives.kl import KLS
from ansatz.objectives.objective import Objective
from ansatz.process import started_safely
from ansatz.train.batch import TrainBatch
from ansatz.train.packed import select_rollouts
from ansatz.train.process_ranks import ProcessGroupRanks
from ansatz.train.ranks import deal_rollouts


class Gradients:
    """The gradient of an objective in the policy's parameters, as a flat vector, computed in several ways."""

    def __init__(self, policy: Policy, objective: Objective, temperature: float) -> None:
        self.policy, self.temperature = policy, temperature
        self.objective = _without_exact_kl(objective)

    def of(self, *parts: TrainBatch, packed: bool = True) -> Tensor:
        """Return the sum over the parts. packed: all rollouts of a part in one forward pass; else a pass for each
        rollout."""
        return self._collect([(part, self._logps(part, packed=packed)) for part in parts])

    def padded(self, batch: TrainBatch, side: str) -> Tensor:
        """Return the same by the model's own forward pass, on rows padded on the right or the left, with an attention
        mask."""
        return self._collect([(batch, self._padded_logps(batch, side))])

    def largest_log_ratio(self, batch: TrainBatch) -> float:
        """Return the largest |log ratio| of a token, in nats."""
        logp_T, entropy_T = self._logps(batch, packed=True)
        return float(self.objective.loss(batch.for_loss(logp_T), logp_T, entropy_T).maxima["log_ratio_abs"])

    def _collect(self, parts: Sequence[tuple[TrainBatch, tuple[Tensor, Tensor]]]) -> Tensor:
        self.policy.model.zero_grad(set_to_none=True)
        for part, (logp_T, entropy_T) in parts:
            self.objective.loss(part.for_loss(logp_T), logp_T, entropy_T).loss.backward()
        gradient = torch.cat(
            [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in self.policy.model.parameters()]
        )
        self.policy.model.zero_grad(set_to_none=True)
        return gradient

    def _logps(self, batch: TrainBatch, *, packed: bool) -> tuple[Tensor, Tensor]:
        rollouts = batch.packed
        indices = torch.arange(rollouts.num_rollouts, device=rollouts.token_T.device).split(1)
        passes = [rollouts] if packed else [select_rollouts(rollouts, index) for index in indices]
        logps = [token_logps(self.policy, part, temperature=self.temperature) for part in passes]
        return torch.cat([logp_T for logp_T, _ in logps]), torch.cat([entropy_T for _, entropy_T in logps])

    def _padded_logps(self, batch: TrainBatch, side: str) -> tuple[Tensor, Tensor]:
        rollouts = batch.packed
        length_N = torch.bincount(rollouts.segment_T)
        columns = int(length_N.max())
        shift_T = (columns - length_N)[rollouts.segment_T] if side == "left" else torch.zeros_like(rollouts.segment_T)
        cell = rollouts.segment_T, rollouts.position_T + shift_T
        token_NL = torch.zeros(len(length_N), columns, dtype=torch.long, device=length_N.device)
        token_NL[cell] = rollouts.token_T
        seen_NL = torch.zeros_like(token_NL)
        seen_NL[cell] = 1
        position_NL = (seen_NL.cumsum(1) - 1).clamp(min=0)
        logits_NLV = self.policy.model(
            input_ids=token_NL, attention_mask=seen_NL, position_ids=position_NL, use_cache=False
        ).logits.float()
        logp_TV = (logits_NLV / self.temperature).log_softmax(-1)[cell[0], (cell[1] - 1).clamp(min=0)]
        entropy_T = -(logp_TV.exp() * logp_TV).sum(-1)
        return logp_TV.gather(-1, rollouts.token_T[:, None]).squeeze(-1), entropy_T


def _without_exact_kl(objective: Objective) -> Objective:
    """Return the objective without an exact KL in the loss: here policy and reference are equal, so its gradient is 0.
    The KL to a teacher, which is another model, is estimated instead."""
    if objective.token_divergence is None or objective.kl_in != "loss":
        return objective
    if objective.kl_to == "teacher":
        return dataclasses.replace(objective, kl=build_component(KLS, "k3", {}))
    return dataclasses.replace(objective, kl_coef=0.0)


def two_rank_gradient(batch: TrainBatch, policy: Policy, config: Config) -> Tensor:
    """Return the gradient of two processes that have a share of the rollouts each and sum their gradients."""
    with tempfile.TemporaryDirectory() as folder:
        torch.save(batch, Path(folder) / "batch.pt")
        with started_safely():
            spawn(_rank, args=(folder, policy.path, config), nprocs=2)
        return torch.load(Path(folder) / "gradient.pt")


def _rank(rank: int, folder: str, model_path: str, config: Config) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    torch.set_num_threads(1)
    batch: TrainBatch = torch.load(Path(folder) / "batch.pt", weights_only=False)
    objective = build_objective(config.algorithm, max_response_tokens=config.rollout.max_response_tokens)
    gradients = Gradients(load_policy(model_path), objective, config.rollout.temperature)
    ranks = ProcessGroupRanks()
    own_N = deal_rollouts(torch.bincount(batch.packed.segment_T), ranks.size)[ranks.rank]
    gradient = gradients.of(batch.select_rollouts(own_N))
    dist.all_reduce(gradient, op=dist.ReduceOp.SUM)
    if rank == 0:
        torch.save(gradient, Path(folder) / "gradient.pt")
    dist.destroy_process_group()
