from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from tiny_models import FlatTokens, packed, some_sequences, tiny_policy
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ansatz.models import logps
from ansatz.models.load import head_logits
from ansatz.models.logps import chunked_kl, chunked_logps, token_logps
from tools.families import VOCAB_SIZE

TOKENS, VOCAB, HIDDEN = 37, 101, 16


def inputs(scale: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden_MH = torch.randn(TOKENS, HIDDEN, generator=generator) * scale
    weight_VH = torch.randn(VOCAB, HIDDEN, generator=generator)
    return hidden_MH, weight_VH, torch.randint(VOCAB, (TOKENS,), generator=generator)


def reference(hidden_MH: Tensor, weight_VH: Tensor, target_M: Tensor, temperature: float) -> tuple[Tensor, ...]:
    """Log-probs, entropies, and the gradients of 0.7 logp + 0.3 entropy with a weight per token, in float64."""
    hidden_MH, weight_VH = (value.double().requires_grad_() for value in (hidden_MH, weight_VH))
    log_p_MV = (hidden_MH @ weight_VH.t() / temperature).log_softmax(-1)
    logp_M = log_p_MV[torch.arange(len(target_M)), target_M]
    entropy_M = -(log_p_MV.exp() * log_p_MV).sum(-1)
    mixed(logp_M, entropy_M).backward()
    return logp_M.detach(), entropy_M.detach(), hidden_MH.grad, weight_VH.grad


def mixed(logp_M: Tensor, entropy_M: Tensor) -> Tensor:
    weight_M = torch.linspace(-1, 2, len(logp_M), dtype=logp_M.dtype)
    return (0.7 * weight_M * logp_M + 0.3 * weight_M.flip(0) * entropy_M).sum()


def computed(hidden_MH: Tensor, weight_VH: Tensor, target_M: Tensor, temperature: float) -> tuple[Tensor, ...]:
    hidden_MH, weight_VH = hidden_MH.clone().requires_grad_(), weight_VH.clone().requires_grad_()
    logp_M, entropy_M = chunked_logps(hidden_MH, weight_VH, target_M, temperature=temperature)
    mixed(logp_M, entropy_M).backward()
    return logp_M.detach(), entropy_M.detach(), hidden_MH.grad, weight_VH.grad


def assert_close(got: tuple[Tensor, ...], expected: tuple[Tensor, ...], *, rel: float = 2e-5) -> None:
    for value, reference in zip(got, expected, strict=True):
        gap = (value.double() - reference.double()).abs().max() / reference.abs().max()
        assert gap < rel


@pytest.fixture(params=["by torch", "by kernels"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits are read by torch's operations or by the kernels for a large vocabulary."""
    if request.param == "by kernels":
        if logps._library() is None:
            pytest.skip("the kernels need a C++ compiler")
        monkeypatch.setattr(logps, "KERNEL_VOCABULARY", 1)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_log_probs_entropies_and_both_gradients_equal_the_plain_float64_ones(scale: float, temperature: float) -> None:
    arguments = inputs(scale)
    assert_close(computed(*arguments, temperature), reference(*arguments, temperature))


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("chunk_logits", [1, VOCAB, 3 * VOCAB, 3 * VOCAB + 7, 10**6])
def test_the_chunk_size_changes_no_result(monkeypatch: pytest.MonkeyPatch, chunk_logits: int) -> None:
    """This includes a vocabulary that is larger than a chunk: then a chunk is one token."""
    arguments = inputs()
    expected = reference(*arguments, 1.3)
    monkeypatch.setattr(logps, "CHUNK_LOGITS", chunk_logits)
    monkeypatch.setattr(logps, "CHUNK_ROWS", 1)
    assert_close(computed(*arguments, 1.3), expected)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_soft_capped_logits_have_the_gradients_of_autograd(temperature: float) -> None:
    hidden_MH, weight_VH, target_M = inputs()
    plain = [value.double().requires_grad_() for value in (hidden_MH, weight_VH)]
    logits_MV = 1.5 * torch.tanh(plain[0] @ plain[1].t() / 1.5) / temperature
    log_p_MV = logits_MV.log_softmax(-1)
    mixed(log_p_MV[torch.arange(TOKENS), target_M], -(log_p_MV.exp() * log_p_MV).sum(-1)).backward()
    chunked = [value.clone().requires_grad_() for value in (hidden_MH, weight_VH)]
    logp_M, entropy_M = chunked_logps(*chunked, target_M, temperature=temperature, softcap=1.5)
    mixed(logp_M, entropy_M).backward()
    assert_close((logp_M.detach(),), (log_p_MV[torch.arange(TOKENS), target_M].detach(),))
    assert_close((chunked[0].grad, chunked[1].grad), (plain[0].grad, plain[1].grad))


@pytest.mark.usefixtures("either")
def test_log_probs_and_entropies_are_differentiable_on_their_own() -> None:
    hidden_MH, weight_VH, target_M = inputs()
    for output in (0, 1):
        chunked, plain = hidden_MH.clone().requires_grad_(), hidden_MH.double().requires_grad_()
        chunked_logps(chunked, weight_VH, target_M)[output].sum().backward()
        log_p_MV = (plain @ weight_VH.double().t()).log_softmax(-1)
        (log_p_MV[torch.arange(TOKENS), target_M], -(log_p_MV.exp() * log_p_MV).sum(-1))[output].sum().backward()
        assert_close((chunked.grad,), (plain.grad,))


def test_tokens_that_are_not_candidates_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference is a log_softmax over each row's most likely tokens and, if it is not among them, the target."""
    monkeypatch.setattr(logps, "CHUNK_LOGITS", 3 * VOCAB)
    monkeypatch.setattr(logps, "CHUNK_ROWS", 1)
    hidden_MH, weight_VH, target_M = inputs()
    num_candidates_M = torch.arange(TOKENS) * 3 % VOCAB + 1
    plain = hidden_MH.double().requires_grad_(), weight_VH.double().requires_grad_()
    logits_MV = plain[0] @ plain[1].t() / 0.8
    rank_MV = logits_MV.argsort(-1, descending=True).argsort(-1)
    candidate_MV = (rank_MV < num_candidates_M[:, None]) | (torch.arange(VOCAB) == target_M[:, None])
    expected: list[tuple[Tensor, Tensor]] = []
    for z_V, candidate_V, target in zip(logits_MV, candidate_MV, target_M, strict=True):
        log_p = z_V[candidate_V].log_softmax(-1)
        expected.append((log_p[candidate_V[:target].sum()], -(log_p.exp() * log_p).sum()))
    logp_M, entropy_M = (torch.stack(values) for values in zip(*expected, strict=True))
    mixed(logp_M, entropy_M).backward()
    chunked = hidden_MH.requires_grad_(), weight_VH.requires_grad_()
    got = chunked_logps(*chunked, target_M, num_candidates_M=num_candidates_M, temperature=0.8)
    mixed(*got).backward()
    assert_close((*got, chunked[0].grad, chunked[1].grad), (logp_M, entropy_M, plain[0].grad, plain[1].grad))


@pytest.mark.parametrize("size", [VOCAB, 7])
def test_end_tokens_are_left_out_where_a_response_cannot_end(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """End ids beyond the vocabulary are ignored. The most likely tokens are counted without the end tokens."""
    monkeypatch.setattr(logps, "CHUNK_LOGITS", 3 * VOCAB)
    monkeypatch.setattr(logps, "CHUNK_ROWS", 1)
    hidden_MH, weight_VH, target_M = inputs()
    end_ids, no_eos_M = (4, 50, 7, VOCAB + 3), torch.arange(TOKENS) % 3 > 0
    target_M[torch.isin(target_M, torch.tensor(end_ids)) & no_eos_M] = 5
    plain = hidden_MH.double().requires_grad_(), weight_VH.double().requires_grad_()
    expected: list[tuple[Tensor, Tensor]] = []
    for z_V, no_eos, target in zip(plain[0] @ plain[1].t(), no_eos_M.tolist(), target_M.tolist(), strict=True):
        allowed = [token for token in range(VOCAB) if not (no_eos and token in end_ids)]
        kept = set(sorted(allowed, key=lambda token, z_V=z_V: -z_V[token].item())[:size]) | {target}
        log_p = z_V[sorted(kept)].log_softmax(-1)
        expected.append((log_p[sorted(kept).index(target)], -(log_p.exp() * log_p).sum()))
    logp_M, entropy_M = (torch.stack(values) for values in zip(*expected, strict=True))
    mixed(logp_M, entropy_M).backward()
    chunked = hidden_MH.requires_grad_(), weight_VH.requires_grad_()
    num_candidates_M = torch.full((TOKENS,), size)
    got = chunked_logps(*chunked, target_M, num_candidates_M=num_candidates_M, no_eos_M=no_eos_M, end_ids=end_ids)
    mixed(*got).backward()
    assert_close((*got, chunked[0].grad, chunked[1].grad), (logp_M, entropy_M, plain[0].grad, plain[1].grad))


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_end_tokens_that_are_left_out_have_no_part_and_no_gradient(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """The parts of the output embedding's gradient are smaller than the vocabulary, so they must add up to it."""
    monkeypatch.setattr(logps, "GRADIENT_ROWS", 8)
    hidden_MH, weight_VH, target_M = inputs()
    end_ids, no_eos_M = (4, 50), torch.arange(TOKENS) % 3 > 0
    target_M[torch.isin(target_M, torch.tensor(end_ids))] = 5
    leaves = [value.to(dtype).requires_grad_() for value in (hidden_MH, weight_VH)]
    plain = [value.detach().double().requires_grad_() for value in leaves]
    got = chunked_logps(*leaves, target_M, no_eos_M=no_eos_M, end_ids=end_ids, temperature=1.0)
    logits_MV = plain[0] @ plain[1].t()
    is_left_out_MV = no_eos_M[:, None] & torch.isin(torch.arange(VOCAB), torch.tensor(end_ids))
    log_p_MV = logits_MV.masked_fill(is_left_out_MV, -1e9).log_softmax(-1)
    expected = log_p_MV[torch.arange(TOKENS), target_M], -(log_p_MV.exp() * log_p_MV).sum(-1)
    for logp_M, entropy_M in (got, expected):
        mixed(logp_M, entropy_M).backward()
    found = (*(value.detach() for value in got), *(leaf.grad for leaf in leaves))
    rel = 2e-5 if dtype == torch.float32 else 0.02
    assert_close(found, (*(value.detach() for value in expected), *(leaf.grad for leaf in plain)), rel=rel)


@pytest.mark.usefixtures("either")
def test_a_target_that_is_left_out_has_a_finite_gradient() -> None:
    hidden_MH, weight_VH, target_M = (value[:4] if index != 1 else value for index, value in enumerate(inputs()))
    target_M[1], leaves = 7, (hidden_MH.requires_grad_(), weight_VH.requires_grad_())
    no_eos_M = torch.ones_like(target_M, dtype=torch.bool)
    logp_M, entropy_M = chunked_logps(*leaves, target_M, no_eos_M=no_eos_M, end_ids=(7,))
    assert logp_M.isneginf().tolist() == [False, True, False, False]
    gradients = torch.autograd.grad((logp_M, entropy_M), leaves, (torch.ones(4), torch.ones(4)))
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


def test_of_tied_tokens_those_with_smaller_ids_are_candidates() -> None:
    """Two of four tied tokens are candidates: 1/2 each. A target beyond them is added: 1/3."""
    hidden_MH, weight_VH = torch.ones(2, 1), torch.tensor([[1.0], [1.0], [1.0], [1.0], [-2.0]])
    logp_M, _ = chunked_logps(hidden_MH, weight_VH, torch.tensor([1, 3]), num_candidates_M=torch.tensor([2, 2]))
    assert logp_M.exp().tolist() == pytest.approx([1 / 2, 1 / 3])


@pytest.mark.parametrize("chunk_logits", [1, 3 * VOCAB, 10**6])
def test_the_exact_kl_and_its_gradients_equal_the_plain_float64_ones(
    monkeypatch: pytest.MonkeyPatch, chunk_logits: int
) -> None:
    monkeypatch.setattr(logps, "CHUNK_LOGITS", chunk_logits)
    monkeypatch.setattr(logps, "CHUNK_ROWS", 1)
    hidden_MH, weight_VH, _ = inputs()
    ref_hidden_MH, ref_weight_VH, _ = inputs(seed=1)
    chunked = hidden_MH.clone().requires_grad_(), weight_VH.clone().requires_grad_()
    plain = hidden_MH.double().requires_grad_(), weight_VH.double().requires_grad_()
    got_M = chunked_kl(*chunked, ref_hidden_MH, ref_weight_VH, temperature=1.4)
    log_p_MV = (plain[0] @ plain[1].t() / 1.4).log_softmax(-1)
    log_q_MV = (ref_hidden_MH.double() @ ref_weight_VH.double().t() / 1.4).log_softmax(-1)
    expected_M = (log_p_MV.exp() * (log_p_MV - log_q_MV)).sum(-1)
    for value_M in (got_M, expected_M):
        (value_M * torch.linspace(-1, 2, TOKENS, dtype=value_M.dtype)).sum().backward()
    assert_close((got_M, *(value.grad for value in chunked)), (expected_M, *(value.grad for value in plain)))


def test_the_exact_kl_has_logits_for_only_one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logps, "CHUNK_LOGITS", 4 * VOCAB)
    monkeypatch.setattr(logps, "CHUNK_ROWS", 1)
    hidden_MH, weight_VH, _ = inputs()
    kept: list[torch.Size] = []
    keep = torch.autograd.graph.saved_tensors_hooks(
        lambda value: kept.append(value.shape) or value, lambda value: value
    )
    with Largest(VOCAB, weight_VH.shape) as largest:
        with keep:
            kl_M = chunked_kl(hidden_MH.requires_grad_(), weight_VH.requires_grad_(), *inputs(seed=1)[:2])
        kl_M.sum().backward()
    assert largest.rows == 4
    assert not [
        shape for shape in kept if VOCAB in shape and shape != weight_VH.shape
    ]  # no logits are kept for the backward pass


@pytest.mark.parametrize("kept", [3 * VOCAB, 7 * VOCAB, 2**27])
def test_kept_logits_change_no_bit(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    monkeypatch.setattr(logps, "CHUNK_LOGITS", 3 * VOCAB)
    monkeypatch.setattr(logps, "CHUNK_ROWS", 1)
    monkeypatch.setattr(logps, "KEPT_LOGITS", 0)
    expected = values_and_gradients()
    monkeypatch.setattr(logps, "KEPT_LOGITS", kept)
    num_computed = 0

    def counted(*arguments: Any) -> Tensor:
        nonlocal num_computed
        num_computed += 1
        return head_logits(*arguments)

    monkeypatch.setattr(logps, "head_logits", counted)
    assert all(found.equal(value) for found, value in zip(values_and_gradients(), expected, strict=True))
    num_chunks, num_kept = 256 // 3 + 1, min(kept // VOCAB // 3, 256 // 3 + 1)  # rows are padded to 256
    assert num_computed == 2 * num_chunks - num_kept


@pytest.mark.parametrize("with_gradient", [True, False])
def test_logits_are_kept_only_for_a_backward_pass(monkeypatch: pytest.MonkeyPatch, with_gradient: bool) -> None:
    """Also if the weights are trained: old log-probs are computed from them without gradient."""
    monkeypatch.setattr(logps, "CHUNK_LOGITS", 3 * VOCAB)
    monkeypatch.setattr(logps, "CHUNK_ROWS", 1)
    made, num_alive = list[weakref.ref[Tensor]](), list[int]()
    compute = logps._chunk_logps

    def watched(*arguments: Any) -> Tensor:
        num_alive.append(sum(each() is not None for each in made))
        made.append(weakref.ref(logp_CV := compute(*arguments)))
        return logp_CV

    monkeypatch.setattr(logps, "_chunk_logps", watched)
    hidden_MH, weight_VH, target_M = inputs()
    with torch.set_grad_enabled(with_gradient):
        chunked_logps(hidden_MH, weight_VH.requires_grad_(), target_M)
    num_earlier = len(made) - 1 if with_gradient else 1  # the loop's own name holds the last one
    assert max(num_alive) == num_earlier


def values_and_gradients() -> list[Tensor]:
    hidden_MH, weight_VH, target_M = inputs()
    leaves = hidden_MH.requires_grad_(), weight_VH.requires_grad_()
    values = chunked_logps(*leaves, target_M, num_candidates_M=torch.full_like(target_M, 5), temperature=0.7)
    (values[0].square().sum() + values[1].cos().sum()).backward()
    return [*(value.detach() for value in values), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


@pytest.mark.usefixtures("either")
def test_no_tokens_give_empty_results_and_zero_gradients() -> None:
    hidden_MH, weight_VH = torch.zeros(0, HIDDEN).requires_grad_(), inputs()[1].requires_grad_()
    logp_M, entropy_M = chunked_logps(hidden_MH, weight_VH, torch.zeros(0, dtype=torch.long))
    (logp_M.sum() + entropy_M.sum()).backward()
    assert logp_M.shape == entropy_M.shape == (0,)
    assert not weight_VH.grad.any()


class Largest(TorchDispatchMode):
    """The largest number of rows of any tensor with a vocabulary axis, except the weights."""

    def __init__(self, vocab_size: int, weight_shape: torch.Size) -> None:
        super().__init__()
        self.vocab_size, self.weight_shapes = vocab_size, {weight_shape, weight_shape[::-1]}
        self.rows = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for value in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(value, Tensor) and self.vocab_size in value.shape and value.shape not in self.weight_shapes:
                self.rows = max(self.rows, value.numel() // self.vocab_size)
        return out


def test_logits_exist_for_only_one_chunk_forward_and_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logps, "CHUNK_LOGITS", 3 * VOCAB_SIZE + 5)
    monkeypatch.setattr(logps, "CHUNK_ROWS", 1)
    policy = tiny_policy("qwen3, untied")
    token_T, position_T, segment_T = packed(some_sequences(40, 23, 30))
    with Largest(VOCAB_SIZE, policy.head.weight.shape) as largest:
        logp_T, entropy_T = token_logps(policy, FlatTokens(token_T, position_T, segment_T, position_T > 4))
        forward = largest.rows
        (logp_T.sum() + entropy_T.sum()).backward()
    assert forward == largest.rows == 3


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_token_log_probs_equal_those_of_transformers_forward_pass(temperature: float) -> None:
    policy = tiny_policy()
    sequences = some_sequences(17, 9, 30)
    token_T, position_T, segment_T = packed(sequences)
    mask_T = (position_T > 0) & (torch.arange(len(token_T)) % 3 > 0)
    with torch.no_grad():
        logp_T, entropy_T = token_logps(
            policy, FlatTokens(token_T, position_T, segment_T, mask_T), temperature=temperature
        )
        logits = [policy.model(torch.tensor([sequence])).logits[0] / temperature for sequence in sequences]
    log_p_TV = torch.cat([value.double().log_softmax(-1).roll(1, 0) for value in logits])
    expected_T = log_p_TV.gather(1, token_T[:, None])[:, 0] * mask_T
    assert_close((logp_T, entropy_T), (expected_T, -(log_p_TV.exp() * log_p_TV).sum(-1) * mask_T))
    assert not logp_T[~mask_T].any()
    assert not entropy_T[~mask_T].any()


@pytest.mark.usefixtures("either")
def test_bfloat16_weights_give_float32_log_probs_close_to_float64() -> None:
    hidden_MH, weight_VH, target_M = inputs(0.3)
    arguments = hidden_MH.bfloat16(), weight_VH.bfloat16(), target_M
    got = computed(*arguments, 1.0)
    assert [value.dtype for value in got] == [torch.float32, torch.float32, torch.bfloat16, torch.bfloat16]
    assert_close(got, reference(*arguments, 1.0), rel=0.02)
