"""TrainBatch: a step's rollouts on one flat token axis, and the ways to cut it.

Axes: N rollouts, T flat tokens (prompt and response of each rollout, one after the other). Rollouts of one prompt
stand side by side, so that a slice computes it once, and the longest first, so that a slice pads little; no number
depends on the order.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from ansatz.models.packing import round_up
from ansatz.objectives.objective import Objective, TokenBatch
from ansatz.train.sample import TrainSample


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRollouts:
    """Rows as tensors, nothing computed yet.

    token_T, position_T, segment_T: int64 token ids, positions within the rollout, rollout index 0..N-1.
    prompt_id_T: which of the different prompts a prompt token is of, -1 for a response token; None where no two
    rollouts
    have the same prompt.
    mask_T: True where the policy chose the token. behavior_logp_T: float32 nats, 0 outside mask.
    num_candidates_T: how many tokens each was drawn from; None where it was the whole vocabulary for all.
    no_eos_T: True where the end tokens could not be drawn; None where they always could.
    step_end_T, step_reward_T: True and the reward where a reasoning step ends.
    reward_N, group_N, truncated_N, component_NK: by rollout, in the order of segment_T.
    """

    token_T: Tensor
    position_T: Tensor
    segment_T: Tensor
    prompt_id_T: Tensor | None
    mask_T: Tensor
    behavior_logp_T: Tensor
    num_candidates_T: Tensor | None
    no_eos_T: Tensor | None
    step_end_T: Tensor
    step_reward_T: Tensor
    reward_N: Tensor
    group_N: Tensor
    truncated_N: Tensor
    component_NK: Tensor

    @property
    def num_rollouts(self) -> int:
        return len(self.reward_N)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainBatch:
    """What one optimiser step sees: a layout, and a number a token for each part of the objective.

    mask_T: the sampled tokens that count in the loss: `layout.mask_T` without those that the objective's masks reject.
    old_logp_T: before this step's first update; None when this is the one update of its step, where the policy itself
    is the old policy. ref_logp_T: None unless the objective has a KL term.
    advantage_T, weight_T: 0 outside mask; weights are those of the whole batch, so slices add up. penalty_weight_T:
    those of the KL and entropy terms, None when they are weight_T. likelihood_weight_T: None without a likelihood term.
    old_value_T, return_T: the critic's values before this step's first update and their targets; None without a critic.
    num_rollouts: of the whole batch, not of the slice.
    """

    layout: PackedRollouts
    mask_T: Tensor
    old_logp_T: Tensor | None
    ref_logp_T: Tensor | None
    advantage_T: Tensor
    weight_T: Tensor
    penalty_weight_T: Tensor | None
    likelihood_weight_T: Tensor | None
    old_value_T: Tensor | None
    return_T: Tensor | None
    num_rollouts: int

    @property
    def segment_T(self) -> Tensor:
        return self.layout.segment_T

    @property
    def sampled_mask_T(self) -> Tensor:
        return self.layout.mask_T

    @property
    def behavior_logp_T(self) -> Tensor:
        return self.layout.behavior_logp_T

    def with_old_logps(self, policy_logp_T: Tensor) -> TokenBatch:
        """The slice with old log-probs in any case: its own, or the policy's where this is the step's one update."""
        if self.old_logp_T is not None:
            return cast(TokenBatch, self)
        return cast(TokenBatch, dataclasses.replace(self, old_logp_T=policy_logp_T.detach()))

    @property
    def num_tokens(self) -> int:
        """Tokens that count in the loss."""
        return int(self.mask_T.sum())

    def split(self, max_tokens: int, *, multiple: int = 1) -> Iterator[TrainBatch]:
        """Slices of whole rollouts; see `slices`."""
        for segments in slices(self.layout, max_tokens, multiple=multiple):
            yield self.select_rollouts(segments)

    def select_rollouts(self, segments: Tensor) -> TrainBatch:
        """The given rollouts (ascending) alone, with the numbers that they have in the whole."""
        chosen_T = torch.isin(self.segment_T, segments)
        per_token = {
            field.name: value[chosen_T]
            for field in dataclasses.fields(self)
            if field.name.endswith("_T") and (value := getattr(self, field.name)) is not None
        }
        return dataclasses.replace(self, layout=select_rollouts(self.layout, segments), **per_token)

    def minibatches(self, count: int, objective: Objective) -> list[TrainBatch]:
        """The prompts dealt into `count` parts, each weighted as a batch of its own: one optimiser step each."""
        if count == 1:
            return [self]
        index_N = torch.unique(self.layout.group_N, return_inverse=True)[1]
        parts: list[TrainBatch] = []
        for part in range(count):
            chosen = (index_N % count == part).nonzero().squeeze(-1)
            if len(chosen):
                batch = self.select_rollouts(chosen)
                parts.append(
                    dataclasses.replace(
                        batch, num_rollouts=len(chosen), **weights(batch.layout, batch.mask_T, objective)
                    )
                )
        return parts


def build_batch(
    layout: PackedRollouts,
    objective: Objective,
    *,
    old_logp_T: Tensor | None = None,
    ref_logp_T: Tensor | None = None,
    value_T: Tensor | None = None,
    baseline_N: Tensor | None = None,
) -> TrainBatch:
    """Advantages, masks and weights of a whole step, computed once.

    value_T: the critic's values; baseline_N: the reward of a greedy response to the same prompt; where asked for.
    """
    given = {
        name: getattr(layout, name)
        for name in ("behavior_logp_T", "step_end_T", "step_reward_T", "component_NK", "truncated_N")
    }
    given |= {"old_logp_T": old_logp_T, "ref_logp_T": ref_logp_T, "value_T": value_T, "baseline_N": baseline_N}
    whose = {"segment_T": layout.segment_T, "mask_T": layout.mask_T}
    advantages = objective.advantages(layout.reward_N, layout.group_N, **whose, **given)
    kept_T = objective.loss_mask(**whose, **given)
    return TrainBatch(
        layout=layout,
        mask_T=kept_T,
        old_logp_T=old_logp_T,
        ref_logp_T=ref_logp_T,
        advantage_T=advantages.advantage_T * kept_T,
        old_value_T=value_T,
        return_T=advantages.return_T,
        num_rollouts=layout.num_rollouts,
        **weights(layout, kept_T, objective),
    )


def weights(layout: PackedRollouts, mask_T: Tensor, objective: Objective) -> dict[str, Any]:
    """The token weights of all that one optimiser step sees. mask_T: the tokens that count."""
    of_what = {"num_rollouts": layout.num_rollouts, "group_N": layout.group_N}
    return {
        "weight_T": objective.token_weights(layout.segment_T, mask_T, **of_what),
        "penalty_weight_T": objective.penalty_token_weights(layout.segment_T, mask_T, **of_what),
        "likelihood_weight_T": objective.likelihood_token_weights(
            layout.segment_T, mask_T, layout.reward_N, group_N=layout.group_N
        ),
    }


def pack_rollouts(rows: Sequence[TrainSample], *, device: torch.device) -> PackedRollouts:
    """Rows on one flat axis: those of one prompt together, the prompt with the longest row first, and so within it.

    ValueError for a row without a prompt, whose first token nothing would predict, with a log-prob or a mark of choice
    too many or few, or with no token that the policy chose.
    """
    for row in rows:
        if not row.prompt_ids:
            raise ValueError(f"the row {list(row.token_ids[:5])}... needs a prompt of at least one token")
        if len(row.behavior_logps) != len(row.token_ids):
            raise ValueError(f"a row has {len(row.token_ids)} response tokens and {len(row.behavior_logps)} log-probs")
        if row.sampled_mask and len(row.sampled_mask) != len(row.token_ids):
            raise ValueError(
                f"a row has {len(row.token_ids)} response tokens and {len(row.sampled_mask)} marks of choice"
            )
        if row.sampled_mask and not any(row.sampled_mask):
            raise ValueError(f"the row {list(row.token_ids[:5])}... has no token that the policy chose")
    ordered, prefix_N = _ordered(rows)
    sizes = [(len(row.prompt_ids), len(row.token_ids)) for row in ordered]
    length_N = torch.tensor([prompt + response for prompt, response in sizes], device=device)
    prompt_N = torch.tensor([prompt for prompt, _ in sizes], device=device)
    segment_T = torch.repeat_interleave(torch.arange(len(ordered), device=device), length_N)
    start_N = length_N.cumsum(0) - length_N
    position_T = torch.arange(len(segment_T), device=device) - start_N[segment_T]
    response_T = position_T >= prompt_N[segment_T]
    chosen_M = [own for row in ordered for own in row.sampled_mask or [True] * len(row.token_ids)]
    mask_T = response_T.masked_scatter(response_T, torch.tensor(chosen_M, device=device))
    token_T = torch.tensor([token for row in ordered for token in (*row.prompt_ids, *row.token_ids)], device=device)
    logp_M = torch.tensor([logp for row in ordered for logp in row.behavior_logps], device=device)
    steps = [_steps(row) for row in ordered]
    first_N = start_N + prompt_N
    end_K = torch.tensor([index for row in steps for index, _ in row], device=device, dtype=torch.long)
    end_K = end_K + first_N.repeat_interleave(torch.tensor([len(row) for row in steps], device=device))
    step_reward_K = torch.tensor([reward for row in steps for _, reward in row], device=device)
    zero_T = torch.zeros(len(token_T), device=device)
    return PackedRollouts(
        token_T=token_T,
        position_T=position_T,
        segment_T=segment_T,
        prompt_id_T=None
        if prefix_N is None
        else torch.tensor(prefix_N, device=device)[segment_T].masked_fill(response_T, -1),
        mask_T=mask_T,
        behavior_logp_T=zero_T.masked_scatter(response_T, logp_M) * mask_T,
        num_candidates_T=_supports(ordered, response_T),
        no_eos_T=_endless(ordered, mask_T, position_T - prompt_N[segment_T], segment_T),
        step_end_T=zero_T.bool().index_fill(0, end_K, True),
        step_reward_T=zero_T.index_add(0, end_K, step_reward_K),
        reward_N=torch.tensor([row.reward for row in ordered], device=device),
        group_N=torch.tensor([row.group for row in ordered], device=device),
        truncated_N=torch.tensor([row.truncated for row in ordered], device=device),
        component_NK=torch.tensor([list(row.components) for row in ordered], device=device),
    )


def _ordered(rows: Sequence[TrainSample]) -> tuple[list[TrainSample], list[int] | None]:
    """The rows in their order on the flat axis, and the number of each one's prompt; None where all prompts differ."""
    by_prompt: dict[tuple[int, ...], list[TrainSample]] = {}
    for row in rows:
        by_prompt.setdefault(tuple(row.prompt_ids), []).append(row)
    families = [sorted(family, key=lambda row: -len(row.token_ids)) for family in by_prompt.values()]
    families.sort(key=lambda family: -len(family[0].prompt_ids) - len(family[0].token_ids))
    number_N = [number for number, family in enumerate(families) for _ in family]
    return [row for family in families for row in family], number_N if len(families) < len(rows) else None


