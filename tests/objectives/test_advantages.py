from __future__ import annotations

import numpy as np
import objective_twin as twin
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from token_batches import EXAMPLES
from torch import Tensor

from ansatz.audit.rules import RULES, Rewards
from ansatz.objectives.build import build_objective
from ansatz.objectives.components import Component

CENTERED = ("group_mean", "group_zscore", "group_smoothed", "leave_one_out", "mean_ratio", "pass_at_k")
REWARDS = st.lists(st.sampled_from([0.0, 0.25, 1.0, -0.5]), min_size=2, max_size=6)


def component(name: str, **given_settings: object) -> Component:
    return build_objective({"advantage": {"name": name, **given_settings}}).advantage


def of_group(estimator: Component, rewards: list[float], lengths: list[int] | None = None) -> list[float]:
    reward_N = torch.tensor(rewards, dtype=torch.float64)
    length_N = torch.tensor(lengths or [3] * len(rewards))
    return estimator({"reward_N": reward_N, "group_N": torch.full_like(length_N, 5), "length_N": length_N}).tolist()


@EXAMPLES
@given(REWARDS)
def test_components_on_one_group_equal_the_reference(rewards: list[float]):
    close = pytest.approx
    assert of_group(component("group_mean"), rewards) == close(twin.group_mean(rewards), abs=1e-12)
    assert of_group(component("leave_one_out"), rewards) == close(twin.leave_one_out(rewards), abs=1e-12)
    for ddof in (0, 1):
        result = of_group(component("group_zscore", ddof=ddof, eps=1e-4), rewards)
        assert result == close(twin.group_zscore(rewards, ddof, 1e-4), abs=1e-11)
    lengths = [2 + 3 * rank for rank in range(len(rewards))]
    assert of_group(component("opo"), rewards, lengths) == close(twin.opo(rewards, lengths), abs=1e-12)
    assert of_group(component("log_partition", tau=0.7), rewards) == close(twin.log_partition(rewards, 0.7), abs=1e-12)
    if len(rewards) > 2:
        result = of_group(component("leave_one_out_std"), rewards)
        assert result == close(twin.leave_one_out_std(rewards, 1, 1e-6), abs=1e-9)
    positive = [abs(reward) + 0.1 for reward in rewards]
    assert of_group(component("mean_ratio"), positive) == close(twin.mean_ratio(positive, 1e-6), abs=1e-12)


@EXAMPLES
@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=3, max_size=6), st.integers(1, 3))
def test_pass_at_k_is_the_mean_z_score_of_the_draws_a_rollout_is_in(rewards: list[float], k: int):
    assert of_group(component("pass_at_k", k=k), rewards) == pytest.approx(twin.pass_at_k(rewards, k), abs=1e-9)


def test_one_right_answer_in_eight_gets_the_fields_five_numbers():
    # 7/8, (7/8)/sqrt(1/8) with ddof 1 less its eps, (7/8)/sqrt(7/64) with ddof 0, and 1 against seven zeros
    rewards = [1.0] + [0.0] * 7
    assert of_group(component("group_mean"), rewards)[0] == 0.875
    assert of_group(component("group_zscore", ddof=1, eps=1e-4), rewards)[0] == pytest.approx(2.4742, abs=5e-5)
    assert of_group(component("group_zscore", ddof=1, eps=1e-6), rewards)[0] == pytest.approx(2.4749, abs=5e-5)
    assert of_group(component("group_zscore", ddof=0, eps=1e-8), rewards)[0] == pytest.approx(2.6458, abs=5e-5)
    assert of_group(component("leave_one_out_std"), rewards)[0] == 1.0


