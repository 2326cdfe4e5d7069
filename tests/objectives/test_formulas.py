"""The formula that `explain` prints is the objective that is trained: evaluated from its words, and complete."""

from __future__ import annotations

import inspect
import itertools
import random
import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from formula_text import Step, evaluate
from formula_text import value as value_of
from golden_numbers import entries
from torch import Tensor

from ansatz.certify.parity.cases import Case
from ansatz.objectives.advantages import ADVANTAGES
from ansatz.objectives.build import build_objective
from ansatz.objectives.coefficients import KL_CONTROLS
from ansatz.objectives.components import Component, build_component
from ansatz.objectives.corrections import CORRECTIONS, MASKS
from ansatz.objectives.explain import formula
from ansatz.objectives.kl import KLS
from ansatz.objectives.preference import DIVERGENCES, PREFERENCES
from ansatz.objectives.projects import PROJECTS
from ansatz.objectives.ratios import RATIOS
from ansatz.objectives.surrogates import SURROGATES, VALUES
from ansatz.objectives.token_advantages import REWARD_WHITENS, WHITENS
from ansatz.objectives.weights import WEIGHTS
from ansatz.registry import settings_of

FAMILIES = {
    "trl": "trl.preset_default",
    "verl": "verl.preset_grpo",
    "openrlhf": "openrlhf.preset_group_norm",
    "oat": "oat.drgrpo",
    "nemo-rl": "nemo.loss.preset_default",
    "skyrl": "skyrl.preset_default",
    "slime": "slime.grpo",
    "open-instruct": "open_instruct.centered",
    "prime-rl": "prime.grpo_default",
    "grpo-zero": "grpo_zero.update",
    "nano-aha": "nano.grpo",
    "torchtune": "torchtune.GRPOSimpleLoss",
}
"""The golden numbers of each project's defaults, or of its shipped recipe for GRPO."""


@pytest.mark.parametrize("project", PROJECTS)
def test_the_printed_formula_gives_the_numbers_of_the_projects_own_code(project: str):
    cases = [Case.from_json(entry) for entry in entries() if entry["family"] == FAMILIES[project]]
    assert cases
    for case in cases:
        objective = build_objective(PROJECTS[project].spec(case.options))
        step = step_of(case)
        loss, advantage_T = evaluate(formula(objective), step)
        (gradient_T,) = torch.autograd.grad(loss, step.logps["policy"])
        mask = case.array("mask").bool()
        expected = {name: torch.tensor(case.outputs[name], dtype=torch.float64) for name in ("loss", "advantages")}
        advantage = expected["advantages"]
        if advantage.dim() == 1:
            advantage = advantage[:, None].expand(mask.shape)
        assert loss.item() == pytest.approx(expected["loss"].item(), abs=1e-9)
        assert torch.allclose(advantage_T, advantage[mask], atol=1e-8, rtol=0)
        wanted = torch.tensor(case.outputs["grad_policy_logp"], dtype=torch.float64)
        assert torch.allclose(gradient_T, wanted[mask], atol=1e-9, rtol=0)
        assert not wanted[~mask].any()


@pytest.mark.parametrize("project", PROJECTS)
def test_the_evaluated_cases_include_the_projects_defaults(project: str):
    """Where the shipped recipe adds a KL that the defaults do not have, all other lines."""
    usual = formula(build_objective({"defaults_of": project}, max_response_tokens=64)).splitlines()[1:]
    shown = list[set[str]]()
    for entry in entries():
        if entry["family"] == FAMILIES[project]:
            lines = formula(build_objective(PROJECTS[project].spec(Case.from_json(entry).options))).splitlines()
            shown.append({re.sub(r"step x \d+\)", "step x 64)", line) for line in lines})
    assert any(set(usual) <= lines for lines in shown), set(usual) - shown[0]


def test_a_changed_word_or_number_of_a_formula_changes_the_numbers():
    *_, case = (Case.from_json(entry) for entry in entries() if entry["family"] == FAMILIES["verl"])
    text = formula(build_objective(PROJECTS["verl"].spec(case.options)))
    loss, _ = evaluate(text, step_of(case))
    for old, new in (("1 + 0.2", "1 + 0.25"), ("ddof 1", "ddof 0"), ("of the step\n", "of the rollout\n")):
        assert old in text
        assert abs(evaluate(text.replace(old, new), step_of(case))[0].item() - loss.item()) > 1e-6


