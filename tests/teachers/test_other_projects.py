"""What other projects compute under on-policy distillation, in float64 after their sources, and our components.

The sources, read on 2026-11-30: verl `trainer/distillation/losses.py` and `fsdp/losses.py`; NeMo-RL
`algorithms/loss/loss_functions.py` (DistillationLossFn); prime-rl `trainer/rl/loss.py` (opd_loss_fn); tinker-cookbook
`distillation/train_on_policy.py`; AReno `api/loss_fns` (opd_loss_fn); TRL 1.16 `experimental/sdpo/loss_utils.py`. TRL's
stable trainer is executed in tests/e2e/test_trainers.py. Axes: T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ansatz.objectives.build import build_objective
from ansatz.objectives.policy_loss import TokenTensors

TOKENS, VOCAB = 50, 12


def tables(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits [T, V] of the policy, with gradient, and log-probs of the teacher."""
    torch.manual_seed(seed)
    shared = torch.randn(TOKENS, VOCAB, dtype=torch.float64)
    policy = (2 * shared + torch.randn(TOKENS, VOCAB, dtype=torch.float64)).requires_grad_()
    return policy, (2 * shared + torch.randn(TOKENS, VOCAB, dtype=torch.float64)).log_softmax(-1)


def ours(kl: Any) -> Any:
    divergence = build_objective({"preset": "gkd", "kl": kl}).token_divergence
    assert divergence is not None
    return divergence


def gathered(logp_TV: Tensor, by_TV: Tensor, k: int) -> Tensor:
    return logp_TV.gather(-1, by_TV.topk(k).indices)


def verl_top_k(p: Tensor, q: Tensor, k: int, *, tail: bool = False) -> Tensor:
    """Over the teacher's top k, not normalised, and below 0 replaced by 0 (`forward_kl_topk`); or with a tail."""
    p_TK, q_TK = gathered(p, q, k), gathered(q, q, k)
    value = (q_TK.exp() * (q_TK - p_TK)).sum(-1)
    if not tail:
        return value.clamp_min(0)
    rest_p, rest_q = 1 - p_TK.exp().sum(-1), 1 - q_TK.exp().sum(-1)
    return value + rest_q * (rest_q / rest_p).log()


def nemo(p: Tensor, q: Tensor, k: int, kind: str, weight: float = 0.5) -> Tensor:
    """Over the teacher's top k; `mixed` adds the two KLs up."""
    p_TK, q_TK = gathered(p, q, k), gathered(q, q, k)
    forward, reverse = (q_TK.exp() * (q_TK - p_TK)).sum(-1), (p_TK.exp() * (p_TK - q_TK)).sum(-1)
    return {"forward": forward, "reverse": reverse, "mixed": weight * forward + (1 - weight) * reverse}[kind]


def trl_sdpo_top_k(p: Tensor, q: Tensor, k: int) -> Tensor:
    """Over the policy's top k, normalised to 1 (no tail): reverse KL of the conditional distributions."""
    p_TK, q_TK = gathered(p, p, k).log_softmax(-1), gathered(q, p, k).log_softmax(-1)
    return (p_TK.exp() * (p_TK - q_TK)).sum(-1)


def test_with_the_whole_vocabulary_all_top_k_losses_are_the_exact_kl() -> None:
    logits, q = tables()
    p = logits.log_softmax(-1)
    forward, reverse = ours("full_reverse")(p, q), ours("full")(p, q)
    for got in (
        verl_top_k(p, q, VOCAB),
        nemo(p, q, VOCAB, "forward"),
        ours({"name": "top_k", "of": "reference"})(p, q),
    ):
        torch.testing.assert_close(got, forward)
    for got in (nemo(p, q, VOCAB, "reverse"), trl_sdpo_top_k(p, q, VOCAB), ours({"name": "top_k"})(p, q)):
        torch.testing.assert_close(got, reverse)


def test_with_a_tail_verl_s_loss_is_ours_where_both_agree_about_the_most_likely_tokens() -> None:
    logits, q = tables()
    p = logits.log_softmax(-1)
    same_T = (p.topk(3).indices.sort(-1).values == q.topk(3).indices.sort(-1).values).all(-1)
    assert same_T.sum() > 5
    torch.testing.assert_close(
        verl_top_k(p, q, 3, tail=True)[same_T], ours({"name": "top_k", "k": 3, "of": "reference"})(p, q)[same_T]
    )


