"""The advantage rules in numpy, which need no torch, are those of the objectives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from ansatz.audit.rules import Rewards, Rule, candidates, changed, explanations, mistaken
from ansatz.objectives.build import build_objective


def rewards(seed: int = 0) -> Rewards:
    draws = np.random.default_rng(seed)
    group_N = np.repeat([7, 3, 5], [4, 4, 4])
    part_NK = np.round(draws.random((12, 2)), 2)
    part_NK[4:8] = 0.5  # a group without signal
    weight_K = np.array([1.0, 0.25])
    return Rewards(part_NK @ weight_K, group_N, part_NK, weight_K, draws.integers(1, 9, 12))


@pytest.mark.parametrize("rule", list(candidates()), ids=lambda rule: rule.text())
def test_a_rule_is_that_of_the_objectives(rule: Rule):
    given = rewards()
    settings = {key: value for key, value in rule.settings.items() if key != "whiten"}
    spec: dict[str, object] = {"advantage": {"name": rule.name, **settings}}
    if rule.name == "gdpo":
        spec["advantage"] = {"name": "gdpo", **settings, "component_weights": given.weight_K.tolist()}
        if rule.settings["whiten"]:
            spec["whiten"] = {"name": "rollouts", "ddof": settings["ddof"], "eps": 1e-4, "eps_in": "std"}
    segment_T = torch.repeat_interleave(torch.arange(12), torch.tensor(given.length_N))
    found = build_objective(spec).advantages(
        torch.tensor(given.reward_N),
        torch.tensor(given.group_N),
        segment_T=segment_T,
        mask_T=torch.ones(len(segment_T), dtype=torch.bool),
        component_NK=torch.tensor(given.component_NK),
    )
    assert found.advantage_N is not None
    np.testing.assert_allclose(rule(given), found.advantage_N.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rule", list(candidates()), ids=lambda rule: rule.text())
def test_a_rule_is_found_from_its_advantages_in_float32(rule: Rule):
    given = rewards(1)
    found = explanations(given, rule(given).astype(np.float32).astype(float))
    assert rule.name in {each.name for each in found}
    assert all(each.change == "" for each in found)


def test_the_constants_of_a_rule_are_told_apart():
    """By hand: of four rewards, one 1 and three 0, the std is 0.5 with ddof 1 and sqrt(3)/4 with ddof 0."""
    ones = Rewards(np.array([1.0, 0, 0, 0]), np.zeros(4, int), np.zeros((4, 0)), np.zeros(0), np.ones(4))
    advantage_N = np.array([0.75, -0.25, -0.25, -0.25]) / (3**0.5 / 4 + 1e-4)
    names = {rule.text() for rule in explanations(ones, advantage_N)}
    assert "group_zscore (ddof 0, eps 0.0001, std over group)" in names
    assert not any("ddof 1" in name or "1e-06" in name for name in names)


def test_what_a_rule_was_given_by_mistake_is_named():
    given = rewards()
    for change, wrong in list(changed(given))[1:]:
        found = explanations(given, Rule("group_mean", {})(wrong))
        assert [rule.change for rule in found if rule.name == "group_mean"] == [change]


@pytest.mark.parametrize(("rule", "function"), list(mistaken()))
def test_a_wrong_baseline_is_named(rule: Rule, function: Callable[[Rewards], np.ndarray]):
    given = rewards()
    assert rule.text() in {found.text() for found in explanations(given, function(given))}


def test_the_baselines_by_hand():
    """Rewards 1, 0 and 1, 1: the mean of the batch is 3/4."""
    given = Rewards(np.array([1.0, 0, 1, 1]), np.array([0, 0, 1, 1]), np.zeros((4, 0)), np.zeros(0), np.ones(4))
    (found,) = explanations(given, np.array([0.25, -0.75, 0.25, 0.25]))
    assert found.text() == "group_mean, with the mean of the batch as the baseline"


def test_noise_is_explained_by_nothing():
    assert explanations(rewards(), np.random.default_rng(5).normal(size=12)) == []
