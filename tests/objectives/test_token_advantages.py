from __future__ import annotations

import objective_twin as twin
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from token_batches import EXAMPLES, extras, make_step

from ansatz.objectives.build import build_objective
from ansatz.objectives.segments import discounted_sum
from ansatz.objectives.token_advantages import REWARD_WHITENS

SMALL = st.lists(st.floats(-2, 2), min_size=1, max_size=6)


@EXAMPLES
@given(st.lists(SMALL, min_size=1, max_size=4), st.floats(0, 1))
def test_discounted_sums_stay_within_their_segment(rollouts: list[list[float]], gamma: float):
    segment_T = torch.tensor([n for n, rollout in enumerate(rollouts) for _ in rollout])
    value_T = torch.tensor([x for rollout in rollouts for x in rollout], dtype=torch.float64)
    expected = [y for rollout in rollouts for y in twin.reward_to_go(rollout, gamma)]
    assert discounted_sum(value_T, segment_T, gamma).tolist() == pytest.approx(expected, abs=1e-10)


def advantages(spec: dict, step, **given_inputs):
    arrays = {name: getattr(step, name) for name in ("segment_T", "mask_T", "old_logp_T", "ref_logp_T", "value_T")}
    return build_objective(spec).advantages(step.reward_N, step.group_N, **arrays, **given_inputs)


def by_rollout(value_T: torch.Tensor, step) -> list[list[float]]:
    return [value_T[(step.segment_T == n) & step.mask_T].tolist() for n in range(step.rollouts)]


def test_gae_equals_the_explicit_sum_and_returns_add_the_value():
    step = make_step(3)
    result = advantages({"advantage": {"name": "gae", "gamma": 0.97, "lam": 0.9}}, step)
    values, got = step.lists("value_T"), by_rollout(result.advantage_T, step)
    for n in range(step.rollouts - 1):
        rewards = [0.0] * (len(values[n]) - 1) + [step.reward_N[n].item()]
        assert got[n] == pytest.approx(twin.gae(rewards, values[n], 0.97, 0.9), abs=1e-12)
    assert torch.allclose(result.return_T, (result.advantage_T + step.value_T) * step.mask_T)


def test_gae_with_gamma_and_lambda_one_is_reward_to_go_minus_value():
    step = make_step(4)
    result = advantages({"advantage": "gae"}, step)
    togo = advantages({"advantage": "reward_to_go"}, step)
    assert torch.allclose(result.advantage_T, (togo.advantage_T - step.value_T) * step.mask_T, atol=1e-12)


def test_length_adaptive_lambda_uses_each_rollouts_own_length():
    step = make_step(5)
    result = advantages({"advantage": {"name": "gae", "lam_length": 0.5}}, step)
    values, got = step.lists("value_T"), by_rollout(result.advantage_T, step)
    for n in range(step.rollouts - 1):
        lam = max(1 - 1 / (0.5 * len(values[n])), 0)
        rewards = [0.0] * (len(values[n]) - 1) + [step.reward_N[n].item()]
        assert got[n] == pytest.approx(twin.gae(rewards, values[n], 1.0, lam), abs=1e-12)


def test_process_supervision_sums_the_steps_that_end_at_or_after_a_token():
    step = make_step(6, groups=1, size=5)
    given_inputs = extras(step)
    result = advantages({"preset": "grpo_process", "advantage": {"eps": 0.0}}, step, **given_inputs)
    ends, rewards, lengths = [], [], []
    for n in range(step.rollouts):
        inside = (step.segment_T == n) & step.mask_T
        hits = given_inputs["step_end_T"][inside]
        ends.append(hits.nonzero().flatten().tolist())
        rewards.append(given_inputs["step_reward_T"][inside][hits].tolist())
        lengths.append(int(inside.sum()))
    expected = twin.process(rewards, ends, lengths)
    assert [x for row in by_rollout(result.advantage_T, step) for x in row] == pytest.approx(
        [x for row in expected for x in row], abs=1e-10
    )


def test_whitening_over_tokens_and_over_rollouts_differ_by_length():
    step = make_step(7)
    tokens = advantages({"advantage": "group_mean", "whiten": {"name": "tokens", "eps": 0.0}}, step)
    flat = [x for row in by_rollout(tokens.advantage_T, step) for x in row]
    plain = advantages({"advantage": "group_mean"}, step)
    assert flat == pytest.approx(twin.whitened([x for row in by_rollout(plain.advantage_T, step) for x in row]))
    rollouts = advantages({"advantage": "group_mean", "whiten": {"name": "rollouts", "eps": 0.0}}, step)
    assert rollouts.advantage_N.tolist() == pytest.approx(twin.whitened(plain.advantage_N.tolist()))


