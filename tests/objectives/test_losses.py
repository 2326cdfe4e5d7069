"""Ratios, surrogates, KL and weights against their twins, alone and as one loss."""

from __future__ import annotations

import math

import objective_twin as twin
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from token_batches import EXAMPLES, loss_and_gradient, make_step, part, prepared

from ansatz.objectives.build import build_objective
from ansatz.objectives.kl import exact_kl

LOG_RATIO = st.floats(-2, 2)
ADVANTAGE = st.floats(-3, 3).filter(lambda a: abs(a) > 1e-6)


def surrogate(name: str, log_ratio: float, advantage: float, **settings_of_component: float) -> float:
    component = build_objective({"surrogate": {"name": name, **settings_of_component}}).surrogate
    x, a = torch.tensor([log_ratio], dtype=torch.float64), torch.tensor([advantage], dtype=torch.float64)
    return component(
        {"log_ratio_T": x, "advantage_T": a, "policy_logp_T": x, "segment_T": torch.zeros(1).long()}
    ).item()


@EXAMPLES
@given(LOG_RATIO, ADVANTAGE)
def test_surrogates_equal_their_twins(x: float, a: float):
    close = pytest.approx
    assert surrogate("plain", x, a) == close(-math.exp(x) * a)
    assert surrogate("clip", x, a, low=0.2, high=0.28) == close(twin.clip(x, a, 0.2, 0.28))
    assert surrogate("dual_clip", x, a, low=0.2, high=0.3, dual=2.5) == close(twin.dual_clip(x, a, 0.2, 0.3, 2.5))
    assert surrogate("two_sided", x, a, low=0.2, high=0.3, delta=3.0) == close(twin.two_sided(x, a, 0.2, 0.3, 3.0))
    assert surrogate("sapo", x, a, tau_pos=1.2, tau_neg=1.5) == close(twin.sapo(x, a, 1.2, 1.5))
    assert surrogate("gmpo", x, a, low=0.3, high=0.5) == close(twin.gmpo([x], a, 0.3, 0.5))
    assert surrogate("opmd", x, a, tau=0.5) == close((a - 0.5 * x) ** 2)
    assert surrogate("mirror_descent", x, a, tau=0.5) == close(-(a * x - 0.25 * x * x))


@EXAMPLES
@given(LOG_RATIO, ADVANTAGE)
def test_the_clipped_loss_is_never_below_the_unclipped(x: float, a: float):
    plain = surrogate("plain", x, a)
    assert surrogate("clip", x, a) >= plain
    assert surrogate("two_sided", x, a, delta=4.0) >= min(plain, -4.0 * a)
    assert surrogate("dual_clip", x, a) >= min(plain, -3.0 * a)


def test_each_side_of_the_clip_stops_the_gradient_only_where_it_should():
    # rho above the range with A > 0 and below it with A < 0 are stopped; the other two corners still learn.
    objective = build_objective({"surrogate": {"low": 0.2, "high": 0.28}, "weights": "token_sum"})
    for x, a, stopped in (
        (0.3, 1.0, True),
        (0.3, -1.0, False),
        (-0.3, 1.0, False),
        (-0.3, -1.0, True),
        (0.23, 1, False),
    ):
        step = make_step(0, groups=1, size=2)
        rollout = prepared(part(step, 0, 1), objective)
        changes = {"old_logp_T": rollout.policy_T - x, "advantage_T": a * rollout.mask_T.double()}
        rollout = rollout.__class__(**{**vars(rollout), **changes})
        gradient_T = loss_and_gradient(objective, rollout)[1][rollout.mask_T]
        expected = 0.0 if stopped else -math.exp(x) * a
        assert gradient_T.tolist() == pytest.approx([expected] * len(gradient_T)), (x, a)


def test_cispo_gives_every_token_the_clipped_ratio_as_a_constant():
    objective = build_objective({"surrogate": {"name": "cispo", "floor": 0.8, "cap": 1.1}, "weights": "token_sum"})
    step = prepared(make_step(1), objective)
    gradient_T = loss_and_gradient(objective, step)[1]
    expected = [
        twin.cispo_gradient(p - q, a, 0.8, 1.1)
        for p, q, a in zip(
            *(getattr(step, n)[step.mask_T].tolist() for n in ("policy_T", "old_logp_T", "advantage_T")), strict=True
        )
    ]
    assert gradient_T[step.mask_T].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("ratio", ["token", "sequence", "product"])