def test_without_a_tail_a_top_k_sum_is_no_kl_and_its_clamp_leaves_no_gradient() -> None:
    """The example of docs/algorithms.md: 0.5 log(0.5 / 0.6) + 0.2 log(0.2 / 0.3) = -0.172, although the KL is 0.174."""
    p = torch.tensor([[0.6, 0.3, 0.05, 0.05]], dtype=torch.float64).log().requires_grad_()
    q = torch.tensor([[0.5, 0.2, 0.2 - 1e-9, 0.1]], dtype=torch.float64).log()
    assert nemo(p, q, 2, "forward").item() == pytest.approx(-0.1723, abs=1e-4)
    clamped = verl_top_k(p, q, 2)
    assert clamped.item() == 0
    assert not torch.autograd.grad(clamped.sum(), p)[0].any()
    assert ours("full_reverse")(p, q).item() == pytest.approx(0.1743, abs=1e-4)
    tail = ours({"name": "top_k", "k": 2, "of": "reference"})(p, q)
    assert tail.item() == pytest.approx(
        0.5 * math.log(0.5 / 0.6) + 0.2 * math.log(0.2 / 0.3) + 0.3 * math.log(3), abs=1e-6
    )
    assert torch.autograd.grad(tail.sum(), p)[0].any()
    assert trl_sdpo_top_k(p, q, 2).item() < 0.01  # it does not see what the policy never writes


def test_the_divergences_are_ordered_and_never_negative() -> None:
    logits, q = tables(1)
    p = logits.log_softmax(-1)
    for of, exact in (("policy", "full"), ("reference", "full_reverse")):
        smaller, larger = (ours({"name": "top_k", "k": k, "of": of})(p, q) for k in (1, 4))
        assert (smaller >= -1e-12).all()
        assert (smaller <= larger + 1e-12).all()
        assert (larger <= ours(exact)(p, q) + 1e-12).all()
    assert (ours({"name": "jensen_shannon"})(p, q) <= math.log(2)).all()


def sampled(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of the policy with gradient, log-probs of the teacher, and a token of the policy at each place."""
    logits, q = tables(seed)
    return logits, q, torch.multinomial(logits.detach().softmax(-1), 1)


def our_gradient(logits: Tensor, q: Tensor, token: Tensor, **changes: Any) -> Tensor:
    """Of `preset: opd` in one update, by the advantage and the loss of the objective."""
    objective = build_objective({"preset": "opd", **changes})
    logp_T, ref_T = logits.log_softmax(-1).gather(-1, token)[:, 0], q.gather(-1, token)[:, 0]
    segment_T, mask_T = torch.arange(TOKENS) // 10, torch.ones(TOKENS, dtype=torch.bool)
    old_T = logp_T.detach()
    logps: dict[str, Any] = {"old_logp_T": old_T, "behavior_logp_T": old_T, "ref_logp_T": ref_T}
    reward_N = torch.zeros(TOKENS // 10, dtype=torch.float64)
    found = objective.advantages(reward_N, torch.arange(len(reward_N)), segment_T=segment_T, mask_T=mask_T, **logps)
    batch = TokenTensors(
        segment_T=segment_T,
        mask_T=mask_T,
        sampled_mask_T=mask_T,
        **logps,
        advantage_T=found.advantage_T,
        weight_T=objective.token_weights(segment_T, mask_T, num_rollouts=len(reward_N), dtype=torch.float64),
        penalty_weight_T=None,
        likelihood_weight_T=None,
    )
    return torch.autograd.grad(objective.loss(batch, logp_T).loss, logits)[0]


def test_the_policy_gradients_of_verl_prime_rl_and_tinker_are_ours_on_policy() -> None:
    logits, q, token = sampled()
    logp_T, ref_T = logits.log_softmax(-1).gather(-1, token)[:, 0], q.gather(-1, token)[:, 0]
    ratio_T, gap_T = (logp_T - logp_T.detach()).exp(), (ref_T - logp_T).detach()
    prime = (-gap_T * ratio_T + 1e-3 * (logp_T - logp_T.detach()) ** 2).sum() / TOKENS  # no token is masked at ratio 1
    tinker = -(1.0 * gap_T * ratio_T).sum() / TOKENS  # tinker sums over tokens; the scale is the learning rate's
    verl = torch.maximum(-gap_T * ratio_T, -gap_T * ratio_T.clamp(0.8, 1.2)).mean()
    expected = our_gradient(logits, q, token)
    for loss in (prime, tinker, verl):
        torch.testing.assert_close(torch.autograd.grad(loss, logits, retain_graph=True)[0], expected)
    clipped = -(gap_T.clamp(-0.5, 0.5) * ratio_T).mean()  # verl's loss_max_clamp
    got = our_gradient(logits, q, token, kl={"name": "k1", "clamp_out": 0.5})
    torch.testing.assert_close(torch.autograd.grad(clipped, logits)[0], got)


def test_k1_as_a_loss_has_a_gradient_that_does_not_know_the_teacher() -> None:
    """The mean of log policy - log teacher over sampled tokens: AReno, and verl's k1 without use_policy_gradient."""
    logits, q, token = sampled()
    gradients = [
        torch.autograd.grad((logits.log_softmax(-1) - teacher).gather(-1, token).mean(), logits)[0]
        for teacher in (q, q.roll(1, -1))
    ]
    assert torch.equal(*gradients)
    assert not torch.allclose(gradients[0], our_gradient(logits, q, token))