def step_of(case: Case) -> Step:
    mask = case.array("mask").bool()
    logps = {
        name: (case.array(key) if key in case.inputs else case.array("policy_logp"))[mask]
        for name, key in (("old", "old_logp"), ("ref", "ref_logp"))
    }
    logps["behavior"] = case.array("behavior_logp")[mask] if "behavior_logp" in case.inputs else logps["old"]
    return Step(
        reward_N=case.array("rewards"),
        group_N=torch.tensor(case.inputs["group"]),
        segment_T=torch.arange(len(mask))[:, None].expand(mask.shape)[mask],
        logps={"policy": case.array("policy_logp")[mask].requires_grad_(), **logps},
    )


REGISTRIES = (
    ADVANTAGES, REWARD_WHITENS, WHITENS, RATIOS, SURROGATES, KLS, KL_CONTROLS, WEIGHTS, CORRECTIONS, MASKS, VALUES,
    PREFERENCES, DIVERGENCES,
)  # fmt: skip
COMPONENTS = [
    pytest.param(registry, name, id=f"{registry.kind}-{name}")
    for registry in REGISTRIES
    for name in {registry.get(name).__name__: name for name in registry.names()}.values()
]
OTHERS: dict[str, list[Any]] = {
    "clamp": [0.3, 2.0],
    "clamp_in": [0.3, 2.0],
    "clamp_out": [0.05, 0.4],
    "at_least": [-0.2, 0.0],
    "lam_length": [0.5, 2.0],
    "component_weights": [(1.0, 0.5), (2.0, 1.0)],
    "gate_pos": [(1.0, 2.0), (2.5, 1.0)],
    "gate_neg": [(1.0, 2.0), (2.5, 1.0)],
    "strength": [0.5, 2.0],
    "max_tokens": [7, 64],
    "target": [0.1, 1.0],
}
"""Values that make a difference on the inputs below, where half and twice the default would not."""


@pytest.mark.parametrize(("registry", "name"), COMPONENTS)
def test_settings_that_change_the_numbers_change_the_formula(registry: Any, name: str):
    """Equal formulas, equal values and gradients: nothing that a component does is left out of its words."""
    components = list(variants(registry, name))
    by_formula = dict[str, list[Component]]()
    for component in components:
        by_formula.setdefault(component.formula(), []).append(component)
    for text, alike in by_formula.items():
        results = [result(component) for component in alike]
        for other, (value, gradient) in zip(alike[1:], results[1:], strict=True):
            said = f"{text!r} is {alike[0].settings} and {other.settings}"
            assert torch.equal(value, results[0][0]), said
            assert torch.equal(gradient, results[0][1]), said


@pytest.mark.parametrize(("registry", "name"), COMPONENTS)
def test_formulas_and_gradients_are_words_and_not_python(registry: Any, name: str):
    for component in variants(registry, name):
        for text in (component.formula(), component.gradient()):
            assert not re.search(r"\b(None|True|False)\b|[{}]", text), text


def variants(registry: Any, name: str) -> Iterator[Component]:
    """The component with its defaults, with each other value of each setting, and with random choices of all."""
    choices: dict[str, list[Any]] = {}
    for key, parameter in settings_of(registry.get(name)).items():
        choices[key] = values_of(key, parameter)
    usual = {key: values[0] for key, values in choices.items()}
    rng = random.Random(name)
    chosen = [usual, *({**usual, key: value} for key, values in choices.items() for value in values[1:])]
    chosen += [{key: rng.choice(values) for key, values in choices.items()} for _ in range(40)]
    yield from (build_component(registry, name, settings) for settings in chosen)


