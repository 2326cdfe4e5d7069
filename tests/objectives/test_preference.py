"""Preference losses by hand on one pair, and their laws."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ansatz.objectives.components import build_component
from ansatz.objectives.preference import PREFERENCES, bradley_terry

GIVEN = {
    "chosen_gain_P": torch.tensor([0.8], dtype=torch.float64),
    "rejected_gain_P": torch.tensor([-0.4], dtype=torch.float64),
    "chosen_logp_P": torch.tensor([-4.0], dtype=torch.float64),
    "rejected_logp_P": torch.tensor([-9.0], dtype=torch.float64),
    "chosen_length_P": torch.tensor([4.0], dtype=torch.float64),
    "rejected_length_P": torch.tensor([6.0], dtype=torch.float64),
}


def loss(name: str, given: dict[str, Tensor] = GIVEN, **settings: Any) -> float:
    return build_component(PREFERENCES, name, settings)(given).mean().item()


def nls(x: float) -> float:
    """-log sigmoid(x)."""
    return math.log1p(math.exp(-x))


def test_losses_of_one_pair_by_hand():
    close = pytest.approx
    gap = 1.2
    assert loss("dpo", beta=0.5) == close(nls(0.6))
    assert loss("dpo", beta=0.5, label_smoothing=0.1) == close(0.9 * nls(0.6) + 0.1 * nls(-0.6))
    assert loss("robust", beta=0.5, label_smoothing=0.1) == close((0.9 * nls(0.6) - 0.1 * nls(-0.6)) / 0.8)
    assert loss("dpo_norm", beta=2.0) == close(nls(2 * (0.8 / 4 + 0.4 / 6)))
    assert loss("ipo", beta=0.5) == close((gap - 1) ** 2)
    assert loss("ipo", beta=0.5, per_token=True) == close((0.8 / 4 + 0.4 / 6 - 1) ** 2)
    assert loss("hinge", beta=0.5) == close(1 - 0.6)
    assert loss("cpo", beta=0.1) == close(nls(0.5))
    assert loss("simpo", beta=2.0, margin=0.5) == close(nls(2 * (-1.0 + 1.5) - 0.5))
    assert loss("sppo", beta=0.5) == close((0.8 - 1) ** 2 + (-0.4 + 1) ** 2)
    assert loss("sft") == close(1.0)
    assert loss("nca", beta=1.0) == close(nls(0.8) + nls(-0.8) / 2 + nls(0.4) / 2)
    assert loss("bco", beta=1.0) == close(nls(0.8 - 0.2) + nls(0.2 + 0.4))
    assert loss("apo_zero", beta=1.0) == close(1 - 1 / (1 + math.exp(-0.8)) + 1 / (1 + math.exp(0.4)))


def test_a_robust_loss_is_unbiased_for_flipped_labels():
    # E over flips with probability e of the robust loss is DPO's clean loss
    flipped = {**GIVEN, "chosen_gain_P": GIVEN["rejected_gain_P"], "rejected_gain_P": GIVEN["chosen_gain_P"]}
    noisy = 0.8 * loss("robust", label_smoothing=0.2) + 0.2 * loss("robust", flipped, label_smoothing=0.2)
    assert noisy == pytest.approx(loss("dpo"))


def test_alphapo_tends_to_simpo_and_f_dpo_with_small_alpha_to_dpo():
    assert loss("simpo", alpha=1e-6) == pytest.approx(loss("simpo"), abs=1e-5)
    assert loss("f_dpo", divergence="alpha", alpha=1e-6, beta=0.3) == pytest.approx(loss("dpo", beta=0.3), abs=1e-5)


@pytest.mark.parametrize("name", PREFERENCES.names())
def test_every_loss_prefers_a_chosen_response_that_gains(name: str):
    settings = {"label_smoothing": 0.1} if name in ("robust", "exo", "exo_pair") else {}
    chosen = GIVEN["chosen_gain_P"].clone().requires_grad_()
    logp = GIVEN["chosen_logp_P"].clone().requires_grad_()
    made = build_component(PREFERENCES, name, settings)({**GIVEN, "chosen_gain_P": chosen, "chosen_logp_P": logp}).sum()
    gradients = torch.autograd.grad(made, (chosen, logp), allow_unused=True)
    slopes = [gradient.item() for gradient in gradients if gradient is not None]
    expected = 1.0 if name == "apo_down" else -1.0  # apo_down pushes both down at this gap
    assert all(slope * expected > 0 for slope in slopes if slope)


def test_bradley_terry_with_margin_and_centering():
    chosen, rejected = torch.tensor([1.0, 2.0]), torch.tensor([0.5, 2.5])
    plain = bradley_terry(chosen, rejected)
    assert plain.tolist() == pytest.approx([nls(0.5), nls(-0.5)])
    held = bradley_terry(chosen, rejected, torch.tensor([0.5, 0.0]), center=0.1)
    assert held.tolist() == pytest.approx([nls(0.0) + 0.1 * 2.25, nls(-0.5) + 0.1 * 20.25])
