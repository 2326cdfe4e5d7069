"""Triton kernels that choose tokens on a GPU: they read the logits once, and the few that could win once more.

The noise comes from `sampling.draw_noise`, with the same bits. Axes: B rows, V vocabulary, T tiles of it.

This module needs the package triton, which comes with torch for CUDA.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE = 2048  # tokens that a program reads
_SQRT_HALF_BITS: tl.constexpr = tl.constexpr(0x3FE6A09E667F3BCD)  # of the float64 number sqrt(1/2)


@triton.jit
def _bits(token, seeds, row, half: tl.constexpr):
    """Return 32 bits of the noise as an unsigned integer: half 0 holds the upper ones."""
    first = tl.load(seeds + row * 4 + 2 * half).to(tl.uint32, bitcast=True)
    second = tl.load(seeds + row * 4 + 2 * half + 1).to(tl.uint32, bitcast=True)
    value = token.to(tl.uint32) * 0x9E3779B1 + first
    value = (value ^ (value >> 16)) * 0x21F0AAAD
    value = value ^ second
    value = (value ^ (value >> 15)) * 0x735A2D97
    return value ^ (value >> 15)


@triton.jit
def _race(logits, seeds, partial, vocab, tiles, TILE: tl.constexpr, KEPT: tl.constexpr):
    """Find the tokens of a tile that lead with noise in float32, the largest logit, and the sum of exponentials."""
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token, field = tile * TILE + tl.arange(0, TILE), partial + row * (2 * KEPT + 2) * tiles + tile
    logit = tl.load(logits + row * vocab + token, mask=token < vocab, other=-float("inf")).to(tl.float32)
    highest = tl.max(logit, 0)
    tl.store(field + 2 * KEPT * tiles, highest)
    mass = tl.exp(logit - tl.where(highest == -float("inf"), 0.0, highest))
    tl.store(field + (2 * KEPT + 1) * tiles, tl.sum(mass, 0))
    high = _bits(token, seeds, row, 0) & 0x7FFFFFFF
    x = (high.to(tl.float32) + 0.5) * 2.0**-31
    rest = ((0x7FFFFFFF - high).to(tl.float32) + 0.5) * 2.0**-31  # 1 - x, before float32 rounds the largest x to 1
    series = x * (1 + x * (0.5 + x * (1.0 / 3 + x * 0.25)))  # rest has lost the digits of a small x
    score = logit - tl.log(tl.where(x < 0.02, series, -tl.log(rest)))
    for place in tl.static_range(KEPT):
        best, leader = tl.max(score, 0, return_indices=True)
        tl.store(field + place * tiles, best)
        tl.store(field + (KEPT + place) * tiles, (tile * TILE + leader).to(tl.float32))
        score = tl.where(token == tile * TILE + leader, -float("inf"), score)


@triton.jit
def _log(exponent, quotient):
    square = quotient * quotient
    total = square * (1.0 / 13) + 1.0 / 11
    total = total * square + 1.0 / 9
    total = total * square + 1.0 / 7
    total = total * square + 1.0 / 5
    total = total * square + 1.0 / 3
    total = total * square + 1.0
    return exponent * 0.6931471805599453 + (2 * quotient) * total


@triton.jit
def _split_log(y):
    """Compute `sampling._log(*sampling._split(y))`."""
    bits = y.to(tl.int64, bitcast=True) - _SQRT_HALF_BITS
    m = ((bits & 0x000FFFFFFFFFFFFF) + _SQRT_HALF_BITS).to(tl.float64, bitcast=True)
    return _log((bits >> 52).to(tl.float64), (m - 1) / (m + 1))


@triton.jit
def noise_of(token, seeds, row):
    """Compute `sampling.draw_noise`, operation by operation."""
    high, low = _bits(token, seeds, row, 0).to(tl.int64) & 0x7FFFFFFF, _bits(token, seeds, row, 1).to(tl.int64)
    x = (((high << 32) | low).to(tl.float64) + 0.5) * 2.0**-63
    x = tl.where(x > 1 - 2.0**-53, 1 - 2.0**-53, x)
    exponential = -tl.where(x < 0.25, _log(0.0 * x, x / (x - 2)), _split_log(1 - x))
    return -_split_log(exponential)


@triton.jit
def _decide(
    logits, seeds, partial, winners, log_totals, vocab, tiles, TILES: tl.constexpr, KEPT: tl.constexpr
):  # fmt: skip
    """Give the four leaders of all tiles in a row their exact noise, and put its sums together."""
    row = tl.program_id(0).to(tl.int64)
    field, tile = partial + row * (2 * KEPT + 2) * tiles, tl.arange(0, TILES)
    high = tl.load(field + 2 * KEPT * tiles + tile, mask=tile < tiles, other=-float("inf"))
    total = tl.load(field + (2 * KEPT + 1) * tiles + tile, mask=tile < tiles, other=0.0)
    highest = tl.max(high, 0)
    tl.store(log_totals + row, highest + tl.log(tl.sum(total * tl.exp(high - highest), 0)))
    place = tl.arange(0, TILES * KEPT)
    at, is_kept = place // TILES * tiles + place % TILES, place % TILES < tiles
    score = tl.load(field + at, mask=is_kept, other=-float("inf"))
    token = tl.load(field + KEPT * tiles + at, mask=is_kept, other=0.0).to(tl.int32)
    best, winner = tl.full((), -float("inf"), tl.float64), vocab
    for _ in tl.static_range(4):
        leading, leader = tl.max(score, 0, return_indices=True)
        finalist = tl.sum(tl.where(place == leader, token, 0), 0)
        noisy = tl.load(logits + row * vocab + finalist).to(tl.float32).to(tl.float64) + noise_of(finalist, seeds, row)
        wins = (leading > -float("inf")) & ((noisy > best) | ((noisy == best) & (finalist < winner)))
        best, winner = tl.where(wins, noisy, best), tl.where(wins, finalist, winner)
        score = tl.where(place == leader, -float("inf"), score)
    tl.store(winners + row, winner.to(tl.int64))


def find_winners(logits_BV: Tensor, seed_B22: Tensor) -> tuple[Tensor, Tensor]:
    """Return the token with the largest logit + noise, the smallest one of equals, and log(sum(exp(logits))), each
    [B, 1].

    logits_BV: float32 or the type of the model, V < 2^24. The two leaders of each tile are kept, by the upper bits of
    the noise in float32, and the four best of all leaders get their exact noise. Another token could win only if three
    in a tile were closer to each other than the upper bits tell. The probability of that is below 1e-12.
    """
    logits_BV, seed_B22 = logits_BV.contiguous(), seed_B22.contiguous()
    rows, vocab = logits_BV.shape
    tiles, kept = triton.cdiv(vocab, _TILE), 2
    partial = logits_BV.new_empty(rows, 2 * kept + 2, tiles, dtype=torch.float32)
    winner_B1, log_total_B1 = seed_B22.new_empty(rows, 1, dtype=torch.int64), partial.new_empty(rows, 1)
    _race[(rows, tiles)](logits_BV, seed_B22, partial, vocab, tiles, TILE=_TILE, KEPT=kept, num_warps=4)
    # A product and a sum that are rounded once would have other bits than on a CPU.
    whole = {"TILES": triton.next_power_of_2(tiles), "KEPT": kept, "enable_fp_fusion": False}
    _decide[(rows,)](logits_BV, seed_B22, partial, winner_B1, log_total_B1, vocab, tiles, **whole)
    return winner_B1, log_total_B1
