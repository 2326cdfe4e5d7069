from __future__ import annotations

import pytest

from ansatz.objectives.coefficients import adapt_entropy_coef, adapt_kl_coef


def test_the_kl_controller_moves_in_proportion_and_at_most_a_fifth():
    given = {"target": 0.1, "horizon": 1000, "num_rollouts": 100}
    assert adapt_kl_coef(0.2, 0.11, **given) == pytest.approx(0.2 * (1 + 0.1 * 0.1))
    assert adapt_kl_coef(0.2, 5.0, **given) == pytest.approx(0.2 * (1 + 0.2 * 0.1))
    assert adapt_kl_coef(0.2, 0.0, **given) == pytest.approx(0.2 * (1 - 0.2 * 0.1))


def test_the_entropy_bonus_rises_below_its_target_and_stays_in_its_bounds():
    assert adapt_entropy_coef(0.005, 0.1, target=0.2) == pytest.approx(0.006)
    assert adapt_entropy_coef(0.005, 0.3, target=0.2) == pytest.approx(0.004)
    assert adapt_entropy_coef(0.0, 0.3, target=0.2) == 0.0
    assert adapt_entropy_coef(0.02, 0.1, target=0.2) == 0.02
