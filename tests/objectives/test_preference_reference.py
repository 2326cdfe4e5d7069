"""Every preference loss against `padded_preference`, an independent implementation on padded log-probs.

Random pairs of unequal lengths with holes in their masks, random settings, and f-divergences where a loss follows them.
"""

from __future__ import annotations

import random
from typing import Any

import padded_preference as reference
import pytest
import torch

from ansatz.certify.parity.cases import Case, error
from ansatz.certify.parity.losses import preference_run
from ansatz.objectives.components import build_component
from ansatz.objectives.preference import PREFERENCES, bradley_terry
from ansatz.objectives.projects.options import Options

SETTINGS: dict[str, dict[str, list[Any]]] = {
    "dpo": {"beta": [0.1, 0.5, 2.0], "label_smoothing": [0.0, 0.2]},
    "dpo_norm": {"beta": [0.5, 2.0], "label_smoothing": [0.0, 0.2]},
    "robust": {"beta": [0.1, 1.0], "label_smoothing": [0.05, 0.3]},
    "ipo": {"beta": [0.1, 0.7], "per_token": [True, False]},
    "hinge": {"beta": [0.3, 1.5]},
    "cpo": {"beta": [0.1, 0.4], "label_smoothing": [0.0, 0.2]},
    "simpo": {"beta": [1.0, 2.5], "margin": [0.0, 1.2], "label_smoothing": [0.0, 0.1], "alpha": [0.0, 0.25, -0.4]},
    "orpo": {},
    "exo": {"beta": [0.1, 1.0], "label_smoothing": [1e-3, 0.2]},
    "nca": {"beta": [0.1, 1.0]},
    "bco": {"beta": [0.1, 1.0], "centered": [True, False]},
    "sppo": {"beta": [0.1, 1.0]},
    "apo_zero": {"beta": [0.1, 1.0]},
    "apo_down": {"beta": [0.1, 1.0]},
    "discopop": {"beta": [0.1, 1.0], "tau": [0.05, 0.5]},
    "aot": {"beta": [0.1, 1.0], "label_smoothing": [0.0, 0.2]},
    "aot_unpaired": {"beta": [0.1, 1.0], "label_smoothing": [0.0, 0.2]},
    "likelihood": {"kind": ["token_mean", "sequence_sum", "sequence_mean"]},
}
OF_DIFFERENCES = ["dpo", "robust", "hinge", "exo", "discopop", "apo_down"]
"""Losses of a difference of scores, in which the constant of f' cancels."""


def random_side(rng: random.Random, pairs: int, columns: int) -> dict[str, list[list[float]]]:
    mask = [[float(rng.random() < 0.7) for _ in range(columns)] for _ in range(pairs)]
    for row in mask:
        row[rng.randrange(columns)] = 1.0
    policy = [[min(rng.gauss(-1.2, 0.5), -0.01) for _ in range(columns)] for _ in range(pairs)]
    ref = [[x + rng.gauss(0, 0.3) for x in row] for row in policy]
    return {"policy_logp": policy, "ref_logp": ref, "mask": mask}


def random_inputs(rng: random.Random) -> dict[str, Any]:
    pairs = rng.randint(1, 5)
    sides = {"chosen": random_side(rng, pairs, rng.randint(1, 7)), "rejected": {}}
    sides["rejected"] = random_side(rng, pairs, len(sides["chosen"]["mask"][0]))
    return {f"{side}_{name}": rows for side, arrays in sides.items() for name, rows in arrays.items()}


def side_of(inputs: dict[str, Any], name: str) -> reference.Side:
    arrays = {
        key: torch.tensor(inputs[f"{name}_{key}"], dtype=torch.float64) for key in ("policy_logp", "ref_logp", "mask")
    }
    return reference.Side(policy=arrays["policy_logp"].requires_grad_(), ref=arrays["ref_logp"], mask=arrays["mask"])