def test_a_whole_loss_equals_its_twin(ratio: str):
    step = make_step(2)
    spec = {"ratio": ratio, "surrogate": {"low": 0.2, "high": 0.28}, "kl_coef": 0.05, "weights": "token_mean"}
    objective = build_objective(spec)
    ready = prepared(step, objective)
    names = {"policy": "policy_T", "old": "old_logp_T", "ref": "ref_logp_T", "advantage": "advantage_T"}
    columns = {name: ready.lists(array) for name, array in names.items()}
    losses = []
    for n in range(step.rollouts - 1):
        rollout = {name: rows[n] for name, rows in columns.items()}
        per_token = zip(
            twin.log_ratios(rollout, ratio), rollout["advantage"], rollout["policy"], rollout["ref"], strict=True
        )
        losses.append([twin.clip(x, a, 0.2, 0.28) + 0.05 * twin.k3(p, r) for x, a, p, r in per_token])
    assert loss_and_gradient(objective, ready)[0] == pytest.approx(twin.token_mean(losses), abs=1e-12)


def test_geometric_mean_loss_of_whole_rollouts_equals_its_twin():
    objective = build_objective({"preset": "gmpo"})
    step = part(make_step(3), 0, 8)
    ready = prepared(step, objective)
    columns = [ready.lists(name) for name in ("policy_T", "old_logp_T", "advantage_T")]
    expected = twin.mean(
        [
            twin.gmpo([p - q for p, q in zip(policy, old, strict=True)], advantage[0], 0.4, 0.4)
            for policy, old, advantage in zip(*columns, strict=True)
        ]
    )
    assert loss_and_gradient(objective, ready)[0] == pytest.approx(expected, abs=1e-12)


# KL ---------------------------------------------------------------------------------------------------------------


def kl_component(name: str, policy: torch.Tensor, ref: torch.Tensor, **settings_of_component: object) -> torch.Tensor:
    component = build_objective({"kl": {"name": name, **settings_of_component}}).kl
    given_inputs = {"policy_logp_T": policy, "ref_logp_T": ref, "log_ratio_T": policy - ref, "behavior_logp_T": ref}
    return component(given_inputs)


@EXAMPLES
@given(st.floats(-5, 0), st.floats(-5, 0))
def test_kl_estimators_equal_their_twins_and_all_but_k1_are_never_negative(p: float, q: float):
    policy, ref = torch.tensor([p], dtype=torch.float64), torch.tensor([q], dtype=torch.float64)
    assert kl_component("k1", policy, ref).item() == pytest.approx(twin.k1(p, q))
    assert kl_component("k2", policy, ref).item() == pytest.approx(twin.k2(p, q))
    assert kl_component("k3", policy, ref).item() == pytest.approx(twin.k3(p, q), abs=1e-12)
    assert kl_component("abs", policy, ref).item() == pytest.approx(abs(p - q))
    assert min(kl_component(name, policy, ref).item() for name in ("k2", "k3", "abs")) >= 0


def test_on_an_enumerable_vocabulary_k1_and_k3_are_unbiased_and_k2_is_not():
    logits = torch.tensor([[2.0, 0.5, -1.0, 0.0, 0.3]], dtype=torch.float64, requires_grad=True)
    policy = torch.log_softmax(logits, -1)
    ref = torch.log_softmax(torch.tensor([[0.0, 1.0, 0.5, -0.5, 0.2]], dtype=torch.float64), -1)
    exact = exact_kl(policy, ref).item()
    means = {name: (policy.exp() * kl_component(name, policy, ref)).sum().item() for name in ("k1", "k2", "k3", "abs")}
    assert means["k1"] == pytest.approx(exact, abs=1e-12)
    assert means["k3"] == pytest.approx(exact, abs=1e-12)
    assert abs(means["k2"] - exact) > 0.01
    assert abs(means["abs"] - exact) > 0.01