def _steps(row: TrainSample) -> Sequence[tuple[int, float]]:
    """A row's steps; one that ends on forced tokens ends at the policy's last token before them."""
    steps = row.steps or [(len(row.token_ids) - 1, row.reward)]
    if not row.sampled_mask:
        return steps
    own = [index for index, chosen in enumerate(row.sampled_mask) if chosen]
    return [(own[max(bisect_right(own, index) - 1, 0)], reward) for index, reward in steps]


def _supports(rows: Sequence[TrainSample], response_T: Tensor) -> Tensor | None:
    if not any(row.num_candidates for row in rows):
        return None
    whole = 2**31  # over any vocabulary
    sizes = [size for row in rows for size in row.num_candidates or [whole] * len(row.token_ids)]
    size_M = torch.tensor(sizes, device=response_T.device)
    return torch.ones_like(response_T, dtype=torch.long).masked_scatter(response_T, size_M)


def _endless(rows: Sequence[TrainSample], mask_T: Tensor, index_T: Tensor, segment_T: Tensor) -> Tensor | None:
    """index_T: a response token's place in its response, below 0 in the prompt."""
    if not any(row.min_response_tokens for row in rows):
        return None
    least_N = torch.tensor([row.min_response_tokens for row in rows], device=mask_T.device)
    return mask_T & (index_T < least_N[segment_T])