@EXAMPLES
@given(st.lists(REWARDS, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_advantages_sum_to_zero_per_group_and_follow_a_shift_and_a_permutation(groups: list[list[float]], rng):
    rewards = [reward for group in groups for reward in group]
    labels = [7 * index for index, group in enumerate(groups) for _ in group]
    order = list(range(len(rewards)))
    rng.shuffle(order)
    reward_N, group_N = torch.tensor(rewards, dtype=torch.float64), torch.tensor(labels)
    for name in ("group_mean", "group_zscore", "group_smoothed", "leave_one_out"):
        estimator: Component = component(name)

        def call(rewards_N: Tensor, groups_N: Tensor, estimator: Component = estimator) -> Tensor:
            return estimator({"reward_N": rewards_N, "group_N": groups_N})

        plain = call(reward_N, group_N)
        assert max(abs(plain[group_N == label].sum().item()) for label in set(labels)) < 1e-9
        assert torch.allclose(call(reward_N + 3.0, group_N), plain, atol=1e-9)
        assert torch.allclose(call(reward_N[order], group_N[order]), plain[order], atol=1e-9)


@pytest.mark.parametrize("name", [*CENTERED, "leave_one_out_std", "opo", "best_gap", "gpg", "log_partition"])
def test_a_group_of_equal_rewards_gets_zero_and_never_nan(name: str):
    for value in (0.0, 1.0, 0.9):
        for dtype in (torch.float32, torch.float64):
            reward_N = torch.full((8,), value, dtype=dtype)
            given_inputs = {"reward_N": reward_N, "group_N": torch.zeros(8).long(), "length_N": torch.arange(1, 9)}
            made_N = component(name)(given_inputs)
            if name == "log_partition":
                assert made_N.abs().max() < 1e-6
            else:
                assert torch.equal(made_N, torch.zeros_like(reward_N))


def test_rounding_of_a_uniform_float32_group_is_not_blown_up_by_a_tiny_epsilon():
    reward_N = torch.full((8,), 0.9)
    result = component("group_zscore", eps=1e-9)({"reward_N": reward_N, "group_N": torch.zeros(8).long()})
    assert result.abs().max() == 0


@pytest.mark.parametrize(
    "rewards",
    [
        *([1.0] + [0.0] * 5, [0.1] + [1.1] * 7, [0.35, 1.0] + [0.35] * 6, [0.0, 1.0] * 8),
        # others that differ by rounding are equal
        *([1.0, 0.3, 0.30000004, 0.3], [0.0, 1.0, 1.0000001, 1.0], [1.0, 0.0, 5e-9, 0.0]),
        *([0.3, 0.30000004, 0.3, 0.3], [-1.0, -0.3, -0.30000004, -0.3]),
    ],
)
def test_no_float32_advantage_is_divided_by_the_rounding_error_of_a_std(rewards: list[float]):
    reward_N = torch.tensor(rewards)
    result = component("leave_one_out_std")({"reward_N": reward_N, "group_N": torch.zeros_like(reward_N).long()})
    assert result.dtype == torch.float32
    expected = pytest.approx(twin.leave_one_out_std([round(reward, 6) for reward in rewards], 1, 1e-6), 1e-5, 1e-6)
    assert result.tolist() == expected
    audited = Rewards(reward_N.double().numpy(), np.zeros(len(rewards)), *[np.zeros(0)] * 3)
    assert RULES["leave_one_out_std"](audited).tolist() == expected


def test_batch_zscore_has_mean_zero_and_variance_one_and_needs_no_group():
    result = component("batch_zscore")({"reward_N": torch.tensor([0.0, 1.0, 0.0, 5.0], dtype=torch.float64)})
    assert result.mean().item() == pytest.approx(0, abs=1e-12)
    assert result.std().item() == pytest.approx(1, abs=1e-7)


def test_std_over_the_batch_divides_every_group_alike():
    given_inputs = {
        "reward_N": torch.tensor([0.0, 2.0, 0.0, 0.2], dtype=torch.float64),
        "group_N": torch.tensor([0, 0, 1, 1]),
    }
    result = component("group_zscore", std_over="batch", eps=0.0)(given_inputs)
    assert result[1] / result[3] == pytest.approx(10.0)
    assert result[1].item() == pytest.approx(1 / twin.std([0, 2, 0, 0.2], 1))


def test_smoothed_std_lies_between_the_z_score_and_one_scale_for_all():
    # strength 0: both groups reach z = 1 (ddof 0); a huge strength divides both by one std, so they differ tenfold
    given_inputs = {
        "reward_N": torch.tensor([0.0, 2.0, 0.0, 0.2], dtype=torch.float64),
        "group_N": torch.tensor([0, 0, 1, 1]),
    }
    sharp = component("group_smoothed", strength=0.0, eps=0.0)(given_inputs)
    assert sharp.abs().tolist() == pytest.approx([1.0] * 4)
    flat = component("group_smoothed", strength=1e9, eps=0.0)(given_inputs)
    assert flat[1] / flat[3] == pytest.approx(10.0, rel=1e-6)


def test_prior_mean_moves_a_uniform_group_and_never_sees_its_own_reward():
    given_inputs = {
        "reward_N": torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64),
        "group_N": torch.tensor([0, 0, 1, 1]),
    }
    result = component("prior_mean", strength=1.0)(given_inputs)
    assert result.tolist() == pytest.approx([0.5, 0.5, -0.5, -0.5])  # baseline (1 + 0) / 2 for the first prompt
    higher = {**given_inputs, "reward_N": torch.tensor([9.0, 1.0, 0.0, 0.0], dtype=torch.float64)}
    assert component("prior_mean")(higher)[0] - result[0] == pytest.approx(8.0)


def test_a_group_of_one_gets_zero_or_keeps_its_reward():
    given_inputs = {"reward_N": torch.tensor([0.7]), "group_N": torch.tensor([4]), "length_N": torch.tensor([3])}
    for name in ("group_mean", "group_zscore", "leave_one_out", "opo"):
        assert component(name)(given_inputs).item() == 0
        assert component(name, single="keep")(given_inputs).item() == pytest.approx(0.7, abs=1e-3)


def test_best_gap_is_the_lead_of_the_single_best():
    assert of_group(component("best_gap"), [0.2, 1.0, 0.5]) == pytest.approx([0.0, 0.5, 0.0])
    assert of_group(component("best_gap"), [1.0, 1.0, 0.5]) == [0.0, 0.0, 0.0]


def test_remax_filtered_bc_gpg_and_gdpo_by_hand():
    reward_N, group_N = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([0, 0, 1, 1])
    assert component("remax")({"reward_N": reward_N, "baseline_N": torch.tensor([0.5, 0.5, 1, 1])}).tolist() == [
        0.5,
        -0.5,
        -1.0,
        -1.0,
    ]
    assert component("filtered_bc")({"reward_N": reward_N}).tolist() == [1, 0, 0, 0]
    assert component("gpg")({"reward_N": reward_N, "group_N": group_N}).tolist() == [2, -2, 0, 0]
    components = torch.tensor([[1.0, 0.0], [0.0, 100.0], [0.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    result = component("gdpo", eps=0.0, component_weights=(1.0, 0.5))({"component_NK": components, "group_N": group_N})
    assert result[0].item() == pytest.approx((1 - 0.5) / 2**0.5)  # z-scores of two: +-1/sqrt(2), whatever the scale


GROUP_ESTIMATORS = [
    "group_mean",
    "group_zscore",
    "group_smoothed",
    "leave_one_out",
    "leave_one_out_std",
    "mean_ratio",
    "pass_at_k",
    "best_gap",
    "opo",
    "gpg",
    "log_partition",
    "gdpo",
]


@pytest.mark.parametrize("name", GROUP_ESTIMATORS)
def test_a_prompt_with_one_rollout_gets_zero_from_every_group_estimator(name: str):
    reward_N = torch.tensor([0.0, 1.0, 0.75], dtype=torch.float64)
    given_inputs = {
        "reward_N": reward_N,
        "group_N": torch.tensor([0, 0, 1]),
        "length_N": torch.tensor([2, 3, 4]),
        "component_NK": reward_N[:, None],
    }
    result = component(name)(given_inputs)
    assert result.isfinite().all()
    assert result[2].item() == 0


@pytest.mark.parametrize("name", GROUP_ESTIMATORS)
def test_equal_rewards_everywhere_give_zero_and_never_nan(name: str):
    reward_N = torch.full((4,), 0.1, dtype=torch.float64)
    given_inputs = {
        "reward_N": reward_N,
        "group_N": torch.tensor([0, 0, 1, 1]),
        "length_N": torch.tensor([2, 3, 4, 5]),
        "component_NK": reward_N[:, None],
    }
    assert component(name)(given_inputs).abs().max().item() == pytest.approx(0, abs=1e-15)


def test_a_mean_ratio_of_one_rollout_is_zero_or_its_reward():
    given_inputs = {"reward_N": torch.tensor([0.5, -2.0]), "group_N": torch.tensor([0, 1])}
    assert component("mean_ratio", signed=True)(given_inputs).tolist() == [0, 0]
    assert component("mean_ratio", signed=True, single="keep")(given_inputs).tolist() == [0.5, -2.0]


def test_gdpo_takes_any_normalizer_of_each_component():
    """Two prompts; components (4, 0, 2) and (1, 1, 4) for the first, one rollout for the second."""
    component_NK = torch.tensor([[4.0, 1.0], [0.0, 1.0], [2.0, 4.0], [3.0, 3.0]], dtype=torch.float64)
    given_inputs = {"component_NK": component_NK, "group_N": torch.tensor([0, 0, 0, 1])}
    expected = {
        "group_mean": [2 - 0.5, -2 - 0.5, 0 + 1.0],  # means 2 and 2, weights 1 and 0.5
        "leave_one_out": [3 - 0.75, -3 - 0.75, 0 + 1.5],
        # others of component 0: (0, 2), (4, 2), (4, 0); their stds sqrt(2), sqrt(2), sqrt(8).
        # others of component 1: (1, 4), (1, 4), (1, 1); stds sqrt(4.5), sqrt(4.5), 0, which is not divided by.
        "leave_one_out_std": [
            3 / 2**0.5 - 0.75 / 4.5**0.5,
            -3 / 2**0.5 - 0.75 / 4.5**0.5,
            1.5,
        ],
        "group_zscore": [1 - 0.5 / 3**0.5, -1 - 0.5 / 3**0.5, 1 / 3**0.5],  # stds 2 and sqrt(3)
    }
    for normalizer, values in expected.items():
        result = component("gdpo", normalizer=normalizer, eps=0.0, component_weights=(1.0, 0.5))(given_inputs)
        assert result.tolist() == pytest.approx([*values, 0.0]), normalizer
    kept = component("gdpo", normalizer="group_mean", single="keep")(given_inputs)
    assert kept[3].item() == 6.0


def test_gdpo_normalises_each_component_over_the_rollouts_that_it_applies_to():
    nan = float("nan")
    component_NK = torch.tensor([[1.0, nan], [3.0, 2.0], [nan, 4.0], [nan, nan]])
    inputs = {"component_NK": component_NK, "group_N": torch.zeros(4, dtype=torch.long)}
    result = component("gdpo", normalizer="group_mean", component_weights=(1.0, 10.0))(inputs)
    assert result.tolist() == [-1.0, 1.0 - 10.0, 10.0, 0.0]
