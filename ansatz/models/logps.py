"""Log-probs and entropies of given tokens, in chunks: a [tokens, vocabulary] tensor exists only for one chunk.

Axes: T flat tokens, M the tokens whose log-probs are computed, C tokens of a chunk, V vocabulary, H hidden.

    logp_m = z_y / t - logsumexp(z / t)        entropy_m = -sum_v p_v log p_v        in nats, with temperature t

The backward pass computes each chunk's logits again, except on a CPU those of the first `KEPT_LOGITS`:
d logp / dz = (onehot_y - p) / t and d entropy / dz = -p (log p + entropy) / t.

Torch needs a pass over memory for each operation. On a CPU with a compiler, logits of a large vocabulary are therefore
read by kernels (`logp_kernels.cpp`), and stay in the model's type unless the temperature divides them.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from ansatz.models.compiled import TYPES, call, load_kernels
from ansatz.models.load import Policy, finish_logits, head_logits
from ansatz.models.packing import round_up
from ansatz.objectives.advantage_rule import scattered
from ansatz.objectives.kl import Divergence, exact_kl

CHUNK_LOGITS = 2**23  # logits of a chunk: 32 MB in float32
CHUNK_ROWS = 128  # at least: each chunk also adds to the gradient of the whole output embedding
KEPT_LOGITS = 2**27  # of a microbatch, on a CPU: 512 MB in float32
KERNEL_VOCABULARY = 2**14  # from this size on, kernels read the logits; results equal those of torch up to rounding
GRADIENT_ROWS = 2**11  # of the output embedding on a CPU, whose gradient is added up in parts that fit into a cache
GPU_CHUNK_LOGITS = 2**26  # 256 MB. Products of fewer rows would leave most of a GPU idle


class PackedTokens(Protocol):
    """Prompts and responses on one flat axis, as `train.packed.PackedRollouts` has them.

    segment_T: 0..N-1, ascending. position_T: 0, 1, ... within each segment.
    sampled_mask_T: the tokens whose log-probs are computed. The first token of a segment has none, so it must be False.
    prompt_id_T: the same number for all copies of one prompt, -1 elsewhere; None: no prompt is shared.
    num_candidates_T: from how many tokens each was sampled, under top-k, top-p or min-p; None: the whole vocabulary.
    no_eos_T: True where end tokens were masked out; None: nowhere.
    """

    @property
    def token_T(self) -> Tensor: ...
    @property
    def position_T(self) -> Tensor: ...
    @property
    def segment_T(self) -> Tensor: ...
    @property
    def sampled_mask_T(self) -> Tensor: ...
    @property
    def prompt_id_T(self) -> Tensor | None: ...
    @property
    def num_candidates_T(self) -> Tensor | None: ...
    @property
    def no_eos_T(self) -> Tensor | None: ...


class _Settings(NamedTuple):
    """softcap: see `head_logits`. keeps: whether a backward pass may follow that can use logits of the forward pass."""

    end_ids: Sequence[int]
    temperature: float
    softcap: float | None
    keeps: bool


class _ChunkedLogps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_MH: Tensor,
        weight_VH: Tensor,
        target_M: Tensor,
        num_candidates_M: Tensor | None,
        no_eos_M: Tensor | None,
        settings: _Settings,
    ) -> tuple[Tensor, Tensor]:
        logp_M = hidden_MH.new_empty(len(target_M), dtype=torch.float32)
        entropy_M = torch.empty_like(logp_M)
        ctx.kept, ctx.total_M = list[Tensor](), torch.empty_like(logp_M)
        ctx.in_kernels = num_candidates_M is None and settings.softcap is None and _has_kernels(weight_VH)
        for rows in _chunks(len(target_M), weight_VH):
            keeps = settings.keeps and rows.stop <= kept_rows(len(weight_VH), on_gpu=weight_VH.is_cuda)
            if ctx.in_kernels:
                logits_CV = _plain_logits(hidden_MH[rows], weight_VH, no_eos_M, settings, rows)
                results = logp_M[rows], entropy_M[rows], ctx.total_M[rows]
                call(_library(), "measure", logits_CV, logits_CV, target_M[rows], *results, *logits_CV.shape)
                ctx.kept += [logits_CV] if keeps else []
                continue
            logits_CV = head_logits(hidden_MH[rows], weight_VH, settings.temperature, settings.softcap)
            logp_CV = _chunk_logps(logits_CV, target_M, num_candidates_M, no_eos_M, settings.end_ids, rows)
            logp_M[rows] = logp_CV.gather(-1, target_M[rows, None]).squeeze(-1)
            entropy_M[rows] = torch.special.entr(logp_CV.exp()).sum(-1)
            ctx.kept += [logp_CV] if keeps else []
        ctx.save_for_backward(hidden_MH, weight_VH, target_M, num_candidates_M, no_eos_M, entropy_M)
        ctx.settings = settings
        return logp_M, entropy_M

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None, None, None]:
        hidden_MH, weight_VH, target_M, *_ = ctx.saved_tensors
        grad_hidden_MH = torch.empty_like(hidden_MH)
        grad_sum_VH = torch.zeros_like(weight_VH, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        has_entropy_grad = bool(grads[1].any())
        for number, rows in enumerate(_chunks(len(target_M), weight_VH)):
            kept_CV = ctx.kept[number] if number < len(ctx.kept) else None
            if ctx.in_kernels:
                grad_CV = _grad_by_kernel(ctx, kept_CV, rows, *grads)
            else:
                grad_CV = _grad_by_torch(ctx, kept_CV, rows, grads[0], grads[1] if has_entropy_grad else None)
            if ctx.settings.temperature != 1.0:
                grad_CV = grad_CV / ctx.settings.temperature
            grad_CV = grad_CV.to(weight_VH.dtype)
            grad_hidden_MH[rows] = grad_CV @ weight_VH
            if grad_sum_VH is not None and grad_CV.dtype == grad_sum_VH.dtype:
                grad_sum_VH.addmm_(grad_CV.t(), hidden_MH[rows])
            elif grad_sum_VH is not None:
                for some in _slices(len(weight_VH), len(weight_VH) if weight_VH.is_cuda else GRADIENT_ROWS):
                    grad_sum_VH[some] += grad_CV[:, some].t() @ hidden_MH[rows]
        grad_weight_VH = None if grad_sum_VH is None else grad_sum_VH.to(weight_VH.dtype)
        return grad_hidden_MH, grad_weight_VH, None, None, None, None


def _grad_by_torch(
    ctx: Any, logp_CV: Tensor | None, rows: slice, grad_logp_M: Tensor, grad_entropy_M: Tensor | None
) -> Tensor:
    """Return the gradient of a chunk's logits over the temperature. logp_CV: None if it was not kept."""
    hidden_MH, weight_VH, target_M, num_candidates_M, no_eos_M, entropy_M = ctx.saved_tensors
    settings: _Settings = ctx.settings
    logits_CV = None
    if logp_CV is None:
        logits_CV = head_logits(hidden_MH[rows], weight_VH, settings.temperature, settings.softcap)
        logp_CV = _chunk_logps(logits_CV, target_M, num_candidates_M, no_eos_M, settings.end_ids, rows)
    p_CV = logp_CV.exp()
    grad_CV = p_CV * -grad_logp_M[rows, None]
    grad_CV.scatter_add_(-1, target_M[rows, None], grad_logp_M[rows, None])
    if grad_entropy_M is not None:
        surprise_CV = p_CV * entropy_M[rows, None] - torch.special.entr(p_CV)
        grad_CV -= surprise_CV * grad_entropy_M[rows, None]
    if settings.softcap is not None and logits_CV is not None:  # d (c tanh(z / c)) / dz = 1 - tanh^2
        grad_CV *= 1 - (logits_CV * (settings.temperature / settings.softcap)).square_()
    return grad_CV


