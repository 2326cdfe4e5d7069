"""Which inputs a component of each kind gets, and a user's own components in files."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from given import build_objective
from toy_runs import toy_config

from ansatz.errors import ConfigError
from ansatz.loop.pipeline import run_pipeline
from ansatz.objectives.build import COMPONENTS, check_group_size
from ansatz.objectives.components import INPUTS, INPUTS_OF
from ansatz.registry import settings_of
from ansatz.track.jsonl import read_jsonl

RESULTS = {
    "advantage": "reward_N[segment_T] + value_T + token_reward_T",
    "reward_whiten": "token_reward_T",
    "ratio": "policy_logp_T - anchor_logp_T",
    "surrogate": "-log_ratio_T * advantage_T",
    "kl": "full_kl_T",
    "correction": "entropy_T.detach() * 0 + 1",
    "masks": "segment_T >= 0",
    "weights": "1 / (segment_T.double() * 0 + len(segment_T))",
    "value": "(value_T - return_T) ** 2",
    "kl_control": "kl_coef * 1",
}


def test_every_kind_has_its_inputs_and_every_component_of_ours_takes_only_these():
    kinds = {registry.kind: registry for registry in COMPONENTS.values()}
    assert set(INPUTS_OF) == set(kinds)
    assert set().union(*INPUTS_OF.values()) <= set(INPUTS)
    for kind, registry in kinds.items():
        for name in registry.names():
            function = registry.get(name)
            inputs = set(inspect.signature(function).parameters) - set(settings_of(function))
            assert inputs <= set(INPUTS_OF[kind]), (kind, name)


def test_a_training_run_supplies_every_input_of_every_kind(tmp_path: Path):
    """One component of each kind that takes all of its inputs; a missing one would be refused by name."""
    parts = tmp_path / "parts.py"
    functions = [f"def {kind}({', '.join(INPUTS_OF[kind])}):\n    return {text}\n" for kind, text in RESULTS.items()]
    parts.write_text("\n\n".join(functions))
    algorithm = {kind: f"{parts}:{kind}" for kind in RESULTS}
    changes = {
        "algorithm": {**algorithm, "kl_coef": 0.1},
        "rewards": {"math_answer": {}, "exact_steps": {}},
        "sft": {"steps": 1},
        "train": {"steps": 2},
        "save": {"tensorboard": False},
    }
    run = run_pipeline(toy_config(tmp_path, changes))
    assert [row["step"] for row in read_jsonl(run / "rl" / "metrics.jsonl")] == [1, 2]


@pytest.mark.parametrize(
    ("kind", "signature", "words"),
    [
        (
            "advantage",
            "rewards, group_N",
            "the input 'rewards', which a function of this kind does not get. Did you",
        ),
        ("surrogate", "ratio_T, advantage_T", "Did you mean 'log_ratio_T'?"),
        (
            "weights",
            "segment_T, length_N",
            "Known: group_N, num_rollouts, segment_T. If it is a setting, put it",
        ),
        ("correction", "entropy, share=0.2", "Did you mean 'entropy_T'?"),
        ("masks", "segment_T, reward_N", "algorithm.masks = "),
        ("kl", "policy_logp_T, *more", "has the input 'more'"),
    ],
)
def test_a_wrong_input_of_a_users_component_is_answered_with_the_inputs_of_its_kind(tmp_path, kind, signature, words):
    parts = tmp_path / "parts.py"
    parts.write_text(f"def mine({signature}):\n    return 0\n")
    with pytest.raises(ConfigError) as error:
        build_objective({kind: f"{parts}:mine"})
    assert words in str(error.value)
    assert "GIVES_STEPS" not in str(error.value)


def test_a_users_advantage_that_expects_other_rewards_than_are_tried_is_not_refused(tmp_path: Path):
    parts = tmp_path / "parts.py"
    parts.write_text("def above(reward_N, *, least=2.0):\n    return (reward_N > least).float()\n")
    check_group_size(build_objective({"advantage": f"{parts}:above"}), 8)


def test_a_preset_file_starts_from_a_preset_or_from_another_file(tmp_path: Path):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("preset: dapo\nsurrogate: {high: 0.3}\nkl_coef: 0.1\n")
    second.write_text("preset: first.yaml\nadvantage: group_mean\n")
    objective = build_objective({"preset": str(second), "kl_coef": 0.2})
    assert objective.surrogate.settings == {"low": 0.2, "high": 0.3}
    assert (objective.weights.name, objective.advantage.name, objective.kl_coef) == ("token_mean", "group_mean", 0.2)
    (tmp_path / "row.py").write_text("row = {'preset': 'gspo', 'surrogate': {'low': 0.01}}\n")
    gspo = build_objective({"preset": f"{tmp_path}/row.py:row"})
    assert (gspo.ratio.name, gspo.surrogate.settings) == ("sequence", {"low": 0.01, "high": 4e-4})


def test_presets_that_start_from_each_other_or_from_nothing_are_refused(tmp_path: Path):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("preset: second.yaml\n")
    second.write_text("preset: first.yaml\n")
    with pytest.raises(ConfigError, match=r"first\.yaml starts from .*second\.yaml starts from .*, which has no end"):
        build_objective({"preset": str(first)})
    first.write_text("preset: dapoo\n")
    with pytest.raises(ConfigError, match=r"'dapoo' is unknown. Did you mean 'dapo'"):
        build_objective({"preset": str(first)})
    first.write_text("preset: 3\n")
    with pytest.raises(ConfigError, match="preset = 3, expected a name"):
        build_objective({"preset": str(first)})