def test_which_estimators_have_the_kls_own_gradient_on_average():
    # E over tokens of the policy, with the token's probability held constant, as sampling does.
    def gradient(name: str, **settings_of_component: object) -> torch.Tensor:
        logits = torch.tensor([2.0, 0.5, -1.0, 0.0], dtype=torch.float64, requires_grad=True)
        policy = torch.log_softmax(logits, -1)
        ref = torch.log_softmax(torch.tensor([0.0, 1.0, 0.5, -0.5], dtype=torch.float64), -1)
        expected = (policy.detach().exp() * kl_component(name, policy, ref, **settings_of_component)).sum()
        return torch.autograd.grad(expected, logits)[0]

    logits = torch.tensor([2.0, 0.5, -1.0, 0.0], dtype=torch.float64, requires_grad=True)
    ref = torch.log_softmax(torch.tensor([0.0, 1.0, 0.5, -0.5], dtype=torch.float64), -1)
    (true,) = torch.autograd.grad(exact_kl(torch.log_softmax(logits, -1), ref).sum(), logits)
    assert torch.allclose(gradient("k2"), true)
    assert torch.allclose(gradient("k3", straight_through=True), true)
    assert torch.allclose(gradient("k1", weight="on_policy"), true)
    assert torch.allclose(gradient("k3", weight="on_policy"), true)
    assert gradient("k1").abs().max() < 1e-12  # k1 in the loss pulls nowhere
    assert not torch.allclose(gradient("k3"), true, atol=1e-2)  # k3's plain gradient is that of the reverse KL


