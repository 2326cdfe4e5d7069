"""Log-probs and entropies of given tokens, in chunks: a [tokens, vocabulary] tensor exists for one chunk only.

Axes: T flat tokens, M the ones asked for, C tokens of a chunk, V vocabulary, H hidden.
logp_m = z_y / t - logsumexp(z / t); entropy_m = -sum_v p_v log p_v, both in nats with temperature t. The backward pass
computes each chunk's logits again: d logp / dz = (onehot_y - p) / t and d entropy / dz = -p (log p + entropy) / t.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from ansatz.models.load import Policy, head_logits
from ansatz.models.packing import round_up
from ansatz.objectives.kl import exact_kl

CHUNK_LOGITS = 2**23  # logits of a chunk: 32 MB in float32


class _ChunkedLogps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_MH: Tensor,
        weight_VH: Tensor,
        target_M: Tensor,
        support_M: Tensor | None,
        endless_M: Tensor | None,
        end_ids: Sequence[int],
        temperature: float,
    ) -> tuple[Tensor, Tensor]:
        logp_M = hidden_MH.new_empty(len(target_M), dtype=torch.float32)
        entropy_M = torch.empty_like(logp_M)
        for rows in _chunks(len(target_M), len(weight_VH)):
            log_p_CV = _log_p(hidden_MH, weight_VH, target_M, support_M, endless_M, end_ids, temperature, rows)
            logp_M[rows] = log_p_CV.gather(-1, target_M[rows, None]).squeeze(-1)
            entropy_M[rows] = torch.special.entr(log_p_CV.exp()).sum(-1)
        ctx.save_for_backward(hidden_MH, weight_VH, target_M, support_M, endless_M, entropy_M)
        ctx.how = end_ids, temperature
        return logp_M, entropy_M

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None, None, None, None]:
        grad_logp_M, grad_entropy_M = grads
        hidden_MH, weight_VH, target_M, support_M, endless_M, entropy_M = ctx.saved_tensors
        end_ids, temperature = ctx.how
        grad_hidden_MH = torch.empty_like(hidden_MH)
        grad_weight_VH = torch.zeros_like(weight_VH, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        has_entropy_grad = bool(grad_entropy_M.any())
        for rows in _chunks(len(target_M), len(weight_VH)):
            log_p_CV = _log_p(hidden_MH, weight_VH, target_M, support_M, endless_M, end_ids, temperature, rows)
            p_CV = log_p_CV.exp()
            grad_CV = p_CV * -grad_logp_M[rows, None]
            grad_CV.scatter_add_(-1, target_M[rows, None], grad_logp_M[rows, None])
            if has_entropy_grad:
                surprise_CV = p_CV * entropy_M[rows, None] - torch.special.entr(p_CV)
                grad_CV -= surprise_CV * grad_entropy_M[rows, None]
            grad_CV = (grad_CV / temperature).to(weight_VH.dtype)
            grad_hidden_MH[rows] = grad_CV @ weight_VH
            if grad_weight_VH is not None:
                grad_weight_VH += grad_CV.t() @ hidden_MH[rows]
        own = None if grad_weight_VH is None else grad_weight_VH.to(weight_VH.dtype)
        return grad_hidden_MH, own, None, None, None, None, None


def _log_p(
    hidden_MH: Tensor,
    weight_VH: Tensor,
    target_M: Tensor,
    support_M: Tensor | None,
    endless_M: Tensor | None,
    end_ids: Sequence[int],
    temperature: float,
    rows: slice,
) -> Tensor:
    """Log-probs [C, V] of a chunk; with supports over each row's likeliest tokens (and its target) alone, else -inf.
    In endless rows the end tokens are left out before the likeliest are counted, as the sampler does.

    Of equal tokens those with the smaller ids are in, as in `rollout.sampling.restrict`: bfloat16 makes many equal.
    """
    logits_CV = head_logits(hidden_MH[rows], weight_VH, temperature)
    if endless_M is not None:
        logits_CV = without_ends(logits_CV, endless_M[rows], end_ids)
    if support_M is not None:
        order_CV = logits_CV.sort(dim=-1, descending=True, stable=True).indices
        beyond_CV = torch.arange(logits_CV.shape[-1], device=logits_CV.device) >= support_M[rows, None]
        outside_CV = (
            torch.zeros_like(beyond_CV).scatter(-1, order_CV, beyond_CV).scatter(-1, target_M[rows, None], False)
        )
        logits_CV = logits_CV.masked_fill(outside_CV, -torch.inf)
    return logits_CV.log_softmax(-1)


def without_ends(logits_CV: Tensor, endless_C: Tensor, end_ids: Sequence[int]) -> Tensor:
    """The logits with the end tokens at -inf in the rows of endless_C: for sampler and trainer."""
    column_E = [token for token in end_ids if token < logits_CV.shape[-1]]
    logits_CV = logits_CV.clone()
    logits_CV[:, column_E] = logits_CV[:, column_E].masked_fill(endless_C[:, None], -torch.inf)
    return logits_CV


def chunked_logps(
    hidden_MH: Tensor,
    weight_VH: Tensor,
    target_M: Tensor,
    *,
    support_M: Tensor | None = None,
    endless_M: Tensor | None = None,
    end_ids: Sequence[int] = (),
    temperature: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """(logp_M, entropy_M), float32 nats, differentiable in hidden_MH and weight_VH.

    support_M: how many tokens, the likeliest ones, each distribution is restricted to; None: the whole vocabulary.
    endless_M: True where end_ids cannot come; None: they always can.
    """
    num_tokens = len(target_M)
    fill = round_up(num_tokens, 256) - num_tokens  # kernels are compiled for each new shape
    logp_M, entropy_M = _ChunkedLogps.apply(  # pyright: ignore[reportGeneralTypeIssues]
        nn.functional.pad(hidden_MH, (0, 0, 0, fill)),
        weight_VH,
        nn.functional.pad(target_M, (0, fill)),
        None if support_M is None else nn.functional.pad(support_M, (0, fill), value=1),
        None if endless_M is None else nn.functional.pad(endless_M, (0, fill)),
        end_ids,
        temperature,
    )
    return logp_M[:num_tokens], entropy_M[:num_tokens]


def chunked_kl(
    hidden_MH: Tensor, weight_VH: Tensor, ref_hidden_MH: Tensor, ref_weight_VH: Tensor, *, temperature: float = 1.0
) -> Tensor:
    """KL(policy || reference) of each token's whole distribution, [M] float32 nats, differentiable in the policy's two.

    A chunk's logits are computed again in the backward pass, so they exist for one chunk only.
    """

    def kl(hidden_CH: Tensor, ref_hidden_CH: Tensor) -> Tensor:
        log_p_CV = head_logits(hidden_CH, weight_VH, temperature).log_softmax(-1)
        log_q_CV = head_logits(ref_hidden_CH, ref_weight_VH, temperature).log_softmax(-1)
        return exact_kl(log_p_CV, log_q_CV)

    chunks = [
        checkpoint(kl, hidden_MH[rows], ref_hidden_MH[rows], use_reentrant=False)
        for rows in _chunks(len(hidden_MH), len(weight_VH))
    ]
    return torch.cat(chunks) if chunks else hidden_MH.new_zeros(0, dtype=torch.float32)  # pyright: ignore


def token_logps(
    policy: Policy,
    token_T: Tensor,
    position_T: Tensor,
    segment_T: Tensor,
    mask_T: Tensor,
    *,
    prompt_id_T: Tensor | None = None,
    num_candidates_T: Tensor | None = None,
    no_eos_T: Tensor | None = None,
    temperature: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """(logp_T, entropy_T) of the tokens in mask_T given what precedes them in their segment; 0 elsewhere.

    segment_T: 0..N-1, ascending. The first token of a segment has no log-prob and must not be in mask_T.
    prompt_id_T: as in `Policy.packed_hidden`. num_candidates_T: the number of tokens that each was drawn from, under
    top-k,
    top-p or min-p; None: the whole vocabulary. no_eos_T: True where the end tokens could not be drawn.
    """
    before_M = mask_T.nonzero().squeeze(-1) - 1
    hidden_MH = policy.packed_hidden(token_T, position_T, segment_T, prompt_id_T=prompt_id_T, at_M=before_M)
    logp_M, entropy_M = chunked_logps(
        hidden_MH,
        policy.head.weight,
        token_T[mask_T],
        support_M=None if num_candidates_T is None else num_candidates_T[mask_T],
        endless_M=None if no_eos_T is None else no_eos_T[mask_T],
        end_ids=policy.end_ids,
        temperature=temperature,
    )
    logp_T = torch.zeros_like(token_T, dtype=torch.float32)
    return logp_T.masked_scatter(mask_T, logp_M), logp_T.masked_scatter(mask_T, entropy_M)


def _chunks(num_tokens: int, vocab_size: int) -> list[slice]:
    size = max(1, CHUNK_LOGITS // vocab_size)
    return [slice(start, start + size) for start in range(0, num_tokens, size)]