def _grad_by_kernel(
    ctx: Any, logits_CV: Tensor | None, rows: slice, grad_logp_M: Tensor, grad_entropy_M: Tensor
) -> Tensor:
    """Return the gradient of a chunk's logits over the temperature. logits_CV: None if they were not kept."""
    hidden_MH, weight_VH, target_M, _, no_eos_M, entropy_M = ctx.saved_tensors
    if logits_CV is None:
        logits_CV = _plain_logits(hidden_MH[rows], weight_VH, no_eos_M, ctx.settings, rows)
    grad_CV, each = torch.empty_like(logits_CV), (target_M, entropy_M, ctx.total_M, grad_logp_M, grad_entropy_M)
    of_rows = (value_M[rows].contiguous() for value_M in each)
    call(_library(), "differentiate", logits_CV, logits_CV, *of_rows, grad_CV, *logits_CV.shape)
    return grad_CV


def _plain_logits(
    hidden_CH: Tensor, weight_VH: Tensor, no_eos_M: Tensor | None, settings: _Settings, rows: slice
) -> Tensor:
    """Compute a chunk's logits over the temperature, in the model's type if the temperature is 1."""
    logits_CV = nn.functional.linear(hidden_CH, weight_VH)
    if settings.temperature != 1.0:
        logits_CV = finish_logits(logits_CV, settings.temperature)
    return (
        logits_CV if no_eos_M is None else mask_end_tokens(logits_CV, no_eos_M[rows], settings.end_ids, in_place=True)
    )


