from __future__ import annotations

import pytest
import torch

from ansatz.objectives.coefficients import KL_CONTROLS, adapt_entropy_coef


@pytest.mark.parametrize("per", ["rollout", "token"])
@pytest.mark.parametrize(("kl", "error"), [(0.11, 0.1), (5.0, 0.2), (0.0, -0.2)])
def test_the_kl_controller_moves_in_proportion_and_at_most_a_fifth(per, kl, error):
    control = KL_CONTROLS.bind("adaptive", {"target": 0.1, "horizon": 1000, "per": per})
    seen = (kl, 7.0) if per == "rollout" else (7.0, kl)
    numbers = [torch.tensor(value, dtype=torch.float64) for value in (0.2, *seen, 100)]
    assert float(control(*numbers)) == pytest.approx(0.2 * (1 + error * 0.1))


def test_the_entropy_bonus_rises_below_its_target_and_stays_in_its_bounds():
    assert adapt_entropy_coef(0.005, 0.1, target=0.2) == pytest.approx(0.006)
    assert adapt_entropy_coef(0.005, 0.3, target=0.2) == pytest.approx(0.004)
    assert adapt_entropy_coef(0.0, 0.3, target=0.2) == 0.0
    assert adapt_entropy_coef(0.02, 0.1, target=0.2) == 0.02