def assert_equal(name: str, seed: int) -> None:
    rng = random.Random(f"{name}/{seed}")
    inputs = random_inputs(rng)
    settings = {key: rng.choice(values) for key, values in SETTINGS[name].items()}
    divergence = {"name": rng.choice(["reverse_kl", "forward_kl", "js", "alpha"]) if name in OF_DIFFERENCES else None}
    if divergence["name"] == "alpha":
        divergence["alpha"] = rng.choice([0.2, 0.7, 1.6])
    tail = rng.choice([None, None, 0.5, 0.0]) if name != "likelihood" else None
    # Some are the first of two terms, as in RPO. The likelihood alone has no gradient for the rejected responses.
    second = ("dpo", {"beta": 0.2}) if name == "likelihood" else ("likelihood", {"kind": "sequence_mean"})
    losses = [(1.0, name, settings)]
    if name == "likelihood" or rng.random() < 0.3:
        losses.append((0.3, *second))

    case = Case("own", "own", "own", Options({}), {}, inputs, {})
    ours = preference_run(case, losses, divergence=divergence if divergence["name"] else None, tail_weight=tail)
    chosen, rejected = side_of(inputs, "chosen"), side_of(inputs, "rejected")
    want = torch.zeros((), dtype=torch.float64)
    for weight, term, given in losses:
        kind = {"divergence": divergence["name"] or "reverse_kl", "alpha": divergence.get("alpha", 0.5)}
        want = want + weight * reference.preference(term, {**given, "tail": tail}, chosen, rejected, **kind)
    gradients = torch.autograd.grad(want, (chosen.policy, rejected.policy))
    about = (settings, divergence, tail)
    assert error(ours["loss"], want.item()) < 1e-10, about
    for side, gradient in zip(("chosen", "rejected"), gradients, strict=True):
        assert error(ours[f"grad_{side}_policy_logp"], gradient.tolist()) < 1e-9, about


def test_every_preference_loss_has_a_reference():
    assert {PREFERENCES.get(name) for name in (*SETTINGS, "kto")} == {
        PREFERENCES.get(name) for name in PREFERENCES.names()
    }


@pytest.mark.parametrize("name", SETTINGS)
def test_a_preference_loss_equals_an_independent_implementation(name: str):
    for seed in range(10):
        assert_equal(name, seed)


def test_kto_equals_an_independent_implementation():
    for seed in range(20):
        rng = random.Random(f"kto/{seed}")
        inputs = random_inputs(rng)
        response, mismatched = side_of(inputs, "chosen"), side_of(inputs, "rejected")
        labels = [rng.random() < 0.5 for _ in response.mask]
        settings = {"beta": rng.choice([0.1, 1.0]), "desirable_weight": rng.choice([1.0, 1.33])}
        settings["undesirable_weight"] = rng.choice([0.5, 1.0])
        gains = [((side.policy - side.ref) * side.mask).sum(1) for side in (response, mismatched)]
        named = {"labelled_gain_P": gains[0], "mismatched_gain_P": gains[1], "desirable_P": torch.tensor(labels)}
        ours = build_component(PREFERENCES, "kto", settings)(named).mean()
        want = reference.kto(settings, response, mismatched, labels)
        assert error(ours, want.item()) < 1e-12, settings
        got, expected = (torch.autograd.grad(each, response.policy)[0] for each in (ours, want))
        assert error(got, expected.tolist()) < 1e-12, settings


def test_the_loss_of_reward_models_equals_an_independent_implementation():
    for seed in range(20):
        rng = random.Random(seed)
        chosen, rejected, margin = (torch.tensor([rng.gauss(0, 2) for _ in range(4)]).double() for _ in range(3))
        center = rng.choice([0.0, 0.01])
        for given in (None, margin):
            got = bradley_terry(chosen, rejected, given, center=center)
            assert error(got, reference.bradley_terry(chosen, rejected, given, center).tolist()) < 1e-12
