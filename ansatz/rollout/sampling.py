"""Sampling of tokens: counter-based noise, and the distribution after temperature, top-k, top-p and min-p.

Axes: B rows, V vocabulary, C contenders (tokens that could win), N rows that need exact noise. A token is chosen by
Gumbel-max: the largest logit + noise wins. The noise of a token at a position depends only on (seed, step, problem,
sample, position, token). It depends neither on a token's batch, slot or order, nor on the device.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import math
from types import ModuleType

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB
_TOKEN_STEP = -1640531535  # 0x9E3779B1 as a signed 32-bit integer
_TOKEN_MIX_1 = 0x21F0AAAD
_TOKEN_MIX_2 = 0x735A2D97
_MARGIN = 1e-3  # by which noisy masses in float32 can be wrong, as a share; rounding gives 2e-4 at most
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD  # of the float64 number sqrt(1/2)
_LN2 = 0.6931471805599453


def noise_key(seed: int, step: int, problem_id: str, sample: int) -> int:
    """Return a signed 64-bit key for one rollout's stream of noise."""
    digest = hashlib.blake2b(f"{seed}/{step}/{sample}/{problem_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def draw_seeds(key_B: Tensor, position_B: Tensor) -> Tensor:
    """Return the seeds [B, 2, 2] of each row's noise at a position, int32: for the upper and the lower bits of its
    numbers two each. They are the outputs 2 x position + 1 and 2 x position + 2, counted from 1, of SplitMix64 (Steele,
    Lea and Flood, 2014) with the key as its seed."""
    counter_B2 = 2 * position_B[:, None] + torch.arange(1, 3, device=position_B.device)
    z = key_B[:, None] + counter_B2 * _GOLDEN
    # torch shifts signed integers with copies of the sign; here and below, the mask after a shift removes the copies.
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * _MIX_1
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * _MIX_2
    z = z ^ ((z >> 31) & 0x1FFFFFFFF)
    return torch.stack((z, z >> 32), -1).to(torch.int32)  # keeps the lower 32 bits


def draw_noise(seed_B22: Tensor, token_BC: Tensor) -> Tensor:
    """Return the Gumbel noise [B, C] of some tokens, float64, with the same bits on every device.

    It is -log(-log(1 - x)) to 1e-9, and x is a multiple of 2^-63 plus 2^-64. The noise therefore lies between
    -3.7 and 44.4, and the grid of x shows only in probabilities below 2^-60. There are only sums, products and
    quotients in it, which every device rounds correctly, and no library's logarithm.
    """
    bits_B2C = _mix((token_BC.to(torch.int32) * _TOKEN_STEP)[:, None], seed_B22[..., None]).long()
    whole_BC = ((bits_B2C[:, 0] & 0x7FFFFFFF) << 32) | (bits_B2C[:, 1] & 0xFFFFFFFF)
    x_BC = ((whole_BC.double() + 0.5) * 2.0**-63).clamp(max=1 - 2.0**-53)
    # The first quotient belongs to log(1 - x), without the digits that 1 - x would lose if x is small.
    exponent_BC, quotient_BC = _split(1 - x_BC)
    is_small_BC = x_BC < 0.25
    quotient_BC = torch.where(is_small_BC, x_BC / (x_BC - 2), quotient_BC)
    exponential_BC = -_log(exponent_BC.masked_fill(is_small_BC, 0.0), quotient_BC)
    return -_log(*_split(exponential_BC))


def _mix(token: Tensor, seed: Tensor) -> Tensor:
    """Compute hashes of 32-bit integers with two seeds [..., 2, 1] by the bijection `lowbias32` (Wellons, 2018). The
    first seed enters at its beginning and the second one in its middle."""
    value = token + seed[..., 0, :]
    shifted = value >> 16
    value ^= shifted.bitwise_and_(0xFFFF)
    value *= _TOKEN_MIX_1
    value ^= seed[..., 1, :]
    value ^= torch.bitwise_right_shift(value, 15, out=shifted).bitwise_and_(0x1FFFF)
    value *= _TOKEN_MIX_2
    value ^= torch.bitwise_right_shift(value, 15, out=shifted).bitwise_and_(0x1FFFF)
    return value


def _split(y: Tensor) -> tuple[Tensor, Tensor]:
    """Return (exponent, quotient) of positive normal float64 numbers, y = 2^exponent x m with m in [0.7, 1.42): the
    exponent and (m - 1) / (m + 1)."""
    bits = y.view(torch.int64) - _SQRT_HALF_BITS
    exponent = bits >> 52
    m = ((bits & 0x000FFFFFFFFFFFFF) + _SQRT_HALF_BITS).view(torch.float64)
    return exponent.double(), (m - 1) / (m + 1)


def _log(exponent: Tensor, quotient: Tensor) -> Tensor:
    """Compute exponent x log(2) + log((1 + quotient) / (1 - quotient)) to 1e-11, by the series of 2 atanh(quotient)."""
    square = quotient * quotient
    total = square * (1 / 13) + 1 / 11
    for power in range(9, 0, -2):
        total = total * square + 1 / power
    return exponent * _LN2 + (2 * quotient) * total


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
    seed_B22: Tensor,
    *,
    top_k: int,
    top_p: float,
    min_p: float = 0.0,
    greedy: bool,
    with_counts: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Sample one token per row: (token_B, behavior_logp_B, num_candidates_B), the token, its log-prob (float32)
    under the distribution that it was sampled from, and the number of tokens that distribution could give.

    logits_BV: already divided by the temperature; float32, or on a GPU the type of the model.
    seed_B22: of `draw_seeds`. Of equal noisy logits, the smallest token wins.
    greedy: take the largest logit, with log-prob 0 and 1 candidate.
    with_counts: False: num_candidates_B is 0, which saves reading all logits once more.
    """
    if greedy:
        token_B = logits_BV.argmax(-1)
        return token_B, torch.zeros_like(token_B, dtype=torch.float32), torch.ones_like(token_B)
    if top_k or top_p < 1.0 or min_p:
        logits_BV = filter_logits(logits_BV.float(), top_k=top_k, top_p=top_p, min_p=min_p)
    num_candidates_B = (logits_BV > -torch.inf).sum(-1) if with_counts else seed_B22.new_zeros(len(logits_BV)).long()
    if (kernels := kernels_on(logits_BV.device)) is not None:  # their find_winners also adds up the exponentials
        token_B1, log_total_B1 = kernels.find_winners(logits_BV, seed_B22)
    else:
        largest_B1 = logits_BV.amax(-1, keepdim=True)
        mass_BV = (logits_BV - largest_B1).exp_()
        log_total_B1 = mass_BV.sum(-1, keepdim=True).log_().add_(largest_B1)
        token_B1 = find_winners(logits_BV, mass_BV, seed_B22)
    logp_B1 = logits_BV.gather(-1, token_B1).float() - log_total_B1
    return token_B1.squeeze(-1), logp_B1.squeeze(-1), num_candidates_B


@functools.cache
def kernels_on(device: torch.device) -> ModuleType | None:
    """Return the kernels that choose tokens on this device; None if there are none."""
    if device.type == "cuda" and importlib.util.find_spec("triton") is not None:
        return importlib.import_module("ansatz.rollout.gumbel_kernels")
    compiled = importlib.import_module("ansatz.rollout.native.cpu_kernels")
    return compiled if device.type == "cpu" and compiled.library() is not None else None


def _add_noise(mass_BV: Tensor, high_BV: Tensor) -> Tensor:
    """Return the noisy masses, exp(logit + noise), in float32, from the upper 31 bits of all noise, in the memory of
    mass_BV, the exponentials of the logits. Gumbel noise is -log of an exponential variable E, so each noisy mass
    is mass / E.

    They bound the exact values from above, except for rounding: lower bits make the noise smaller.
    """
    x_BV = high_BV.float().mul_(2.0**-31).clamp_(min=2.0**-60)  # without the bound, 0 / 0 would be NaN
    # 1 - x is exact before it is rounded: float32 rounds the largest x to 1. -log(1 - x) is at least x, which has the
    # digits that 1 - x loses if x is small.
    return mass_BV.div_(high_BV.add(-(2**31)).float().mul_(-(2.0**-31)).log_().neg_().clamp_(min=x_BV))


def find_winners(logits_BV: Tensor, mass_BV: Tensor, seed_B22: Tensor) -> Tensor:
    """Return the token [B, 1] with the largest logit + noise, the smallest one of equals. Overwrites mass_BV, the
    exponentials of the logits up to a factor of each row.

    Only tokens that could win by their upper bounds get their exact noise. Most rows contain one such token, which then
    needs none.
    """
    token_V = torch.arange(mass_BV.shape[-1], dtype=torch.int32, device=mass_BV.device)
    high_BV = _mix(token_V * _TOKEN_STEP, seed_B22[:, 0, :, None]).bitwise_and_(0x7FFFFFFF)
    race_BV = _add_noise(mass_BV, high_BV)
    bound_B1 = race_BV.amax(-1, keepdim=True) * (1 - _MARGIN)
    could_win_BV = (race_BV >= bound_B1).float()
    token_B1 = (could_win_BV * token_V).amax(-1, keepdim=True).long()  # the last token that could win
    # Near the smallest and the largest upper bits of a winner, its lower ones can matter.
    inside_BV = torch.minimum(high_BV, 0x7FFFFFFF - high_BV)
    is_sure_B1 = (could_win_BV.sum(-1, keepdim=True) == 1.0) & (inside_BV.gather(-1, token_B1) > 1 / _MARGIN)
    row_N = (~is_sure_B1[:, 0]).nonzero()[:, 0]
    if len(row_N):
        # There, the lower bits can make a noisy mass smaller by this factor at most.
        least_N1 = inside_BV[row_N].float().masked_fill_(could_win_BV[row_N] == 0.0, torch.inf).amin(-1, keepdim=True)
        index_C, token_C = (race_BV[row_N] >= bound_B1[row_N] * (1 - 1 / (least_N1 + 1))).nonzero(as_tuple=True)
        row_C = row_N[index_C]
        noisy_C = logits_BV[row_C, token_C].double() + draw_noise(seed_B22[row_C], token_C[:, None])[:, 0]
        best_N = noisy_C.new_full((len(row_N),), -torch.inf).scatter_reduce_(0, index_C, noisy_C, "amax")
        is_best_C = noisy_C == best_N[index_C]
        token_N = torch.full_like(row_N, race_BV.shape[-1])
        token_B1[row_N, 0] = token_N.scatter_reduce_(0, index_C[is_best_C], token_C[is_best_C], "amin")
    return token_B1