def values_of(key: str, parameter: inspect.Parameter) -> list[Any]:
    """The default first, if there is one."""
    default: Any = parameter.default
    kind: Any = parameter.annotation
    first = [] if default is inspect.Parameter.empty else [default]
    options = get_args(kind)
    if get_origin(kind) is Literal:
        return [*first, *(option for option in options if option not in first)]
    if kind is bool:
        return [default, not default]
    if key in OTHERS:
        return [*first, *OTHERS[key]]
    number: Any = 1.0 if default is inspect.Parameter.empty or default in (None, 0) else default
    scaled = [number + 1, number + 2] if kind is int else [number * 0.5, number * 0.7]
    return [*first, *([None] if type(None) in options and default is not None else []), *scaled]


def result(component: Component) -> tuple[Tensor, Tensor]:
    """What the component gives on made-up inputs, and the gradient of its sum at the policy's log-probs."""
    inputs = made_up_inputs()
    value = component(inputs)
    leaves = [inputs[name] for name in LEAVES]
    if not value.requires_grad:
        return value.detach(), torch.zeros(())
    gradients = torch.autograd.grad((value * torch.arange(1.0, 1 + value.numel())).sum(), leaves, allow_unused=True)
    return value.detach(), torch.cat([torch.zeros(1) if each is None else each.flatten() for each in gradients])


LEAVES = ("leaf_T", "chosen_leaf_P", "rejected_leaf_P", "value_T")


def made_up_inputs() -> dict[str, Any]:
    """Seven rollouts of three prompts (one has a single rollout), log-probs far apart, and six pairs."""
    made = torch.Generator().manual_seed(3)
    lengths = torch.tensor([3, 5, 2, 4, 1, 6, 3])
    segment_T = torch.arange(7).repeat_interleave(lengths)
    tokens = len(segment_T)

    def normal(size: int, width: float = 1.0) -> Tensor:
        return torch.randn(size, generator=made, dtype=torch.float64) * width

    leaf_T = (-1.5 + normal(tokens, 0.4)).clamp(max=-0.1).requires_grad_()
    chosen, rejected = ((-3 + normal(6)).clamp(max=-0.2).requires_grad_() for _ in range(2))
    ends_T = torch.rand(tokens, generator=made) < 0.4
    reward_N = torch.tensor([1.0, 0.0, 0.25, 0.75, -0.5, 1.0, 0.6], dtype=torch.float64)
    old_T = leaf_T.detach() + normal(tokens, 1.5)
    inputs: dict[str, Any] = {
        "leaf_T": leaf_T,
        "chosen_leaf_P": chosen,
        "rejected_leaf_P": rejected,
        "reward_N": reward_N,
        "group_N": torch.tensor([0, 0, 1, 0, 2, 1, 1]),
        "length_N": lengths,
        "segment_T": segment_T,
        "token_reward_T": normal(tokens),
        "value_T": normal(tokens).requires_grad_(),
        "old_value_T": normal(tokens),
        "return_T": normal(tokens),
        "baseline_N": normal(7),
        "component_NK": torch.stack([reward_N, normal(7)], 1),
        "step_reward_T": normal(tokens),
        "step_end_T": ends_T | torch.cat([segment_T[1:] != segment_T[:-1], torch.tensor([True])]),
        "policy_logp_T": leaf_T,
        "old_logp_T": old_T,
        "anchor_logp_T": old_T,
        "behavior_logp_T": old_T + normal(tokens, 0.7),
        "ref_logp_T": leaf_T.detach() + normal(tokens, 1.0),
        "log_ratio_T": leaf_T - old_T,
        "advantage_N": normal(7),
        "mismatch_weight_T": normal(tokens, 0.5).exp(),
        "advantage_T": normal(tokens),
        "entropy_T": normal(tokens).abs(),
        "full_kl_T": normal(tokens).abs(),
        "truncated_N": torch.tensor([0, 1, 0, 0, 1, 0, 0]),
        "num_rollouts": 7,
        "kl_coef": torch.tensor(0.1, dtype=torch.float64),
        "rollout_kl": torch.tensor(0.45, dtype=torch.float64),
        "token_kl": torch.tensor(0.08, dtype=torch.float64),
    }
    for side, leaf in (("chosen", chosen), ("rejected", rejected)):
        inputs |= {f"{side}_{name}_P": leaf * 1.0 for name in ("logp", "likelihood")}
        inputs[f"{side}_gain_P"] = leaf + normal(6).abs()
        inputs[f"{side}_score_P"] = leaf + normal(6)
        inputs[f"{side}_length_P"] = torch.tensor([3.0, 5.0, 2.0, 4.0, 1.0, 6.0], dtype=torch.float64)
    inputs["gain_P"] = inputs["labelled_gain_P"] = inputs["chosen_gain_P"]
    inputs["mismatched_gain_P"] = inputs["rejected_gain_P"] + 3
    inputs["desirable_P"] = torch.tensor([True, False, True, True, False, False])
    return inputs


