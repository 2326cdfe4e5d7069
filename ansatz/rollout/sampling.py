"""Drawing tokens: counter-based noise, and one distribution after temperature, top-k, top-p and min-p.

Axes: B rows, V vocabulary. One uniform number a token, made from (seed, step, problem, sample, position) alone, picks
it by inverting the cumulative distribution; so a token's noise does not depend on batch, slot or order. Noise and
cumulative sums are float64: in float32 the tail of a large vocabulary, tokens below 6e-8 each, comes out in lumps.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB


def noise_key(seed: int, step: int, problem_id: str, sample: int) -> int:
    """A signed 64-bit key for one rollout's stream of uniforms."""
    digest = hashlib.blake2b(f"{seed}/{step}/{sample}/{problem_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def uniforms(key_B: Tensor, position_B: Tensor) -> Tensor:
    """Uniform float64 numbers in [0, 1), one a row: SplitMix64 (Steele, Lea and Flood, 2014) at counter `position`."""
    z = key_B + (position_B + 1) * _GOLDEN
    z = (z ^ _shift(z, 30)) * _MIX_1
    z = (z ^ _shift(z, 27)) * _MIX_2
    z = z ^ _shift(z, 31)
    return _shift(z, 11).double() * 2.0**-53


def _shift(z: Tensor, bits: int) -> Tensor:
    """Logical right shift of signed 64-bit integers."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def restrict(logits_BV: Tensor, *, top_k: int, top_p: float, min_p: float = 0.0) -> Tensor:
    """Logits with everything outside the support at -inf: the top_k largest (0: all; tokens that tie with the last of
    them stay too), then of these the smallest set whose mass reaches top_p, of equal tokens those with the smaller ids
    (the token that passes the bound included; Holtzman et al., arXiv:1904.09751), then of these the ones at least
    min_p times as likely as the likeliest (0: all; Nguyen et al., arXiv:2407.01082)."""
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


def draw(
    logits_BV: Tensor, uniform_B: Tensor, *, top_k: int, top_p: float, min_p: float = 0.0, greedy: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """(token_B, logp_B, size_B): a token a row, its log-prob, float32, under the distribution that it was drawn from,
    and the number of tokens in that distribution's support.

    logits_BV: float32, already over temperature. greedy: the largest logit, with log-prob 0 and a support of 1.
    """
    if greedy:
        token_B = logits_BV.argmax(-1)
        return token_B, logits_BV.new_zeros(len(token_B)), torch.ones_like(token_B)
    logits_BV = restrict(logits_BV, top_k=top_k, top_p=top_p, min_p=min_p)
    logp_BV = logits_BV.log_softmax(-1)
    mass_BV = logp_BV.exp().cumsum(-1, dtype=torch.float64)
    target_B1 = uniform_B[:, None] * mass_BV[:, -1:]
    token_B1 = torch.searchsorted(mass_BV, target_B1, right=True).clamp(max=mass_BV.shape[-1] - 1)
    size_B = (logits_BV > -torch.inf).sum(-1)
    return token_B1.squeeze(-1), logp_BV.gather(-1, token_B1).squeeze(-1), size_B
