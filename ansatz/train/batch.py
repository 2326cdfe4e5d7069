"""TrainBatch and LossBatch: the input of one optimizer step, before and after the old log-probs are known.

Axes: N rollouts, T flat tokens (see `train.packed`).

A `TrainBatch` holds everything that does not depend on the policy during the update: masks, advantages, weights. Its
`with_old_logps` makes the `LossBatch` that an objective takes. A step with a single update does this in each microbatch
with the policy's own log-probs, because the policy is its own old policy there. A step with several updates, or with
masks or advantages that need old log-probs, does it once, before the first update.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ansatz.data.keyed_random import KeyedRandom
from ansatz.objectives.objective import MinibatchWeights, Objective
from ansatz.train.packed import PackedRollouts, select_rollouts, units_of
from ansatz.train.ranks import ONE_RANK, Ranks, split_for_rank


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainBatch:
    """Packed rollouts and one number per token for each part of the objective.

    mask_T: the tokens that count in the loss: tokens of `sampled_mask_T` that no mask of the objective rejects.
    stale_T: True where an earlier policy than the one to be updated sampled the token.
    stale_corrected: whether a correction (old / behavior) of the objective accounts for stale tokens.
    ref_logp_T: None unless the objective has a KL to the reference.
    advantage_T, weight_T: 0 outside the mask. Weights refer to the whole minibatch, so microbatches add up.
    penalty_weight_T: weights of the KL and entropy terms; None if they equal weight_T.
    likelihood_weight_T: weights of the term -log policy on rollouts with reward > 0; None without it.
    old_value_T, return_T: the critic's values before the step's first update, and their targets; None without a critic.
    kl_T: the KL to the reference before the update, without its coefficient; None unless it acts on rewards or
    advantages.
    num_rollouts: rollouts in the whole minibatch, not in the microbatch.
    """

    packed: PackedRollouts
    mask_T: Tensor
    stale_T: Tensor
    stale_corrected: bool
    ref_logp_T: Tensor | None
    advantage_T: Tensor
    weight_T: Tensor
    penalty_weight_T: Tensor | None
    likelihood_weight_T: Tensor | None
    old_value_T: Tensor | None
    return_T: Tensor | None
    kl_T: Tensor | None
    num_rollouts: int

    @property
    def segment_T(self) -> Tensor:
        return self.packed.segment_T

    @property
    def sampled_mask_T(self) -> Tensor:
        return self.packed.sampled_mask_T

    @property
    def behavior_logp_T(self) -> Tensor:
        return self.packed.behavior_logp_T

    @property
    def num_loss_tokens(self) -> int:
        """Number of tokens that count in the loss."""
        return int(self.mask_T.sum())

    def with_old_logps(self, logp_T: Tensor) -> LossBatch:
        """Add old log-probs to the batch. logp_T: log-probs of the policy before the step's first update.

        A stale token keeps the log-prob of the policy that sampled it, so that its importance ratio is policy /
        behavior. Without this, the first update would see a ratio of exactly 1 and train on stale tokens as if they
        were on-policy. If a correction of the objective already multiplies with old / behavior, the old policy stays
        the recomputed one: otherwise the correction would be 1.
        """
        logp_T = logp_T.detach()
        old_logp_T = logp_T if self.stale_corrected else torch.where(self.stale_T, self.behavior_logp_T, logp_T)
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(TrainBatch)}
        return LossBatch(**fields, old_logp_T=old_logp_T)

    def for_loss(self, policy_logp_T: Tensor) -> LossBatch:
        """Return the batch that the loss takes if the policy has these log-probs: before the first update, it is its
        own old policy."""
        return self.with_old_logps(policy_logp_T)

    def microbatches(
        self, max_tokens: int, ranks: Ranks = ONE_RANK, *, multiple: int = 1, whole_groups: bool = False
    ) -> tuple[list[Self], int]:
        """Return (microbatches of this rank's rollouts, how many of them count); see `ranks.split_for_rank`.

        On one rank, rollouts without an advantage come last, in microbatches of their own. Most losses have no gradient
        there, so `train.step` skips the backward pass. If there are several ranks, all get the same number of
        microbatches. Those that do not count only keep a rank busy, because a sharded model gathers its weights in each
        of them. They have no weight, so their loss and its gradient are 0.
        """
        parts, num_counted = list[Self](), 0
        for half in self._by_advantage(whole_groups=whole_groups) if ranks.size == 1 else [self]:
            splits, count = split_for_rank(half.packed, max_tokens, ranks, multiple=multiple, whole_groups=whole_groups)
            parts, num_counted = parts + [half.select_rollouts(rollouts) for rollouts in splits], num_counted + count
        return [*parts[:num_counted], *(part._without_weight() for part in parts[num_counted:])], num_counted

    def _by_advantage(self, *, whole_groups: bool) -> list[Self]:
        """Return the rollouts with an advantage other than 0, then the others. whole_groups: never divide a group."""
        unit_N = units_of(self.packed, whole_groups=whole_groups)
        learns_N = torch.isin(unit_N, unit_N[self.segment_T[self.mask_T & (self.advantage_T != 0)]])
        return [self.select_rollouts(half_N.nonzero().flatten()) for half_N in (learns_N, ~learns_N) if half_N.any()]

    def _without_weight(self) -> Self:
        weights = {
            name: torch.zeros_like(value)
            for name in MinibatchWeights.__annotations__
            if (value := getattr(self, name)) is not None
        }
        return dataclasses.replace(self, **weights)

    def select_rollouts(self, rollouts: Tensor) -> Self:
        """Select rollouts by ascending indices. They keep the weights that they have in the whole batch."""
        chosen_T = torch.isin(self.segment_T, rollouts)
        per_token: dict[str, Tensor] = {}
        for field in dataclasses.fields(self):
            if isinstance(value := getattr(self, field.name), Tensor):
                assert field.name.endswith("_T"), f"{field.name} is not a token axis, so no rollouts can be selected"
                per_token[field.name] = value[chosen_T]
        return dataclasses.replace(self, packed=select_rollouts(self.packed, rollouts), **per_token)

    def minibatches(self, count: int, objective: Objective, *, key: Sequence[object] = ()) -> list[Self]:
        """Deal the prompts into `count` minibatches, or into one for each prompt if there are fewer. Each minibatch is
        weighted as a batch of its own, for one optimizer step.

        key: seeds the shuffling of the prompts before they are dealt. Empty: the prompts keep their order.
        """
        if count == 1:
            return [self]
        index_N = torch.unique(self.packed.group_N, return_inverse=True)[1]
        if key:
            shuffled = KeyedRandom(*key).shuffled(range(int(index_N.max()) + 1))
            index_N = torch.tensor(shuffled, device=index_N.device)[index_N]
        minibatches: list[Self] = []
        for number in range(count):
            rollouts = (index_N % count == number).nonzero().squeeze(-1)
            if len(rollouts):
                part = self.select_rollouts(rollouts)
                reward_N, group_N = part.packed.reward_N, part.packed.group_N
                weights = objective.minibatch_weights(part.segment_T, part.mask_T, reward_N, group_N=group_N)
                minibatches.append(dataclasses.replace(part, num_rollouts=len(rollouts), **weights))
        return minibatches


@dataclass(frozen=True, slots=True, kw_only=True)
class LossBatch(TrainBatch):
    """A TrainBatch with old_logp_T, the log-probs that importance ratios are taken against; an `Objective` takes it."""

    old_logp_T: Tensor

    def for_loss(self, policy_logp_T: Tensor) -> LossBatch:
        """Return the batch itself: its old log-probs were fixed before the step's first update."""
        return self


def build_batch(
    packed: PackedRollouts,
    objective: Objective,
    *,
    policy_version: int = 0,
    old_logp_T: Tensor | None = None,
    ref_logp_T: Tensor | None = None,
    full_kl_T: Tensor | None = None,
    value_T: Tensor | None = None,
    baseline_N: Tensor | None = None,
) -> TrainBatch:
    """Compute the advantages, masks and weights of a whole step, once.

    policy_version: version of the policy to be updated; tokens of an earlier version are stale.
    old_logp_T: log-probs of that policy, for masks and for a KL in the reward. If given, the result is a LossBatch.
    full_kl_T: the exact KL to the reference (over the whole vocabulary) before the update, for a KL in the reward.
    value_T: the critic's values. baseline_N: the reward of a greedy response to the same prompt (ReMax).
    """
    inputs = {
        name: getattr(packed, name)
        for name in ("behavior_logp_T", "step_end_T", "step_reward_T", "component_NK", "truncated_N")
    }
    inputs |= {"old_logp_T": old_logp_T, "ref_logp_T": ref_logp_T, "full_kl_T": full_kl_T}
    inputs |= {"value_T": value_T, "baseline_N": baseline_N}
    if packed.rewards_steps and objective.advantage.per_token:
        inputs["token_reward_T"] = packed.step_reward_T  # for components that distinguish tokens: GAE, rewards to go
    tokens = {"segment_T": packed.segment_T, "mask_T": packed.sampled_mask_T}
    advantages = objective.advantages(packed.reward_N, packed.group_N, **tokens, **inputs)
    mask_T = objective.loss_mask(**tokens, **inputs)
    batch = TrainBatch(
        packed=packed,
        mask_T=mask_T,
        stale_T=(packed.version_T >= 0) & (packed.version_T < policy_version),
        stale_corrected=objective.corrects_mismatch,
        ref_logp_T=ref_logp_T,
        advantage_T=advantages.advantage_T * mask_T,
        old_value_T=value_T,
        return_T=advantages.return_T,
        kl_T=advantages.kl_T,
        num_rollouts=packed.num_rollouts,
        **objective.minibatch_weights(packed.segment_T, mask_T, packed.reward_N, group_N=packed.group_N),
    )
    return batch if old_logp_T is None else batch.with_old_logps(old_logp_T)
