"""Communication between the processes of one trainer, and the choice of the rollouts that each of them computes.

Every rank holds the whole batch of a step, which is small, and computes log-probs and gradients of its share of the
rollouts. A token's weight is its share of the whole batch. Gradients of ranks are therefore summed, never averaged, and
nothing depends on the number of ranks or on the distribution of the rollouts, beyond rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import torch
from safetensors import SafetensorError
from torch import Tensor

from ansatz.train.packed import PackedRollouts, select_rollouts, split_into_microbatches, units_of

T = TypeVar("T")


class Ranks(Protocol):
    """The processes that train one model together. All of them make the same calls in the same order."""

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        ...

    @property
    def size(self) -> int:
        """The number of processes."""
        ...

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks, in the order of ranks, on every rank. They are plain data
        (`train.process_ranks`)."""
        ...


class OneRank:
    """A trainer that is a single process."""

    rank, size = 0, 1

    def gather(self, value: T) -> list[T]:
        return [value]


ONE_RANK = OneRank()


def on_first_rank(function: Callable[[], None], ranks: Ranks) -> None:
    """Call a function that writes files, on the first rank only. Raise OSError on every rank if it cannot write.

    Without this, the other ranks would wait for the first one in the next operation that they share.
    """
    error: OSError | None = None
    if ranks.rank == 0:
        try:
            function()
        except (OSError, SafetensorError) as caught:
            error = caught if isinstance(caught, OSError) else OSError(str(caught))
    if (failed := ranks.gather(error)[0]) is not None:
        raise failed


def deal_rollouts(length_N: Tensor, size: int) -> list[Tensor]:
    """Deal rollouts to ranks, longest first, each to the rank with the fewest tokens so far. Return ascending indices.

    length_N: tokens of each rollout, prompt included. A rank gets none if there are fewer rollouts than ranks. Groups
    that must stay whole are dealt as if they were rollouts.
    """
    tokens, dealt = [0] * size, [list[int]() for _ in range(size)]
    for index in sorted(range(len(length_N)), key=lambda index: (-int(length_N[index]), index)):
        rank = min(range(size), key=lambda rank: (tokens[rank], rank))
        tokens[rank] += int(length_N[index])
        dealt[rank].append(index)
    return [torch.tensor(sorted(indices), device=length_N.device, dtype=torch.long) for indices in dealt]


def split_for_rank(
    packed: PackedRollouts, max_tokens: int, ranks: Ranks, *, multiple: int = 1, whole_groups: bool = False
) -> tuple[list[Tensor], int]:
    """Return (rollout indices of each microbatch of this rank, how many of the microbatches count).

    Every rank gets the same number of microbatches, because a sharded model gathers its weights in each of them. A rank
    with less to do repeats its first rollout, or group, in microbatches that do not count. whole_groups: all rollouts
    of a group are in one microbatch.
    """
    if ranks.size == 1:
        microbatches = split_into_microbatches(packed, max_tokens, multiple=multiple, whole_groups=whole_groups)
        return microbatches, len(microbatches)
    unit_N = units_of(packed, whole_groups=whole_groups)
    tokens_U = torch.bincount(unit_N[packed.segment_T])
    splits: list[list[Tensor]] = []
    for own_U in deal_rollouts(tokens_U, ranks.size):
        own_N = torch.isin(unit_N, own_U).nonzero().flatten()
        own_rollouts = select_rollouts(packed, own_N) if len(own_N) else None
        parts = (
            [] if own_rollouts is None else split_into_microbatches(own_rollouts, max_tokens, whole_groups=whole_groups)
        )
        splits.append([own_N[part] for part in parts])
    own = splits[ranks.rank]
    filler = (unit_N == (unit_N[own[0][0]] if own else 0)).nonzero().flatten()
    missing = max(map(len, splits)) - len(own)
    return [*own, *[filler] * missing], len(own)


def scatter_shares(packed: PackedRollouts, shares: Sequence[tuple[Tensor, Tensor]], ranks: Ranks) -> Tensor:
    """Return a value for every token, [T, ...]. shares: (rollout indices, a value for each of their tokens) of this
    rank."""
    on_cpu = [(segments.cpu(), value.detach().cpu()) for segments, value in shares]
    gathered = [share for shares in ranks.gather(on_cpu) for share in shares]
    value_T = torch.empty(packed.num_tokens, *gathered[0][1].shape[1:], device=packed.token_T.device)
    for segments, part_T in gathered:
        value_T[torch.isin(packed.segment_T, segments.to(value_T.device))] = part_T.to(value_T)
    return value_T


def whole_of_shares(
    function: Callable[[PackedRollouts], Sequence[Tensor]], packed: PackedRollouts, ranks: Ranks
) -> list[Tensor]:
    """Return function(packed); each rank computes its share in one pass. The results [T] carry gradient for it only.

    So the gradients of a loss over all tokens, summed over ranks, equal the gradients of a single process.
    """
    if ranks.size == 1:
        return list(function(packed))
    own_N = deal_rollouts(torch.bincount(packed.segment_T), ranks.size)[ranks.rank]
    is_own = len(own_N) > 0
    used_N = own_N if is_own else torch.zeros(1, device=packed.segment_T.device, dtype=torch.long)
    values = function(select_rollouts(packed, used_N))
    own_T = torch.isin(packed.segment_T, own_N)
    whole: list[Tensor] = []
    for value in values:
        others_T = scatter_shares(packed, [(own_N, value)] if is_own else [], ranks)
        # A rank without rollouts takes part in the backward pass of a sharded model with a gradient of 0.
        whole.append(others_T.masked_scatter(own_T, value) if is_own else others_T + 0 * value.sum())
    return whole
