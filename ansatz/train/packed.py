"""PackedRollouts: the samples of a step on one flat token axis, and the division of that axis into microbatches.

Axes: N rollouts, T flat tokens (the prompt and the response of each rollout, one rollout after the other; why they are
not a padded matrix: notes/design/flat_axis.md), M response tokens, G groups, U units of rollouts that stay together, K
reward components; in `_pack_steps` K steps. Rollouts of one prompt are neighbours, so that a microbatch computes their
prompt once. The longest come first, so that a microbatch needs little padding. No result depends on the order.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ansatz.models.packing import round_up
from ansatz.objectives import segments
from ansatz.train.sample import TrainSample

WHOLE_VOCABULARY = 2**31
"""Number of candidates of a token that was sampled without top-k, top-p and min-p: larger than any vocabulary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRollouts:
    """Samples as tensors, before anything is computed from them.

    token_T, position_T, segment_T: int64 token ids, positions within the rollout (from 0, prompt included), rollout
    index 0..N-1.
    prompt_id_T: number of the distinct prompt that a prompt token belongs to, -1 for response tokens; None if no two
    rollouts share a prompt.
    sampled_mask_T: True where the policy sampled the token. behavior_logp_T: float32 nats of the token at the same
    index (not of the next one), 0 elsewhere.
    version_T: int64 version of the policy that sampled the token; -1 for other tokens, and where it was not recorded.
    num_candidates_T: how many tokens were left to sample from, and 1 at prompt tokens, where nothing reads it; None if
    it was always the whole vocabulary.
    no_eos_T: True where end-of-sequence tokens were masked out; None if they never were.
    step_end_T, step_reward_T: True, and the reward, at the last token of a reasoning step.
    reward_N, group_N, truncated_N, component_NK: one entry (or row) per rollout, in the order of segment_T.
    sample_N: the place of each rollout among the samples that were packed.
    Example: samples of 3 and 5 tokens have `segment_T` 0, 0, 0, 1, 1, 1, 1, 1 (`pack_rollouts`).
    """

    token_T: Tensor
    position_T: Tensor
    segment_T: Tensor
    prompt_id_T: Tensor | None
    sampled_mask_T: Tensor
    behavior_logp_T: Tensor
    version_T: Tensor
    num_candidates_T: Tensor | None
    no_eos_T: Tensor | None
    step_end_T: Tensor
    step_reward_T: Tensor
    reward_N: Tensor
    group_N: Tensor
    truncated_N: Tensor
    component_NK: Tensor
    sample_N: Tensor

    @property
    def num_rollouts(self) -> int:
        return len(self.reward_N)

    @property
    def rewards_steps(self) -> bool:
        """Tell whether any rollout contains several rewarded steps. Without step rewards, each is a single step."""
        return int(self.step_end_T.sum()) > self.num_rollouts

    @property
    def num_tokens(self) -> int:
        """Number of prompt and response tokens. A prompt counts once for each of its rollouts."""
        return len(self.token_T)


def pack_rollouts(samples: Sequence[TrainSample], *, device: torch.device) -> PackedRollouts:
    """Pack samples on one flat axis, in the order described at the top of this file.

    Raise ValueError for a sample without a prompt (nothing would predict its first token), without a sampled token, or
    with a list that is not as long as the response.
    """
    for sample in samples:
        _check(sample)
    places, prompt_id_N = _order(samples)
    ordered = [samples[place] for place in places]
    prompt_N = torch.tensor([len(sample.prompt_ids) for sample in ordered], device=device)
    length_N = prompt_N + torch.tensor([len(sample.token_ids) for sample in ordered], device=device)
    segment_T = torch.repeat_interleave(torch.arange(len(ordered), device=device), length_N)
    start_N = length_N.cumsum(0) - length_N
    position_T = torch.arange(len(segment_T), device=device) - start_N[segment_T]
    response_T = position_T >= prompt_N[segment_T]
    sampled_mask_T = _pack_responses(ordered, "sampled_mask", response_T, missing=1, elsewhere=0).bool()
    version_T = _pack_responses(ordered, "versions", response_T, missing=-1, elsewhere=-1)
    tokens = [token for sample in ordered for token in (*sample.prompt_ids, *sample.token_ids)]
    logp_M = torch.tensor([logp for sample in ordered for logp in sample.behavior_logps], device=device)
    step_end_T, step_reward_T = _pack_steps(ordered, start_N + prompt_N, num_tokens=len(tokens))
    return PackedRollouts(
        token_T=torch.tensor(tokens, device=device),
        position_T=position_T,
        segment_T=segment_T,
        prompt_id_T=None
        if prompt_id_N is None
        else torch.tensor(prompt_id_N, device=device)[segment_T].masked_fill(response_T, -1),
        sampled_mask_T=sampled_mask_T,
        behavior_logp_T=torch.zeros(len(tokens), device=device).masked_scatter(response_T, logp_M) * sampled_mask_T,
        version_T=version_T.masked_fill(~sampled_mask_T, -1),
        num_candidates_T=_pack_responses(ordered, "num_candidates", response_T, missing=WHOLE_VOCABULARY, elsewhere=1)
        if any(sample.num_candidates for sample in ordered)
        else None,
        no_eos_T=_pack_no_eos(ordered, sampled_mask_T, position_T - prompt_N[segment_T], segment_T),
        step_end_T=step_end_T,
        step_reward_T=step_reward_T,
        reward_N=torch.tensor([sample.reward for sample in ordered], device=device),
        group_N=torch.tensor([sample.group for sample in ordered], device=device),
        truncated_N=torch.tensor([sample.truncated for sample in ordered], device=device),
        component_NK=torch.tensor([list(sample.components) for sample in ordered], device=device),
        sample_N=torch.tensor(places, device=device),
    )