def _has_kernels(weight_VH: Tensor) -> bool:
    is_large = len(weight_VH) >= KERNEL_VOCABULARY and weight_VH.device.type == "cpu" and weight_VH.dtype in TYPES
    return is_large and _library() is not None


@functools.cache
def _library() -> ctypes.CDLL | None:
    return load_kernels(Path(__file__).with_name("logp_kernels.cpp"))


def _chunk_logps(
    logits_CV: Tensor,
    target_M: Tensor,
    num_candidates_M: Tensor | None,
    no_eos_M: Tensor | None,
    end_ids: Sequence[int],
    rows: slice,
) -> Tensor:
    """Compute the log-probs [C, V] of a chunk.

    With num_candidates_M, only each row's most likely tokens and its target are candidates; all others have -inf. End
    tokens are masked out before the candidates are counted, as the sampler does. Of equally likely tokens the smaller
    ids come first, as in `rollout.sampling.filter_logits`: in bfloat16, ties are common.
    """
    if no_eos_M is not None:
        logits_CV = mask_end_tokens(logits_CV, no_eos_M[rows], end_ids)
    if num_candidates_M is not None:
        order_CV = logits_CV.sort(dim=-1, descending=True, stable=True).indices
        beyond_CV = torch.arange(logits_CV.shape[-1], device=logits_CV.device) >= num_candidates_M[rows, None]
        excluded_CV = (
            torch.zeros_like(beyond_CV).scatter(-1, order_CV, beyond_CV).scatter(-1, target_M[rows, None], False)
        )
        logits_CV = logits_CV.masked_fill(excluded_CV, -torch.inf)
    return logits_CV.log_softmax(-1)


def mask_end_tokens(logits_CV: Tensor, no_eos_C: Tensor, end_ids: Sequence[int], *, in_place: bool = False) -> Tensor:
    """Return the logits with -inf for end tokens in the rows of no_eos_C.

    Sampler and trainer both use this function.
    """
    if not in_place:
        logits_CV = logits_CV.clone()
    for token in end_ids:  # not by one index: copying that to a GPU could not be captured in a graph
        if token < logits_CV.shape[-1]:
            logits_CV[:, token].masked_fill_(no_eos_C, -torch.inf)
    return logits_CV


