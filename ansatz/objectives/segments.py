"""Sums, means and scans over the segments of a flat axis: tokens of a rollout, rollouts of a prompt.

Axes: T flat tokens (or N rollouts), S segments; `segment_T` holds the segment of each entry, 0..S-1. Scans need the
entries of each segment to be in order and contiguous.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor


def renumbered(label_N: Tensor) -> tuple[Tensor, int]:
    """Renumber integer labels to 0..S-1 in ascending order; return them and S."""
    label_S = cast(Tensor, label_N.unique())  # pyright: ignore[reportUnknownMemberType]
    return torch.searchsorted(label_S, label_N), len(label_S)


def count(segment_T: Tensor, num_segments: int) -> Tensor:
    """Count the entries of each segment, shape S, int64."""
    return torch.bincount(segment_T, minlength=num_segments)


def total(value_T: Tensor, segment_T: Tensor, num_segments: int) -> Tensor:
    """Sum the entries of each segment, shape S."""
    return value_T.new_zeros(num_segments).index_add(0, segment_T, value_T)


def mean(value_T: Tensor, segment_T: Tensor, num_segments: int) -> Tensor:
    """Average the entries of each segment, shape S; 0 for an empty segment."""
    return total(value_T, segment_T, num_segments) / count(segment_T, num_segments).clamp(min=1)


def largest(value_T: Tensor, segment_T: Tensor, num_segments: int) -> Tensor:
    """Return the maximum of each segment, shape S; -inf for an empty segment."""
    empty_S = value_T.new_full((num_segments,), -torch.inf)
    return empty_S.scatter_reduce(0, segment_T, value_T, "amax")


def num_segments(segment_T: Tensor) -> int:
    return int(segment_T.max()) + 1 if len(segment_T) else 0


def padded_index(segment_T: Tensor) -> tuple[Tensor, int]:
    """Return the position of each entry in a row-major S x L rectangle, and L, the length of the longest segment."""
    length_S = count(segment_T, num_segments(segment_T))
    start_S = length_S.cumsum(0) - length_S
    position_T = torch.arange(len(segment_T), device=segment_T.device) - start_S[segment_T]
    longest = int(length_S.max()) if len(length_S) else 0
    return segment_T * longest + position_T, longest


def discounted_sum(value_T: Tensor, segment_T: Tensor, factor: float | Tensor) -> Tensor:
    """Compute y[t] = x[t] + factor * y[t + 1] within each segment, shape T: the sum of all values still to come.

    factor: a number, or one per segment (shape S).
    """
    if len(value_T) == 0:
        return value_T
    index_T, longest = padded_index(segment_T)
    rows = num_segments(segment_T)
    padded_SL = value_T.new_zeros(rows * longest).index_copy(0, index_T, value_T).view(rows, longest)
    columns: list[Tensor] = []
    running_S = value_T.new_zeros(rows)
    for column_S in reversed(padded_SL.unbind(1)):
        running_S = column_S + factor * running_S
        columns.append(running_S)
    return torch.stack(columns[::-1], 1).reshape(-1)[index_T]


def next_in_segment(value_T: Tensor, segment_T: Tensor) -> Tensor:
    """Return the following entry of the same segment, 0 at its last, shape T."""
    following_T = torch.cat([value_T[1:], value_T.new_zeros(1)])[: len(value_T)]
    return following_T * ~last_of_segment(segment_T)


def last_of_segment(segment_T: Tensor) -> Tensor:
    """Mark each segment's last entry with True, shape T."""
    last_T = torch.ones_like(segment_T, dtype=torch.bool)
    last_T[:-1] = segment_T[1:] != segment_T[:-1]
    return last_T


def centered(value_N: Tensor, segment_N: Tensor, num_segments: int) -> Tensor:
    """Subtract the mean of each entry's segment, shape N; exactly 0 where all entries of a segment are equal.

    Without the exact zero, the rounding error of the mean, divided by a tiny epsilon, would become a large advantage.
    """
    mean_S = mean(value_N, segment_N, num_segments)
    highest_S = largest(value_N, segment_N, num_segments)
    lowest_S = -largest(-value_N, segment_N, num_segments)
    return torch.where((highest_S > lowest_S)[segment_N], value_N - mean_S[segment_N], torch.zeros_like(value_N))


def deviation(centered_N: Tensor, segment_N: Tensor, num_segments: int, *, ddof: int) -> Tensor:
    """Return the standard deviation of each segment's centred values, shape S; ddof 1 for a sample, 0 for a
    population."""
    freedom_S = (count(segment_N, num_segments) - ddof).clamp(min=1)
    return (total(centered_N**2, segment_N, num_segments) / freedom_S).sqrt()