def select_rollouts(packed: PackedRollouts, rollouts: Tensor) -> PackedRollouts:
    """Select rollouts by ascending indices, as PackedRollouts of their own, numbered from 0."""
    chosen_T = torch.isin(packed.segment_T, rollouts)
    values: dict[str, Tensor | None] = {}
    for field in dataclasses.fields(packed):
        value = getattr(packed, field.name)
        per_token = field.name.endswith("_T")
        assert per_token or field.name.endswith(("_N", "_NK")), f"{field.name} names no axis that can be selected"
        values[field.name] = value if value is None else value[chosen_T if per_token else rollouts]
    values["segment_T"] = torch.searchsorted(rollouts, packed.segment_T[chosen_T])
    return PackedRollouts(**values)  # pyright: ignore[reportArgumentType]


def responses_of(value_T: Tensor, packed: PackedRollouts, samples: Sequence[TrainSample]) -> list[Tensor]:
    """Return the values of each sample's response tokens, in the order of `samples`, which were packed."""
    of_rollouts = value_T.split(segments.count(packed.segment_T, packed.num_rollouts).tolist())
    by_place = dict(zip(packed.sample_N.tolist(), of_rollouts, strict=True))
    return [by_place[place][len(sample.prompt_ids) :] for place, sample in enumerate(samples)]


def split_into_microbatches(
    packed: PackedRollouts, max_tokens: int, *, multiple: int = 1, whole_groups: bool = False
) -> list[Tensor]:
    """Return the rollout indices of each microbatch: neighbours up to a padded size of max_tokens, or a single rollout.
    The padded size is the work of attention: the number of rollouts times the length of the longest.

    multiple: above 1, the rollouts are first divided into parts with about the same number of tokens to compute, so
    that parallel workers wait little for each other. The number of parts is a multiple of this. The number of
    microbatches need not be, because a part above max_tokens is divided further and a part can be empty.
    whole_groups: all rollouts of a group are in one microbatch. A single group can then exceed max_tokens. Losses of
    pairs need it (`Objective.whole_groups`).
    """
    length_N = torch.bincount(packed.segment_T)
    unit_N = units_of(packed, whole_groups=whole_groups)
    size_U = segments.count(unit_N, segments.num_segments(unit_N))
    longest_U = segments.largest(length_N.double(), unit_N, len(size_U)).long()
    ranges = _fill_ranges(longest_U.tolist(), size_U.tolist(), max_tokens, first=0)  # [start, stop) of units
    count = round_up(len(ranges), multiple)
    if multiple > 1:
        cost_U = segments.total(_tokens_to_compute(packed, length_N), unit_N, len(size_U))
        # The middle of each unit on the axis of all costs says in which of `count` equal stretches the unit lies.
        part_U = ((cost_U.cumsum(0) - cost_U / 2) * count / cost_U.sum()).long()
        ranges = []
        for part in range(count):
            members = (part_U == part).nonzero().flatten()
            if len(members):
                lengths, sizes = longest_U[members].tolist(), size_U[members].tolist()
                ranges += _fill_ranges(lengths, sizes, max_tokens, first=int(members[0]))
    return [((unit_N >= start) & (unit_N < stop)).nonzero().flatten() for start, stop in ranges]


def units_of(packed: PackedRollouts, *, whole_groups: bool) -> Tensor:
    """Return the unit of each rollout [N], numbered by first appearance: its group, or the rollout itself."""
    index_N = torch.arange(packed.num_rollouts, device=packed.segment_T.device)
    if not whole_groups:
        return index_N
    group_N, num_groups = segments.renumbered(packed.group_N)
    first_G = -segments.largest(-index_N.double(), group_N, num_groups)  # each group's first rollout; then its rank
    return first_G.argsort().argsort()[group_N]


def _check(sample: TrainSample) -> None:
    response = f"the sample with the response {list(sample.token_ids[:5])}..."
    if not sample.prompt_ids:
        raise ValueError(f"{response} has no prompt. It needs a prompt of at least one token.")
    for name, required in (
        ("behavior_logps", True),
        ("num_candidates", False),
        ("sampled_mask", False),
        ("versions", False),
    ):
        length = len(getattr(sample, name))
        if length != len(sample.token_ids) and (required or length):
            raise ValueError(f"{response} has {len(sample.token_ids)} tokens, but {length} entries in {name}.")
    if sample.sampled_mask and not any(sample.sampled_mask):
        raise ValueError(f"{response} has no token that the policy sampled.")


