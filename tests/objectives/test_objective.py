"""Laws of the whole objective, for every preset."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from preset_lists import WITHOUT_TEACHER as PRESETS
from token_batches import FAR, Step, extras, loss_and_gradient, make_step, part, prepared

from ansatz.errors import ConfigError
from ansatz.objectives.build import TRAINING_INPUTS, build_objective, check_group_size, check_recipe, missing_inputs
from ansatz.objectives.components import INPUTS
from ansatz.objectives.objective import Objective

SMOOTH = ("plain", "log_prob", "clip", "dual_clip", "two_sided", "sapo", "opmd", "mirror_descent", "gmpo")
EPS = 1e-6


def built(preset: str, **spec: object) -> Objective:
    return build_objective({"preset": preset, **spec}, max_response_tokens=16)


def ready(preset: str, seed: int = 0, **spec: object) -> tuple[Objective, Step]:
    objective = built(preset, **spec)
    step = make_step(seed)
    return objective, prepared(step, objective, **extras(step))


@pytest.mark.parametrize("preset", [name for name in PRESETS if not built(name).whole_minibatch])
def test_any_split_adds_up_to_the_whole(preset: str):
    objective, step = ready(preset, kl_coef=0.03, entropy_coef=0.01, penalty_weights="sequence_mean")
    loss, gradient_T = loss_and_gradient(objective, step)
    whole = objective.loss(step, step.policy_T, step.entropy_T)
    for cuts in ((0, 5, 12), (0, 1, 2, 3, 7, 11, 12)):
        parts = [part(step, first, last) for first, last in itertools.pairwise(cuts)]
        components = [loss_and_gradient(objective, microbatch) for microbatch in parts]
        assert sum(value for value, _ in components) == pytest.approx(loss, abs=1e-12)
        assert torch.allclose(torch.cat([grad_T for _, grad_T in components]), gradient_T, atol=1e-13)
        result = [objective.loss(microbatch, microbatch.policy_T, microbatch.entropy_T) for microbatch in parts]
        for key, total in whole.sums.items():
            assert sum(part.sums[key].item() for part in result) == pytest.approx(total.item(), abs=1e-9), key
        for key, largest in whole.maxima.items():
            assert max(part.maxima[key].item() for part in result) == largest.item()


@pytest.mark.parametrize("preset", PRESETS)
def test_nothing_outside_the_mask_leaks(preset: str):
    objective = built(preset, kl_coef=0.03, entropy_coef=0.01)
    step = make_step(1)
    other = replace(
        step,
        **{
            name: torch.where(step.mask_T, getattr(step, name), torch.full_like(step.policy_T, -FAR))
            for name in ("policy_T", "old_logp_T", "behavior_logp_T", "ref_logp_T", "entropy_T", "value_T")
        },
    )
    results = [loss_and_gradient(objective, prepared(batch, objective, **extras(batch))) for batch in (step, other)]
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])
    assert results[0][1][~step.mask_T].abs().max() == 0


@pytest.mark.parametrize("preset", PRESETS)
def test_float32_follows_float64(preset: str):
    objective, step = ready(preset, seed=2, kl_coef=0.03)
    single = replace(
        step,
        **{name: value.float() for name, value in vars(step).items() if getattr(value, "dtype", None) is torch.float64},
    )
    loss, gradient_T = loss_and_gradient(objective, step)
    loss32, gradient32_T = loss_and_gradient(objective, single)
    assert gradient32_T.dtype is torch.float32
    assert loss32 == pytest.approx(loss, rel=1e-4, abs=1e-5)
    assert torch.allclose(gradient32_T.double(), gradient_T, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_order_of_rollouts_changes_nothing(preset: str):
    objective, step = ready(preset, seed=3, kl_coef=0.03)
    order = [7, 2, 9, 0, 11, 5, 1, 10, 3, 8, 4, 6]
    index = torch.cat([(step.segment_T == n).nonzero().flatten() for n in order])
    renumbered = torch.empty(12, dtype=torch.long)
    renumbered[torch.tensor(order)] = torch.arange(12)
    arrays = {name: value[index] for name, value in vars(step).items() if name.endswith("_T") and value is not None}
    moved = replace(
        step,
        **{**arrays, "segment_T": renumbered[arrays["segment_T"]]},
        reward_N=step.reward_N[order],
        group_N=step.group_N[order],
    )
    given = {name: value[index] if name.endswith("_T") else value[order] for name, value in extras(step).items()}
    again = prepared(moved, objective, **given)
    assert torch.allclose(again.advantage_T, step.advantage_T[index], atol=1e-12)
    loss, gradient_T = loss_and_gradient(objective, step)
    moved_loss, moved_gradient_T = loss_and_gradient(objective, again)
    assert moved_loss == pytest.approx(loss, abs=1e-12)
    assert torch.allclose(moved_gradient_T, gradient_T[index], atol=1e-12)


@pytest.mark.parametrize("ratio", ["token", "sequence", "product"])
@pytest.mark.parametrize("name", SMOOTH)
def test_autograd_equals_finite_differences(name: str, ratio: str):
    spec = {"surrogate": name, "ratio": ratio, "kl": {"name": "k3", "weight": "ratio"}, "kl_coef": 0.1}
    objective = build_objective({**spec, "weights": "sequence_mean"})
    step = prepared(make_step(4, groups=2, spread=0.15), objective)
    gradient_T = loss_and_gradient(objective, step)[1]
    for index in step.mask_T.nonzero().flatten().tolist()[::5]:
        ends = []
        for sign in (1, -1):
            policy_T = step.policy_T.clone()
            policy_T[index] += sign * EPS
            ends.append(objective.loss(step, policy_T).loss.item())
        assert gradient_T[index].item() == pytest.approx((ends[0] - ends[1]) / (2 * EPS), abs=1e-8)


@pytest.mark.parametrize("preset", sorted(set(PRESETS) - {"opmd", "grpo_process"}))
def test_equal_policies_give_reinforces_gradient(preset: str):
    # at rho = 1 every surrogate ascends sum(weight x A x grad log pi); a shared ratio spreads it over its rollout
    objective = built(preset)
    step = make_step(5)
    step = replace(step, old_logp_T=step.policy_T, behavior_logp_T=step.policy_T)
    step = prepared(step, objective, **extras(step))
    parts = objective.loss(step, step.policy_T, step.entropy_T)
    assert parts.sums["ratio"].item() == pytest.approx(parts.sums["tokens"].item())
    gradient_T = loss_and_gradient(objective, step)[1]
    kept_T = torch.ones_like(step.mask_T)
    if preset in ("high_entropy", "clip_cov", "kl_cov"):
        kept_T = gradient_T != 0
    expected_T = -(step.weight_T * step.advantage_T * kept_T)
    totals = [torch.zeros(12).double().index_add(0, step.segment_T, x) for x in (gradient_T, expected_T)]
    assert torch.allclose(*totals, atol=1e-12)
    if objective.ratio.name == "token":
        assert torch.allclose(gradient_T, expected_T, atol=1e-12)


def test_corrections_weigh_the_surrogate_and_not_the_kl():
    step = make_step(7)
    parts = []
    for correction in ("none", {"name": "truncate", "low": 3.0, "high": 3.0}):
        objective = built("grpo", correction=correction, kl_coef=0.1)
        parts.append(objective.loss(prepared(step, objective), step.policy_T).sums)
    assert parts[1]["surrogate"].item() == pytest.approx(3 * parts[0]["surrogate"].item())
    assert parts[1]["kl_loss"].item() == parts[0]["kl_loss"].item()
    dropped = built("grpo", correction={"name": "mask_outside", "low": 1e9, "high": None})
    result = dropped.loss(prepared(step, dropped), step.policy_T).sums
    assert result["surrogate"].item() == 0
    assert result["tokens"].item() == int(step.mask_T.sum())


def test_lengths_are_of_chosen_tokens_only():
    # opo: rewards 1 and 0 with one and two chosen tokens, so baseline 1/3; prompts and tool output do not count
    objective = built("opo")
    result = objective.advantages(
        torch.tensor([1.0, 0.0]),
        torch.tensor([0, 0]),
        segment_T=torch.tensor([0, 0, 0, 1, 1, 1]),
        mask_T=torch.tensor([False, True, False, False, True, True]),
    )
    assert result.advantage_N is not None
    assert result.advantage_N.tolist() == pytest.approx([2 / 3, -1 / 3])


def test_kimis_squared_loss_is_two_tau_times_the_mirror_descent_gradient():
    tau = 0.7
    gradients = []
    for name in ("opmd", "mirror_descent"):
        objective = built("opmd", surrogate={"name": name, "tau": tau})
        gradients.append(loss_and_gradient(objective, prepared(make_step(6), objective))[1])
    assert torch.allclose(gradients[0], 2 * tau * gradients[1], atol=1e-12)


def test_a_coefficient_of_zero_needs_no_reference_model():
    objective, step = ready("grpo")
    assert not objective.needs_ref
    assert objective.loss(replace(step, ref_logp_T=None), step.policy_T).loss.isfinite()
    assert built("grpo", kl_coef=0.01).needs_ref
    assert not built("grpo", kl_coef=0.01, kl_to="old").needs_ref
    with pytest.raises(ConfigError, match="needs log-probs of a reference model"):
        built("grpo", kl_coef=0.01).loss(replace(step, ref_logp_T=None), step.policy_T)


def test_what_a_preset_needs_follows_from_its_components():
    assert built("ppo").needs_values
    assert not built("grpo").needs_values
    assert built("grpo").needs_group
    assert not built("reinforce_pp").needs_group
    assert built("high_entropy").needs_entropy
    assert built("clip_cov").whole_minibatch
    assert not built("dapo").whole_minibatch
    assert built("ppo", kl_coef=0.1).advantages_need_old_logp
    step = make_step(0)
    with pytest.raises(ConfigError, match="needs a critic"):
        built("ppo").advantages(step.reward_N, step.group_N, segment_T=step.segment_T, mask_T=step.mask_T)


def test_a_group_of_one_is_refused_in_words():
    with pytest.raises(ConfigError) as caught:
        check_group_size(built("grpo"), 1)
    assert str(caught.value) == (
        "rollout.samples_per_prompt = 1: group_zscore gives every rollout advantage 0. "
        'Use 2 or more, or algorithm.advantage = "batch_zscore".'
    )
    check_group_size(built("grpo"), 2)
    check_group_size(built("grpo", advantage="batch_zscore"), 1)
    check_group_size(built("grpo", advantage="prior_mean"), 1)
    with pytest.raises(ConfigError, match="Use 5 or more"):
        check_group_size(built("pass_at_k"), 4)


def test_rewards_that_are_tried_lie_around_the_one_that_counts_as_solved():
    check_group_size(built("online_rft", advantage={"solved": 1.5}), 1)
    check_group_size(built("pass_at_k", advantage={"solved": 2.0}), 8)
    with pytest.raises(ConfigError, match="Use 5 or more"):
        check_group_size(built("pass_at_k", advantage={"solved": 2.0}), 4)


def test_early_stop_looks_at_the_mean_ratio():
    objective = built("grpo", max_ratio=1.5)
    assert objective.stops({"ratio": 16.0, "tokens": 10.0})
    assert not objective.stops({"ratio": 14.0, "tokens": 10.0})
    assert not built("grpo").stops({"ratio": 1e9, "tokens": 1.0})


def test_a_preset_without_its_input_is_refused_and_still_works_where_the_input_is_supplied():
    objective = built("grpo_process")
    with pytest.raises(
        ConfigError, match=r"'process' needs a reward at the last token of each reasoning step"
    ) as error:
        check_recipe(objective, samples_per_prompt=8)
    assert 'use preset = "grpo"' in str(error.value)
    check_recipe(objective, samples_per_prompt=8, rewards_steps=True)
    assert {name for _, name in missing_inputs(objective, TRAINING_INPUTS)} == {"step_reward_T", "step_end_T"}
    assert missing_inputs(objective, INPUTS) == []
    for preset in set(PRESETS) - {"grpo_process"}:
        check_recipe(built(preset), samples_per_prompt=8)


def test_the_likelihood_term_is_a_weighted_log_prob_of_good_rollouts():
    """Two good rollouts with 1 and 3 tokens, log-probs -1 each, and a bad one: three ways to average them."""
    segment_T, mask_T = torch.tensor([0, 1, 1, 1, 2, 2]), torch.ones(6).bool()
    for weights, total in (("token_mean", 1.0), ("sequence_sum", 4 / 3), ("sequence_mean", 2 / 3)):
        objective = build_objective({"likelihood_coef": 0.5, "likelihood_weights": weights})
        weights = objective.minibatch_weights(segment_T, mask_T, torch.tensor([1.0, 2.0, 0.0]))
        weight_T = weights["likelihood_weight_T"]
        assert weight_T is not None
        assert weight_T[4:].tolist() == [0, 0]
        assert weight_T.sum().item() == pytest.approx(total)
    step = make_step(3)
    base, with_term = built("grpo"), built("grpo", likelihood_coef=0.5, likelihood_weights="token_mean")
    difference = (
        loss_and_gradient(with_term, prepared(step, with_term))[0] - loss_and_gradient(base, prepared(step, base))[0]
    )
    good_T = step.mask_T & (step.reward_N > 0)[step.segment_T]
    assert difference == pytest.approx(-0.5 * step.policy_T[good_T].mean().item())


def test_the_policy_term_has_a_strength_of_its_own():
    step = make_step(3)
    full, half = built("grpo", kl_coef=0.1), built("grpo", kl_coef=0.1, policy_coef=0.5)
    parts = full.loss(prepared(step, full), step.policy_T)
    expected = parts.loss - 0.5 * parts.sums["surrogate"]
    assert half.loss(prepared(step, half), step.policy_T).loss.item() == pytest.approx(expected.item())


def test_the_entropy_bonus_can_be_restricted_to_the_tokens_that_a_threshold_keeps():
    step = make_step(3)
    entropies = step.entropy_T[step.mask_T]
    kept = entropies[entropies >= entropies.quantile(0.5)]
    expected = {"all": entropies.sum() / len(entropies), "kept": kept.sum() / len(entropies), "kept_mean": kept.mean()}
    for tokens, bonus in expected.items():
        spec: dict[str, Any] = {"correction": {"name": "high_entropy", "share": 0.5}, "weights": "token_mean"}
        objective = built("grpo", **spec, entropy_coef=0.1, entropy_tokens=tokens)
        prepared_step = prepared(step, objective)
        without = objective.loss(prepared_step, step.policy_T, step.entropy_T, entropy_coef=0.0).loss
        loss = objective.loss(prepared_step, step.policy_T, step.entropy_T).loss
        assert (without - loss).item() == pytest.approx(0.1 * bonus.item()), tokens


def test_the_coefficients_scale_their_terms_and_that_of_a_schedule_takes_the_place_of_the_objectives():
    objective, step = ready("grpo", kl_coef=0.01, entropy_coef=0.1)
    without_kl, strong_kl = replace(objective, kl_coef=0.0), replace(objective, kl_coef=0.5)
    base = loss_and_gradient(without_kl, step, entropy_coef=0.0)[0]
    with_kl = loss_and_gradient(strong_kl, step, entropy_coef=0.0)[0]
    with_entropy = loss_and_gradient(without_kl, step, entropy_coef=0.5)[0]
    sums = objective.loss(step, step.policy_T, step.entropy_T).sums
    assert with_kl - base == pytest.approx(0.5 * sums["kl_loss"].item())
    assert with_entropy < base
    with pytest.raises(ValueError, match="without entropy_T"):
        objective.loss(step, step.policy_T)


def test_full_kl_is_taken_as_the_trainer_gives_it():
    objective, step = ready("grpo", kl="full", kl_coef=2.0)
    exact_T = step.mask_T * 0.25
    parts = objective.loss(step, step.policy_T, full_kl_T=exact_T)
    tokens_T = step.weight_T.sum().item()
    assert parts.sums["kl_loss"].item() == pytest.approx(0.25 * tokens_T)


def test_the_critics_loss_is_the_worse_of_clipped_and_free():
    objective, step = ready("ppo")
    rollout = part(step, 0, 1)
    rollout = replace(rollout, weight_T=rollout.mask_T.double())
    ones_T = torch.ones_like(rollout.policy_T)
    # V = 1, V_old = 0, return 0.5, clip 0.2: free error 0.25, clipped (0.2 - 0.5)^2 = 0.09
    tokens = int(rollout.mask_T.sum())
    assert objective.value_loss(rollout, ones_T, 0 * ones_T, 0.5 * ones_T).item() == pytest.approx(0.125 * tokens)
    # return 2: free 1, clipped (0.2 - 2)^2 = 3.24
    assert objective.value_loss(rollout, ones_T, 0 * ones_T, 2 * ones_T).item() == pytest.approx(1.62 * tokens)
    with pytest.raises(ValueError, match="no critic"):
        built("grpo").value_loss(rollout, ones_T, ones_T, ones_T)