def select_rollouts(layout: PackedRollouts, segments: Tensor) -> PackedRollouts:
    """The given rollouts (ascending) as a layout of their own."""
    chosen_T = torch.isin(layout.segment_T, segments)
    values = {
        field.name: value if value is None else value[chosen_T if field.name.endswith("_T") else segments]
        for field in dataclasses.fields(layout)
        for value in [getattr(layout, field.name)]
    }
    return PackedRollouts(**{**values, "segment_T": torch.searchsorted(segments, layout.segment_T[chosen_T])})


def slices(layout: PackedRollouts, max_tokens: int, *, multiple: int = 1) -> list[Tensor]:
    """Runs of neighbouring rollouts whose padded size is at most max_tokens, at least one rollout each: few, or where
    there are rollouts enough a multiple of `multiple` with about the same number of tokens to compute."""
    length_N = torch.bincount(layout.segment_T)
    runs = _runs(length_N.tolist(), max_tokens, first=0)
    count = round_up(len(runs), multiple)
    if multiple > 1:
        own_N = length_N
        if layout.prompt_id_T is not None:  # a prompt counts for the first of its rollouts
            response_N = torch.bincount(layout.segment_T, weights=(layout.prompt_id_T < 0).double())
            prompt_N = layout.prompt_id_T[length_N.cumsum(0) - length_N]
            again_N = torch.cat([prompt_N.new_zeros(1).bool(), prompt_N[1:] == prompt_N[:-1]])
            own_N = torch.where(again_N, response_N, length_N.double())
        part_N = ((own_N.cumsum(0) - own_N / 2) * count / own_N.sum()).long()
        runs = []
        for part in range(count):
            own = (part_N == part).nonzero().flatten()
            if len(own):
                runs += _runs(length_N[own].tolist(), max_tokens, first=int(own[0]))
    return [torch.arange(*run, device=layout.segment_T.device) for run in runs]


def _runs(lengths: Sequence[int], max_tokens: int, *, first: int) -> list[tuple[int, int]]:
    """[start, stop) of runs that are filled one after the other; the first length is rollout `first`'s."""
    runs: list[tuple[int, int]] = []
    start, longest = 0, 0
    for index, length in enumerate(lengths):
        longest = max(longest, length)
        if index > start and longest * (index + 1 - start) > max_tokens:
            runs.append((first + start, first + index))
            start, longest = index, length
    return [*runs, (first + start, first + len(lengths))] if lengths else []