def _order(samples: Sequence[TrainSample]) -> tuple[list[int], list[int] | None]:
    """Return the places of the samples in their order on the flat axis, and the number of each one's prompt (None if
    all prompts differ)."""
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    for place, sample in enumerate(samples):
        by_prompt.setdefault(tuple(sample.prompt_ids), []).append(place)
    response = [len(sample.token_ids) for sample in samples]
    families = [sorted(family, key=lambda place: -response[place]) for family in by_prompt.values()]
    families.sort(key=lambda family: -len(samples[family[0]].prompt_ids) - response[family[0]])
    prompt_id_N = [number for number, family in enumerate(families) for _ in family]
    shared = len(families) < len(samples)
    return [place for family in families for place in family], prompt_id_N if shared else None


def _pack_steps(ordered: Sequence[TrainSample], first_N: Tensor, *, num_tokens: int) -> tuple[Tensor, Tensor]:
    """Return (step_end_T, step_reward_T). first_N: index on the flat axis of each rollout's first response token."""
    device = first_N.device
    steps = [_steps(sample) for sample in ordered]
    count_N = torch.tensor([len(each) for each in steps], device=device)
    index_K = torch.tensor([index for each in steps for index, _ in each], device=device, dtype=torch.long)
    index_K = index_K + first_N.repeat_interleave(count_N)
    reward_K = torch.tensor([reward for each in steps for _, reward in each], device=device)
    zero_T = torch.zeros(num_tokens, device=device)
    return zero_T.bool().index_fill(0, index_K, True), zero_T.index_add(0, index_K, reward_K)


def _steps(sample: TrainSample) -> Sequence[tuple[int, float]]:
    """Return the sample's steps. A step that ends on forced tokens is moved back to the last sampled token before."""
    steps = sample.steps or [(len(sample.token_ids) - 1, sample.reward)]
    if not sample.sampled_mask:
        return steps
    sampled = [index for index, mark in enumerate(sample.sampled_mask) if mark]
    return [(sampled[max(bisect_right(sampled, index) - 1, 0)], reward) for index, reward in steps]


def _pack_responses(
    ordered: Sequence[TrainSample], name: str, response_T: Tensor, *, missing: int, elsewhere: int
) -> Tensor:
    """Return a field of the samples that has a whole number for each response token, or is empty, as int64.

    missing: the number at the tokens of samples whose field is empty. elsewhere: the number at prompt tokens.
    """
    values = [value for sample in ordered for value in getattr(sample, name) or [missing] * len(sample.token_ids)]
    value_M = torch.tensor(values, device=response_T.device, dtype=torch.long)
    return torch.full_like(response_T, elsewhere, dtype=torch.long).masked_scatter(response_T, value_M)


def _pack_no_eos(ordered: Sequence[TrainSample], mask_T: Tensor, index_T: Tensor, segment_T: Tensor) -> Tensor | None:
    """Mark the tokens at which end-of-sequence tokens were masked out. mask_T: the sampled tokens. index_T: the place
    of a token within its response; negative for prompt tokens."""
    if not any(sample.min_response_tokens for sample in ordered):
        return None
    minimum_N = torch.tensor([sample.min_response_tokens for sample in ordered], device=mask_T.device)
    return mask_T & (index_T < minimum_N[segment_T])


def _tokens_to_compute(packed: PackedRollouts, length_N: Tensor) -> Tensor:
    """Count the tokens that each rollout adds to a microbatch. A shared prompt counts for its first rollout only."""
    if packed.prompt_id_T is None:
        return length_N
    response_N = torch.bincount(packed.segment_T, weights=(packed.prompt_id_T < 0).double())
    prompt_N = packed.prompt_id_T[length_N.cumsum(0) - length_N]
    repeated_N = torch.cat([prompt_N.new_zeros(1).bool(), prompt_N[1:] == prompt_N[:-1]])
    return torch.where(repeated_N, response_N, length_N.double())


def _fill_ranges(lengths: Sequence[int], sizes: Sequence[int], max_tokens: int, *, first: int) -> list[tuple[int, int]]:
    """Return [start, stop) of ranges of units that are filled one after the other.

    lengths: length of the longest rollout of each unit. sizes: rollouts of each unit. first: index of the first unit.
    """
    ranges: list[tuple[int, int]] = []
    start, longest, num_rollouts = 0, 0, 0
    for index, (length, size) in enumerate(zip(lengths, sizes, strict=True)):
        longest, num_rollouts = max(longest, length), num_rollouts + size
        if index > start and longest * num_rollouts > max_tokens:
            ranges.append((first + start, first + index))
            start, longest, num_rollouts = index, length, size
    return [*ranges, (first + start, first + len(lengths))] if lengths else []