def test_kl_in_the_reward_comes_off_before_the_baseline_and_in_the_return_after_it():
    step = make_step(8)
    spec = {"advantage": "group_mean", "kl": "k1", "kl_coef": 0.1}
    gaps = [
        [twin.k1(p, q) for p, q in zip(a, b, strict=True)]
        for a, b in zip(step.lists("old_logp_T"), step.lists("ref_logp_T"), strict=True)
    ]
    shaped = [r - 0.1 * sum(gap) for r, gap in zip(step.reward_N.tolist(), gaps, strict=True)]
    before = advantages({**spec, "kl_in": "reward"}, step).advantage_N.tolist()
    assert before[:4] == pytest.approx(twin.group_mean(shaped[:4]))
    plain = advantages({**spec, "kl_coef": 0.0}, step)
    after = by_rollout(advantages({**spec, "kl_in": "return"}, step).advantage_T, step)
    per_token = by_rollout(advantages({**spec, "kl_in": "advantage"}, step).advantage_T, step)
    for n in range(step.rollouts - 1):
        base = plain.advantage_N[n].item()
        togo = twin.reward_to_go(gaps[n], 1.0)
        assert after[n] == pytest.approx([base - 0.1 * x for x in togo])
        assert per_token[n] == pytest.approx([base - 0.1 * x for x in gaps[n]])


def test_reward_whitening_divides_the_rewards_of_tokens_and_keeps_their_mean():
    """The numbers of TRL's `masked_whiten(rewards, mask, shift_mean=False)`: var with ddof 1, 1e-8 added to it."""
    reward_T = torch.tensor([-0.1, 0.0, 0.7, -0.2, 0.1], dtype=torch.float64)
    mean, var = float(reward_T.sum()) / 5, float(((reward_T - reward_T.mean()) ** 2).sum()) / 4
    expected = [(float(reward) - mean) / (var + 1e-8) ** 0.5 for reward in reward_T]
    kept, shifted = (REWARD_WHITENS.bind("tokens", {"keep_mean": keep})(reward_T) for keep in (True, False))
    assert kept.tolist() == pytest.approx([value + mean for value in expected], abs=1e-12)
    assert shifted.tolist() == pytest.approx(expected, abs=1e-12)
    equal_T = torch.full((4,), 0.3)
    assert torch.equal(REWARD_WHITENS.bind("tokens", {})(equal_T), equal_T)


def test_ppo_in_full_equals_its_steps_by_hand():
    """KL off each token's reward, rewards whitened around their mean, GAE, returns, advantages whitened (TRL's PPO)."""
    step = make_step(9)
    spec = {"preset": "ppo", "kl": {"name": "k1", "at_least": None}, "kl_coef": 0.3, "reward_whiten": "tokens"}
    result = advantages({**spec, "advantage": {"name": "gae", "gamma": 0.98, "lam": 0.9}}, step)
    lists = [step.lists(name) for name in ("old_logp_T", "ref_logp_T", "value_T")]
    rewards = []
    for n in range(step.rollouts - 1):
        rewards.append([-0.3 * (p - q) for p, q in zip(lists[0][n], lists[1][n], strict=True)])
        rewards[n][-1] += step.reward_N[n].item()
    tokens = [reward for rollout in rewards for reward in rollout]
    mean = sum(tokens) / len(tokens)
    scale = (sum((reward - mean) ** 2 for reward in tokens) / (len(tokens) - 1) + 1e-8) ** 0.5
    rewards = [[(reward - mean) / scale + mean for reward in rollout] for rollout in rewards]
    raw = [twin.gae(rollout, lists[2][n], 0.98, 0.9) for n, rollout in enumerate(rewards)]
    returns = [[a + v for a, v in zip(raw[n], lists[2][n], strict=True)] for n in range(len(raw))]
    flat = [advantage for rollout in raw for advantage in rollout]
    centre = sum(flat) / len(flat)
    spread = (sum((advantage - centre) ** 2 for advantage in flat) / (len(flat) - 1) + 1e-8) ** 0.5
    assert step.lists("old_logp_T")[-1] == []  # the last rollout has no token
    for n, rollout in enumerate(raw):
        expected = [(advantage - centre) / spread for advantage in rollout]
        assert by_rollout(result.advantage_T, step)[n] == pytest.approx(expected, abs=1e-9)
        assert by_rollout(result.return_T, step)[n] == pytest.approx(returns[n], abs=1e-9)
    kl = [p - q for a, b in zip(*lists[:2], strict=True) for p, q in zip(a, b, strict=True)]
    assert result.kl_T[step.mask_T].tolist() == pytest.approx(kl)


def test_ppos_reward_clamps_the_kl_at_zero_from_below():
    step = make_step(9)
    kl = {"name": "k1", "at_least": 0.0}
    result = advantages({"advantage": "reward_to_go", "kl": kl, "kl_coef": 1.0, "kl_in": "reward"}, step)
    last = [row[-1] for row in by_rollout(result.advantage_T, step)[:-1]]
    gaps = [a[-1] - b[-1] for a, b in zip(step.lists("old_logp_T")[:-1], step.lists("ref_logp_T")[:-1], strict=True)]
    assert last == pytest.approx([r - max(gap, 0) for r, gap in zip(step.reward_N.tolist(), gaps, strict=False)])