def chunked_logps(
    hidden_MH: Tensor,
    weight_VH: Tensor,
    target_M: Tensor,
    *,
    num_candidates_M: Tensor | None = None,
    no_eos_M: Tensor | None = None,
    end_ids: Sequence[int] = (),
    temperature: float = 1.0,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute (policy_logp_M, entropy_M), float32 nats, differentiable in hidden_MH and weight_VH.

    num_candidates_M: how many of the most likely tokens each distribution is restricted to; None: the whole vocabulary.
    no_eos_M: True where end_ids are masked out; None: nowhere. softcap: see `head_logits`.
    """
    num_tokens = len(target_M)
    padding = round_up(num_tokens, 256) - num_tokens  # kernels are compiled for every new shape
    policy_logp_M, entropy_M = _ChunkedLogps.apply(  # pyright: ignore[reportGeneralTypeIssues]
        nn.functional.pad(hidden_MH, (0, 0, 0, padding)),
        weight_VH,
        nn.functional.pad(target_M, (0, padding)),
        None if num_candidates_M is None else nn.functional.pad(num_candidates_M, (0, padding), value=1),
        None if no_eos_M is None else nn.functional.pad(no_eos_M, (0, padding)),
        _Settings(end_ids, temperature, softcap, keeps=torch.is_grad_enabled() and softcap is None),
    )
    return policy_logp_M[:num_tokens], entropy_M[:num_tokens]


def most_likely(hidden_MH: Tensor, weight_VH: Tensor) -> Tensor:
    """Find the most likely token after each hidden state [M]; of equally likely ones, the first. Without gradient."""
    with torch.no_grad():
        chunks = [
            head_logits(hidden_MH[rows], weight_VH, 1.0).argmax(-1) for rows in _chunks(len(hidden_MH), weight_VH)
        ]
    return torch.cat(chunks) if chunks else torch.zeros(0, dtype=torch.long, device=hidden_MH.device)


def chunked_kl(
    hidden_MH: Tensor,
    weight_VH: Tensor,
    ref_hidden_MH: Tensor,
    ref_weight_VH: Tensor,
    *,
    divergence: Divergence = exact_kl,
    temperature: float = 1.0,
    softcap: float | None = None,
    ref_temperature: float | None = None,
    ref_softcap: float | None = None,
) -> Tensor:
    """Compute a divergence (`Objective.token_divergence`) of each token's whole distributions: [M] float32 nats,
    differentiable in hidden_MH and weight_VH. ref_temperature: None: the policy's.

    Models of one tokenizer can have different numbers of rows without a token at the end; such rows are left out. The
    backward pass computes a chunk's logits again, so they exist only for one chunk.
    """
    size, ref_temperature = min(len(weight_VH), len(ref_weight_VH)), ref_temperature or temperature

    def kl(hidden_CH: Tensor, ref_hidden_CH: Tensor) -> Tensor:
        logits_CV = head_logits(hidden_CH, weight_VH, temperature, softcap)[:, :size]
        ref_logits_CV = head_logits(ref_hidden_CH, ref_weight_VH, ref_temperature, ref_softcap)[:, :size]
        return divergence(logits_CV.log_softmax(-1), ref_logits_CV.log_softmax(-1))

    chunks = [
        checkpoint(kl, hidden_MH[rows], ref_hidden_MH[rows], use_reentrant=False)
        for rows in _chunks(len(hidden_MH), weight_VH)
    ]
    return torch.cat(chunks) if chunks else hidden_MH.new_zeros(0, dtype=torch.float32)  # pyright: ignore


def token_logps(policy: Policy, packed: PackedTokens, *, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Compute (policy_logp_T, entropy_T) of the tokens in sampled_mask_T, given the earlier tokens of their segment; 0
    elsewhere."""
    return policy.run(lambda: _token_logps(policy, packed, temperature))


def _token_logps(policy: Policy, packed: PackedTokens, temperature: float) -> tuple[Tensor, Tensor]:
    mask_T, num_candidates_T, no_eos_T = packed.sampled_mask_T, packed.num_candidates_T, packed.no_eos_T
    policy_logp_M, entropy_M = chunked_logps(
        hidden_before(policy, packed),
        policy.head.weight,
        packed.token_T[mask_T],
        num_candidates_M=None if num_candidates_T is None else num_candidates_T[mask_T],
        no_eos_M=None if no_eos_T is None else no_eos_T[mask_T],
        end_ids=policy.end_ids,
        temperature=temperature,
        softcap=policy.softcap,
    )
    return scattered(policy_logp_M, mask_T), scattered(entropy_M, mask_T)


def hidden_before(policy: Policy, packed: PackedTokens) -> Tensor:
    """Compute the last hidden states that predict the tokens in sampled_mask_T, [M, H]."""
    return hidden_at(policy, packed, packed.sampled_mask_T.nonzero().squeeze(-1) - 1)


def hidden_at(policy: Policy, packed: PackedTokens, at_M: Tensor) -> Tensor:
    """Compute the last hidden states of the flat tokens at_M, [M, H]."""
    return policy.packed_hidden(
        packed.token_T, packed.position_T, packed.segment_T, prompt_id_T=packed.prompt_id_T, at_M=at_M
    )


def rows_per_chunk(vocab_size: int, *, on_gpu: bool) -> int:
    """Return how many rows of logits exist at once."""
    return max(CHUNK_ROWS, (GPU_CHUNK_LOGITS if on_gpu else CHUNK_LOGITS) // vocab_size)


def kept_rows(vocab_size: int, *, on_gpu: bool) -> int:
    """Return how many rows of logits a microbatch keeps, at most, for its backward pass."""
    return 0 if on_gpu else KEPT_LOGITS // vocab_size


def _chunks(num_tokens: int, weight_VH: Tensor) -> list[slice]:
    return _slices(num_tokens, rows_per_chunk(len(weight_VH), on_gpu=weight_VH.is_cuda))


def _slices(count: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, count, size)]