def test_every_pair_of_objectives_that_compares_as_different_has_different_formulas():
    """What the list of differences names is in a formula."""
    rows = [{"defaults_of": project} for project in PROJECTS]
    built = [build_objective(row, max_response_tokens=64) for row in rows]
    for left, right in itertools.combinations(built, 2):
        for field in ("advantage", "ratio", "surrogate", "weights", "kl"):
            ours, theirs = getattr(left, field), getattr(right, field)
            if field != "kl" or (left.kl_coef and right.kl_coef):
                assert (ours == theirs) == (ours.formula() == theirs.formula()), (ours, theirs)


WHOLE = {
    "preset": "grpo",
    "kl_coef": 0.1,
    "entropy_coef": 0.01,
    "likelihood_coef": 0.1,
    "likelihood_weights": "token_mean",
    "correction": "high_entropy",
}
KEYS = {
    "advantage_clip": [[-1, 1], [-2, 2]],
    "policy_coef": [0.5, 2.0],
    "kl_coef": [0.0, 0.2],
    "kl_in": ["reward", "return", "advantage"],
    "kl_to": ["old", "behavior"],
    "anchor": ["behavior", "policy"],
    "penalty_weights": ["sequence_sum", "token_sum"],
    "entropy_coef": [0.0, 0.2],
    "entropy_tokens": ["kept", "kept_mean"],
    "entropy_target": [0.3, 0.5],
    "likelihood_coef": [0.0, 0.2],
    "likelihood_weights": ["sequence_mean", "token_sum"],
    "max_ratio": [2.0, 5.0],
    "whiten": ["tokens", "rollouts"],
    "correction": ["truncate", ["truncate", "mask_outside"]],
    "masks": ["not_truncated", "rejection"],
}


@pytest.mark.parametrize("key", KEYS)
def test_every_key_of_an_objective_is_in_its_formula(key: str):
    texts = [formula(build_objective(WHOLE)), *(formula(build_objective({**WHOLE, key: value})) for value in KEYS[key])]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("where", ["reward", "return", "advantage"])
def test_the_coefficient_of_a_kl_outside_of_the_loss_is_in_the_formula(where: str):
    texts = [formula(build_objective({"kl_coef": coef, "kl_in": where})) for coef in (0.1, 0.2)]
    assert "0.1 x KL" in texts[0]
    assert texts[0] != texts[1]


@pytest.mark.parametrize("name", ["k1", "k2", "k3", "abs"])
@pytest.mark.parametrize("weight", ["none", "on_policy", "ratio", "behavior"])
@pytest.mark.parametrize("straight_through", [False, True])
def test_the_printed_coefficient_of_a_kl_is_its_gradient(name: str, weight: str, straight_through: bool):
    inputs = made_up_inputs()
    component = build_component(KLS, name, {"weight": weight, "straight_through": straight_through})
    kl_T = component(inputs)
    (gradient_T,) = torch.autograd.grad(kl_T.sum(), inputs["leaf_T"])
    logps = {"policy": "policy_logp_T", "reference": "ref_logp_T", "behavior": "behavior_logp_T"}
    env = {word: inputs[key].detach().exp() for word, key in logps.items()}
    env |= {"KL": kl_T.detach(), "rho": inputs["log_ratio_T"].detach().exp(), "sign": torch.sign, "log": torch.log}
    printed = value_of(component.gradient(), {**env, "constant": torch.Tensor.detach})
    assert torch.allclose(printed * torch.ones_like(gradient_T), gradient_T, atol=1e-9)