def test_tool_output_counts_as_time_only_when_it_is_a_state():
    # one rollout: chosen, tool, chosen. gamma 0.5: the first chosen token is one or two steps from the reward.
    segment_T, mask_T = torch.zeros(3).long(), torch.tensor([True, False, True])
    objective = build_objective({"advantage": {"name": "reward_to_go", "gamma": 0.5}})
    one = (torch.ones(1, dtype=torch.float64), torch.zeros(1).long())
    near = objective.advantages(*one, segment_T=segment_T, mask_T=mask_T).advantage_T
    far = objective.advantages(*one, segment_T=segment_T, mask_T=mask_T, state_T=torch.ones(3).bool()).advantage_T
    assert near.tolist() == [0.5, 0.0, 1.0]
    assert far.tolist() == [0.25, 0.0, 1.0]


def test_dense_rewards_reach_every_estimator_as_sums_or_to_go():
    """Two rollouts of one prompt with token rewards (1, 0.5) and (-1, 2): sums 1.5 and 1."""
    segment_T, mask_T = torch.tensor([0, 0, 1, 1]), torch.ones(4).bool()
    token_reward_T = torch.tensor([1.0, 0.5, -1.0, 2.0], dtype=torch.float64)
    reward_N, group_N = torch.tensor([9.0, 9.0], dtype=torch.float64), torch.tensor([0, 0])

    def result_of(advantage: object, **inputs: torch.Tensor) -> list[float]:
        objective = build_objective({"advantage": advantage})
        tokens = {"segment_T": segment_T, "mask_T": mask_T, "token_reward_T": token_reward_T}
        return objective.advantages(reward_N, group_N, **tokens, **inputs).advantage_T.tolist()

    assert result_of("group_mean") == pytest.approx([0.25, 0.25, -0.25, -0.25])
    assert result_of("leave_one_out") == pytest.approx([0.5, 0.5, -0.5, -0.5])
    assert result_of("reward_to_go") == pytest.approx([1.5, 0.5, 1.0, 2.0])
    baseline_N = torch.tensor([1.0, 0.5], dtype=torch.float64)
    assert result_of("remax_to_go", baseline_N=baseline_N) == pytest.approx([0.5, -0.5, 0.5, 1.5])
    assert result_of("remax", baseline_N=baseline_N) == pytest.approx([0.5, 0.5, 0.5, 0.5])


def test_a_clipped_advantage_is_clipped_after_the_baseline_and_before_the_kl_and_whitening():
    """Rewards 4 and 0: centred 2 and -2, clipped to 1.5 and -1. The KL to go is 0.1 x 2 tokens, then 0.1."""
    segment_T, mask_T = torch.tensor([0, 0, 1, 1]), torch.ones(4).bool()
    reward_N = torch.tensor([4.0, 0.0], dtype=torch.float64)
    arrays = {
        "segment_T": segment_T,
        "mask_T": mask_T,
        "old_logp_T": torch.full((4,), -1.0, dtype=torch.float64),
        "ref_logp_T": torch.full((4,), -2.0, dtype=torch.float64),
    }
    spec = {"advantage": "group_mean", "advantage_clip": [-1, 1.5], "kl": "k1", "kl_coef": 0.1, "kl_in": "return"}
    result = build_objective(spec).advantages(reward_N, torch.tensor([0, 0]), **arrays)
    assert result.advantage_T.tolist() == pytest.approx([1.3, 1.4, -1.2, -1.1])
    dense = build_objective({"advantage": "reward_to_go", "advantage_clip": [-1, 1.5]})
    assert dense.advantages(reward_N, torch.tensor([0, 0]), **arrays).advantage_T.tolist() == [1.5, 1.5, 0, 0]


@pytest.mark.parametrize("eps_in", ["var", "std", "floor"])
def test_whitening_without_any_spread_gives_zero_and_never_nan(eps_in: str):
    whiten = {"name": "rollouts", "eps": 0.0, "eps_in": eps_in, "mean_eps": 1e-8}
    objective = build_objective({"advantage": "reward", "whiten": whiten})
    result = objective.advantages(
        torch.full((3,), 0.1, dtype=torch.float64),
        torch.tensor([0, 1, 2]),
        segment_T=torch.arange(3),
        mask_T=torch.ones(3).bool(),
    )
    assert result.advantage_T.tolist() == [0, 0, 0]


def test_the_epsilon_of_a_mean_is_added_to_the_number_of_tokens():
    """Advantages 1, 2, 6 with mean_eps 1: mean 9 / 4, squares (25 + 1 + 225) / 16 / 4 x 3 / 2 for ddof 1."""
    objective = build_objective(
        {"advantage": "reward", "whiten": {"name": "tokens", "eps": 0.0, "mean_eps": 1.0, "ddof": 1}}
    )
    result = objective.advantages(
        torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64),
        torch.tensor([0, 1, 2]),
        segment_T=torch.arange(3),
        mask_T=torch.ones(3).bool(),
    )
    std = (251 / 16 / 4 * 3 / 2) ** 0.5
    assert result.advantage_T.tolist() == pytest.approx([-1.25 / std, -0.25 / std, 3.75 / std])