def test_kl_clamps_bound_the_value_and_stop_the_gradient():
    policy = torch.tensor([-1.0, -30.0], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([-30.0, -1.0], dtype=torch.float64)
    value = kl_component("k3", policy, ref, clamp_in=20.0, clamp_out=10.0)
    assert value.tolist() == [10.0, 10.0]
    assert torch.autograd.grad(value.sum(), policy)[0].tolist() == [0.0, 0.0]


# Weights ----------------------------------------------------------------------------------------------------------


def weighted(spec: object, step, loss_T: torch.Tensor) -> float:
    objective = build_objective({"weights": spec})
    weight_T = objective.token_weights(
        step.segment_T, step.mask_T, num_rollouts=step.rollouts, group_N=step.group_N, dtype=torch.float64
    )
    assert weight_T[~step.mask_T].abs().max() == 0
    return (weight_T * loss_T)[step.mask_T].sum().item()


def test_weights_equal_their_twins_and_sum_to_what_they_say():
    step = part(make_step(4), 0, 10)
    loss_T = step.entropy_T
    rows, ones = step.lists("entropy_T"), torch.ones_like(loss_T)
    lengths = [len(row) for row in rows]
    assert weighted("token_mean", step, loss_T) == pytest.approx(twin.token_mean(rows))
    assert weighted("sequence_mean", step, loss_T) == pytest.approx(twin.sequence_mean(rows))
    assert weighted("sequence_sum", step, loss_T) == pytest.approx(twin.sequence_sum(rows))
    assert weighted({"name": "fixed_length", "max_tokens": 9}, step, loss_T) == pytest.approx(
        twin.fixed_length(rows, 9)
    )
    assert weighted("prompt_mean", step, loss_T) == pytest.approx(twin.prompt_mean(rows, step.group_N.tolist()))
    for name in ("token_mean", "sequence_mean", "prompt_mean"):
        assert weighted(name, step, ones) == pytest.approx(1.0)
    assert weighted("sequence_sum", step, ones) == pytest.approx(twin.mean(lengths))
    assert weighted({"name": "fixed_length", "max_tokens": 9}, step, ones) == pytest.approx(twin.mean(lengths) / 9)
    assert weighted("token_sum", step, ones) == sum(lengths)


def test_an_empty_rollout_counts_unless_it_is_told_not_to():
    step = make_step(5)  # its last rollout has no response token
    ones = torch.ones_like(step.entropy_T)
    assert weighted("sequence_mean", step, ones) == pytest.approx((step.rollouts - 1) / step.rollouts)
    assert weighted({"name": "sequence_mean", "rollouts": "nonempty"}, step, ones) == pytest.approx(1.0)


def test_vespo_weighs_a_rollout_by_a_gate_on_its_whole_ratio_and_its_mismatch_weights():
    """Rollout 0: log rho 0.2 + 0.1 and weights 2, 1, so log w = 0.3 + log 2; rollout 1: log rho -0.5, A < 0."""
    inputs = {
        "log_ratio_T": torch.tensor([0.2, 0.1, -0.5], dtype=torch.float64),
        "policy_logp_T": torch.tensor([-1.0, -2.0, -3.0], dtype=torch.float64),
        "advantage_T": torch.tensor([1.5, 1.5, -1.0], dtype=torch.float64),
        "mismatch_weight_T": torch.tensor([2.0, 1.0, 1.0], dtype=torch.float64),
        "segment_T": torch.tensor([0, 0, 1]),
    }
    log_w = 0.3 + math.log(2)
    good = math.exp(3 + 2 * log_w - 3 * math.exp(log_w))
    bad = math.exp(2 + 3 * -0.5 - 2 * math.exp(-0.5))
    result = build_objective({"surrogate": "vespo"}).surrogate(inputs)
    assert result.tolist() == pytest.approx([1.5 * good, 3.0 * good, -3.0 * bad])
    even = {**inputs, "log_ratio_T": torch.zeros(3).double(), "mismatch_weight_T": torch.ones(3).double()}
    assert build_objective({"surrogate": "vespo"}).surrogate(even).tolist() == pytest.approx([1.5, 3.0, -3.0])


def test_vespo_takes_the_place_of_the_mismatch_correction_and_others_are_multiplied_by_it():
    step = make_step(4)
    correction = {"name": "truncate", "high": 1.3}
    for surrogate, multiplied in (("vespo", False), ("log_prob", True)):
        objective = build_objective({"surrogate": surrogate, "correction": correction, "weights": "token_sum"})
        ready = prepared(step, objective)
        parts = objective.loss(ready, step.policy_T)
        weight_T = parts.mismatch_weight_T[step.mask_T]
        inputs = {
            "log_ratio_T": (step.policy_T - step.old_logp_T)[step.mask_T],
            "policy_logp_T": step.policy_T[step.mask_T],
            "advantage_T": ready.advantage_T[step.mask_T],
            "mismatch_weight_T": weight_T,
            "segment_T": step.segment_T[step.mask_T],
        }
        expected = (objective.surrogate(inputs) * (weight_T if multiplied else 1)).sum()
        assert parts.loss.item() == pytest.approx(expected.item())


def test_a_detached_ratio_can_be_zeroed_outside_its_open_interval():
    ratio_T = torch.tensor([0.8, 0.81, 1.19, 1.2], dtype=torch.float64)
    inputs = {
        "log_ratio_T": ratio_T.log(),
        "policy_logp_T": -torch.ones(4, dtype=torch.float64),
        "advantage_T": torch.ones(4, dtype=torch.float64),
    }
    surrogate = {"name": "cispo", "floor": 0.81, "cap": 1.19, "outside": "zero"}
    assert build_objective({"surrogate": surrogate}).surrogate(inputs).tolist() == pytest.approx([0, 0, 0, 0])
    wider = {**surrogate, "floor": 0.805, "cap": 1.195}
    assert build_objective({"surrogate": wider}).surrogate(inputs).tolist() == pytest.approx([0, 0.81, 1.19, 0])


def test_the_weight_of_a_kl_has_no_gradient_beyond_the_input_clamp():
    """x = 0.5 is clamped to 0.3: the value is 0.3 x exp(0), and the gradient is 0; x = 0.2 has 1 + 0.2."""
    kl = build_objective({"kl": {"name": "k1", "clamp_in": 0.3, "weight": "on_policy"}}).kl
    policy_T = torch.tensor([-1.0, -1.0], dtype=torch.float64, requires_grad=True)
    ref_T = torch.tensor([-1.5, -1.2], dtype=torch.float64)
    zero_T = torch.zeros(2, dtype=torch.float64)
    inputs = {"policy_logp_T": policy_T, "ref_logp_T": ref_T, "log_ratio_T": zero_T, "behavior_logp_T": ref_T}
    value_T = kl(inputs)
    assert value_T.tolist() == pytest.approx([0.3, 0.2])
    (gradient_T,) = torch.autograd.grad(value_T.sum(), policy_T)
    assert gradient_T.tolist() == pytest.approx([0.0, 1.2])
