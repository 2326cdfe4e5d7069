"""Sampling of tokens: counter-based noise, and the distribution after temperature, top-k, top-p and min-p.

Axes: B rows, V vocabulary. Each token is picked by one uniform number, which inverts the cumulative distribution. The
number depends only on (seed, step, problem, sample, position), so a token's noise does not depend on its batch, slot
or order. Noise and cumulative sums are float64: in float32, tokens of a large vocabulary with probabilities below 6e-8
could only be sampled in lumps.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB
_BLOCK = 2048  # tokens of a vocabulary that are searched at once


def noise_key(seed: int, step: int, problem_id: str, sample: int) -> int:
    """Return a signed 64-bit key for one rollout's stream of uniform numbers."""
    digest = hashlib.blake2b(f"{seed}/{step}/{sample}/{problem_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def uniforms(key_B: Tensor, position_B: Tensor) -> Tensor:
    """Draw one uniform float64 number in [0, 1) per row: SplitMix64 (Steele, Lea and Flood, 2014) at counter
    `position`."""
    z = key_B + (position_B + 1) * _GOLDEN
    z = (z ^ _shift(z, 30)) * _MIX_1
    z = (z ^ _shift(z, 27)) * _MIX_2
    z = z ^ _shift(z, 31)
    return _shift(z, 11).double() * 2.0**-53


def _shift(z: Tensor, bits: int) -> Tensor:
    """Shift signed 64-bit integers to the right logically."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def filter_logits(logits_BV: Tensor, *, top_k: int, top_p: float, min_p: float = 0.0) -> Tensor:
    """Return the logits, with -inf for every token that is not a candidate. Three filters apply in turn:

    top_k: the k largest logits, and all that tie with the k-th. 0 keeps all.
    top_p: the smallest set of the most likely tokens whose probability reaches top_p. The token that passes the bound
        stays; of equally likely tokens, the smaller ids come first (Holtzman et al., arXiv:1904.09751).
    min_p: tokens at least min_p times as likely as the most likely one. 0 keeps all (Nguyen et al., arXiv:2407.01082).
    """
    if 0 < top_k < logits_BV.shape[-1]:
        bound_B1 = logits_BV.topk(top_k, dim=-1).values[:, -1:]
        logits_BV = logits_BV.masked_fill(logits_BV < bound_B1, -torch.inf)
    if top_p < 1.0:
        sorted_BV, order_BV = logits_BV.sort(dim=-1, descending=True, stable=True)
        mass_BV = sorted_BV.softmax(-1)
        drop_BV = mass_BV.cumsum(-1) - mass_BV >= top_p
        logits_BV = logits_BV.masked_fill(torch.zeros_like(drop_BV).scatter(-1, order_BV, drop_BV), -torch.inf)
    if min_p > 0.0:
        bound_B1 = logits_BV.amax(-1, keepdim=True) + math.log(min_p)
        logits_BV = logits_BV.masked_fill(logits_BV < bound_B1, -torch.inf)
    return logits_BV


def sample_tokens(
    logits_BV: Tensor,
    uniform_B: Tensor,
    *,
    top_k: int,
    top_p: float,
    min_p: float = 0.0,
    greedy: bool,
    count: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Sample one token per row: (token_B, behavior_logp_B, num_candidates_B), the token, its log-prob (float32)
    under the distribution that it was sampled from, and the number of tokens that distribution could give.

    logits_BV: float32, already divided by the temperature.
    greedy: take the largest logit, with log-prob 0 and 1 candidate.
    count: False: the number of tokens is 0, which saves reading all logits once more.
    """
    if greedy:
        token_B = logits_BV.argmax(-1)
        return token_B, logits_BV.new_zeros(len(token_B)), torch.ones_like(token_B)
    logits_BV = filter_logits(logits_BV, top_k=top_k, top_p=top_p, min_p=min_p)
    logp_BV = logits_BV.log_softmax(-1)
    token_B1 = _invert(logp_BV.exp(), uniform_B[:, None])
    logp_B1 = logp_BV.gather(-1, token_B1)
    num_candidates_B = (logits_BV > -torch.inf).sum(-1) if count else token_B1.new_zeros(len(token_B1))
    return token_B1.squeeze(-1), logp_B1.squeeze(-1), num_candidates_B


def _invert(mass_BV: Tensor, uniform_B1: Tensor) -> Tensor:
    """Find the token [B, 1] at which the running sum of each row passes uniform times the row's sum.

    A large vocabulary is first searched by blocks: running sums of all its tokens would take most of the time.
    """
    num_tokens = mass_BV.shape[-1]
    if num_tokens <= _BLOCK:
        return _first_beyond(mass_BV, uniform_B1)[0]
    num_whole = num_tokens // _BLOCK
    whole_BN = mass_BV[:, : num_whole * _BLOCK].unflatten(-1, (num_whole, _BLOCK)).sum(-1, dtype=torch.float64)
    rest_B1 = mass_BV[:, num_whole * _BLOCK :].sum(-1, keepdim=True, dtype=torch.float64)
    block_B1, within_B1 = _first_beyond(torch.cat((whole_BN, rest_B1), -1), uniform_B1)
    place_BC = block_B1 * _BLOCK + torch.arange(_BLOCK, device=mass_BV.device)
    chosen_BC = mass_BV.gather(-1, place_BC.clamp(max=num_tokens - 1)).masked_fill(place_BC >= num_tokens, 0.0)
    return (block_B1 * _BLOCK + _first_beyond(chosen_BC, within_B1)[0]).clamp(max=num_tokens - 1)


def _first_beyond(mass_BC: Tensor, fraction_B1: Tensor) -> tuple[Tensor, Tensor]:
    """Find (index_B1, within_B1): the first entry at which the running sum passes fraction times the whole sum, and
    how far into that entry the bound is, as a fraction of it."""
    sum_BC = mass_BC.cumsum(-1, dtype=torch.float64)
    target_B1 = fraction_B1 * sum_BC[:, -1:]
    index_B1 = torch.searchsorted(sum_BC, target_B1, right=True).clamp(max=mass_BC.shape[-1] - 1)
    size_B1 = mass_BC.gather(-1, index_B1).double()
    before_B1 = sum_BC.gather(-1, index_B1) - size_B1
    return index_B1, ((target_B1 - before_B1) / size_B1).clamp(0.0, 1 - 1e-12)  # below 1: the last entry may be 0
