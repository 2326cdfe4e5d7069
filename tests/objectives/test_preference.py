"""Preference losses by hand on one pair, and their laws."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ansatz.objectives.components import build_component
from ansatz.objectives.preference import DIVERGENCES, PREFERENCES, bradley_terry

GIVEN = {
    "chosen_gain_P": torch.tensor([0.8], dtype=torch.float64),
    "rejected_gain_P": torch.tensor([-0.4], dtype=torch.float64),
    "chosen_score_P": torch.tensor([0.8], dtype=torch.float64),
    "rejected_score_P": torch.tensor([-0.4], dtype=torch.float64),
    "chosen_likelihood_P": torch.tensor([-4.0], dtype=torch.float64),
    "chosen_logp_P": torch.tensor([-4.0], dtype=torch.float64),
    "rejected_logp_P": torch.tensor([-9.0], dtype=torch.float64),
    "chosen_length_P": torch.tensor([4.0], dtype=torch.float64),
    "rejected_length_P": torch.tensor([6.0], dtype=torch.float64),
    "labelled_gain_P": torch.tensor([0.8], dtype=torch.float64),
    "mismatched_gain_P": torch.tensor([0.1], dtype=torch.float64),
    "desirable_P": torch.tensor([True]),
}


def loss(name: str, inputs: dict[str, Tensor] = GIVEN, **settings: Any) -> float:
    return build_component(PREFERENCES, name, settings)(inputs).mean().item()


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
    assert loss("likelihood") == loss("sft") == close(1.0)
    assert loss("likelihood", kind="sequence_sum") == close(4.0)
    assert loss("nca", beta=1.0) == close(nls(0.8) + nls(-0.8) / 2 + nls(0.4) / 2)
    assert loss("bco", beta=1.0) == close(nls(0.8 - 0.2) + nls(0.2 + 0.4))
    assert loss("apo_zero", beta=1.0) == close(1 - 1 / (1 + math.exp(-0.8)) + 1 / (1 + math.exp(0.4)))


def test_a_robust_loss_is_unbiased_for_flipped_labels():
    # E over flips with probability e of the robust loss is DPO's clean loss
    flipped = {**GIVEN, "chosen_score_P": GIVEN["rejected_score_P"], "rejected_score_P": GIVEN["chosen_score_P"]}
    noisy = 0.8 * loss("robust", label_smoothing=0.2) + 0.2 * loss("robust", flipped, label_smoothing=0.2)
    assert noisy == pytest.approx(loss("dpo"))


def test_alphapo_tends_to_simpo():
    assert loss("simpo", alpha=1e-6) == pytest.approx(loss("simpo"), abs=1e-5)


def scored(divergence: str, **settings: Any) -> dict[str, Tensor]:
    """GIVEN with the scores of an f-divergence."""
    score = build_component(DIVERGENCES, divergence, settings)
    scores = {f"{side}_score_P": score({"gain_P": GIVEN[f"{side}_gain_P"]}) for side in ("chosen", "rejected")}
    return {**GIVEN, **scores}


def test_f_divergences_transform_the_scores_of_losses_on_differences_and_averages():
    close = pytest.approx
    forward = -math.exp(-0.8) + math.exp(0.4)
    assert loss("dpo", scored("forward_kl"), beta=0.5) == close(nls(0.5 * forward))
    assert loss("hinge", scored("forward_kl"), beta=0.5) == close(1 - 0.5 * forward)
    jensen = -math.log1p(math.exp(-0.8)) + math.log1p(math.exp(0.4))
    assert loss("dpo", scored("js"), beta=0.5) == close(nls(0.5 * jensen))
    # alpha = 0.2: f'(u) = u^-0.8 / -0.8, per token of 4 and 6.
    alpha = -math.exp(-0.64) / 0.8 / 4 + math.exp(0.32) / 0.8 / 6
    assert loss("ipo", scored("alpha", alpha=0.2), beta=0.5, per_token=True) == close((alpha - 1) ** 2)
    assert loss("dpo_norm", scored("alpha", alpha=0.2), beta=2.0) == close(nls(2 * alpha))


def test_the_alpha_family_has_the_reverse_kl_as_its_limit_and_the_forward_kl_at_zero():
    assert loss("dpo", scored("alpha", alpha=1 + 1e-5)) == pytest.approx(loss("dpo"), abs=1e-5)
    assert loss("dpo", scored("alpha", alpha=1.0)) == loss("dpo")
    assert loss("dpo", scored("alpha", alpha=0.0)) == pytest.approx(loss("dpo", scored("forward_kl")))


@pytest.mark.parametrize("name", ["aot", "aot_unpaired", "apo_zero", "cpo", "simpo", "likelihood"])
def test_losses_on_log_ratios_or_log_probs_ignore_the_divergence(name: str):
    assert loss(name, scored("js")) == loss(name)


def test_a_likelihood_term_averages_tokens_or_responses():
    """Two responses with 1 and 3 tokens and log-probs of -1 and -6."""
    inputs = {
        "chosen_likelihood_P": torch.tensor([-1.0, -6.0], dtype=torch.float64),
        "chosen_length_P": torch.tensor([1.0, 3.0], dtype=torch.float64),
    }
    assert loss("likelihood", inputs, kind="token_mean") == pytest.approx(7 / 4)
    assert loss("likelihood", inputs, kind="sequence_sum") == pytest.approx(7 / 2)
    assert loss("likelihood", inputs, kind="sequence_mean") == pytest.approx((1 + 2) / 2)


@pytest.mark.parametrize("name", PREFERENCES.names())
def test_every_loss_prefers_a_chosen_response_that_gains(name: str):
    settings = {"label_smoothing": 0.1} if name in ("robust", "exo", "exo_pair") else {}
    gain = GIVEN["chosen_gain_P"].clone().requires_grad_()
    logp = GIVEN["chosen_logp_P"].clone().requires_grad_()
    inputs = {
        **GIVEN,
        "chosen_gain_P": gain,
        "chosen_score_P": gain,
        "labelled_gain_P": gain,
        "chosen_logp_P": logp,
        "chosen_likelihood_P": logp,
    }
    result = build_component(PREFERENCES, name, settings)(inputs).sum()
    gradients = torch.autograd.grad(result, (gain, logp), allow_unused=True)
    slopes = [gradient.item() for gradient in gradients if gradient is not None]
    expected = 1.0 if name == "apo_down" else -1.0  # apo_down pushes both down at this gap
    assert all(slope * expected > 0 for slope in slopes if slope)


LABELLED = {
    "labelled_gain_P": torch.tensor([0.8, -0.4, 0.3], dtype=torch.float64),
    "mismatched_gain_P": torch.tensor([0.5, -0.1, 0.2], dtype=torch.float64),
    "desirable_P": torch.tensor([True, False, True]),
}
"""Three labelled responses; the mean gain of the mismatched ones is 0.2."""


def kto(inputs: dict[str, Tensor], **settings: Any) -> Tensor:
    return build_component(PREFERENCES, "kto", settings)(inputs)


def test_kto_of_three_labelled_responses_by_hand():
    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    # (gain - 0.2) of the desirable ones is 0.6 and 0.1, and 0.2 - gain of the undesirable one is 0.6; beta is 0.5.
    wanted = [1.5 * (1 - sigmoid(0.3)), 0.4 * (1 - sigmoid(0.3)), 1.5 * (1 - sigmoid(0.05))]
    found = kto(LABELLED, beta=0.5, desirable_weight=1.5, undesirable_weight=0.4)
    assert found.tolist() == pytest.approx(wanted)
    # An estimate of the KL below 0 counts as 0.
    below = kto({**LABELLED, "mismatched_gain_P": torch.tensor([-3.0, 1.0, 0.5])}, beta=0.5)
    wanted = [1 - sigmoid(0.4), 1 - sigmoid(0.2), 1 - sigmoid(0.15)]
    assert below.tolist() == pytest.approx(wanted)


def test_the_gradient_of_kto_is_that_of_finite_differences_with_the_kl_held_fixed():
    leaves = {name: LABELLED[name].clone().requires_grad_() for name in ("labelled_gain_P", "mismatched_gain_P")}
    total = kto({**LABELLED, **leaves}, beta=0.7, undesirable_weight=2.0).sum()
    gradient_P, of_mismatched = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    for name, expected in (("labelled_gain_P", gradient_P), ("mismatched_gain_P", None)):
        for place in range(3):
            step = torch.zeros(3, dtype=torch.float64)
            step[place] = 1e-6
            up, down = (
                kto({**LABELLED, name: LABELLED[name] + each}, beta=0.7, undesirable_weight=2.0).sum().item()
                for each in (step, -step)
            )
            slope = (up - down) / 2e-6
            if expected is None:
                assert abs(slope) > 1e-3  # the loss depends on the KL, although it is not differentiated
            else:
                assert expected[place].item() == pytest.approx(slope, rel=1e-6)
    assert of_mismatched is None or not of_mismatched.any()


def test_bradley_terry_with_margin_and_centering():
    chosen, rejected = torch.tensor([1.0, 2.0]), torch.tensor([0.5, 2.5])
    plain = bradley_terry(chosen, rejected)
    assert plain.tolist() == pytest.approx([nls(0.5), nls(-0.5)])
    held = bradley_terry(chosen, rejected, torch.tensor([0.5, 0.0]), center=0.1)
    assert held.tolist() == pytest.approx([nls(0.0) + 0.1 * 2.25, nls(-0.5) + 0.1 * 20.25])
