"""Other projects' options: every option is read, ignored by the project itself, or refused; and what some become."""

from __future__ import annotations

from typing import Any

import pytest
from golden_numbers import entries

from ansatz.errors import ConfigError
from ansatz.objectives.build import build_objective
from ansatz.objectives.objective import Objective
from ansatz.objectives.projects import PROJECTS, nemo, openrlhf, project_spec, trl
from ansatz.objectives.projects.options import Option, Options, flat, merged, nested, read_options


def built(project: str, changes: dict[str, Any] | None = None) -> Objective:
    return build_objective(project_spec(project, changes), max_response_tokens=64)


def test_an_option_that_was_not_read_is_found_by_its_dotted_name():
    options = Options({"a": 1, "b": {"c": 2, "d": 3}, "e": 4})
    assert options["a"] + options["b"]["c"] == 3
    assert options.unused({"a": 0, "b": {"c": 0, "d": 0}, "e": 4}) == {"b.d": 3}
    options["b"].ignore("d")
    assert options.unused({}) == {"e": 4}
    assert options.overlaid({"e": 5})["e"] == 5
    assert options.unused({}) == {}


def test_options_nest_by_their_dotted_names_and_merge_key_by_key():
    listed = (Option("a", 1, ""), Option("b.c", 2, ""), Option("b.d", 3, ""))
    assert nested(listed) == {"a": 1, "b": {"c": 2, "d": 3}}
    assert flat(merged(nested(listed), {"b": {"d": 5}})) == {"a": 1, "b.c": 2, "b.d": 5}


@pytest.mark.parametrize(
    ("project", "changes", "words"),
    [
        ("trl", {"nonsense": 1}, "nonsense = 1 is refused, because the option is unknown"),
        ("verl", {"tau_pos": 2.0}, "tau_pos = 2.0 is refused, because with the other options"),
        (
            "verl",
            {"rollout_correction": {"bypass_mode": True}},
            "it has no counterpart here: use loss_mode: bypass_mode",
        ),
        ("skyrl", {"advantage_batch_normalize": True}, "its mean runs over padding"),
        ("skyrl", {"dppo": {"delta_low": 0.1}}, "dppo.delta_low = 0.1 is refused"),
        ("slime", {"tis_clip": 3.0, "use_tis": True, "custom_tis_function_path": "x.y"}, "the function is not known"),
        ("oat", {"beta": 0.1, "kl_penalty_coef": 0.1}, "an objective has one KL"),
        ("prime-rl", {"length_penalty": {"num_turns_weight": 0.1}}, "length_penalty.num_turns_weight = 0.1 is refused"),
        ("trl", {"beta": 0.1, "entropy_coef": 0.1, "loss_type": "grpo"}, "entropy_coef together with beta is refused"),
    ],
)
def test_an_option_that_would_not_be_used_is_refused_in_words(project: str, changes: dict[str, Any], words: str):
    with pytest.raises(ConfigError) as error:
        project_spec(project, changes)
    assert words in str(error.value)


@pytest.mark.parametrize("project", PROJECTS)
def test_a_changed_option_is_always_read_ignored_by_the_project_or_refused(project: str):
    """Each option set to another value, the rest at their defaults."""
    base = built(project)
    for option in PROJECTS[project].options:
        other = _another(option.default)
        *parents, key = option.name.split(".")
        changes: dict[str, Any] = {key: other}
        for parent in reversed(parents):
            changes = {parent: changes}
        if other is None:
            continue
        try:
            changed = built(project, changes)
        except (ConfigError, KeyError, TypeError, AttributeError):
            continue  # refused, or a value that the project does not have
        assert changed != base or option.name in _IGNORED[project], f"{project}: {option.name} has no effect"


def _another(default: Any) -> Any:
    if isinstance(default, bool):
        return not default
    if isinstance(default, (int, float)):
        return default * 0.5 if default else 0.125
    return None


_IGNORED: dict[str, set[str]] = {
    # Options that each project itself ignores with its other options at their defaults.
    "trl": {
        *("vllm_importance_sampling_correction", "use_bias_correction_kl", "use_vllm", "num_iterations"),
        *("sapo_temperature_pos", "sapo_temperature_neg"),
        *("vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg"),
    },
    "verl": {
        "adv.gamma",
        "adv.lam",
        "gamma",
        "lam",
        "clip_ratio",
        "kl_loss_coef",
        "global_batch_info",
        "rollout_correction.rollout_is_threshold",
        "rollout_correction.rollout_is_batch_normalize",
    },
    "openrlhf": {"gamma", "lambd", "no_std_norm", "micro_batches", "overlong_penalty_factor"},
    "oat": {"whiten_adv", "reward_scale", "vf_coef", "cliprange_value", "gamma", "lam", "micro_batches"},
    "nemo-rl": set(),
    "skyrl": {"adv.gamma", "adv.lambd", "adv.dense_rewards", "clip_ratio_c"},
    "slime": {
        "kl_coef",
        "kl_loss_coef",
        "use_kl_loss",
        "use_unbiased_kl",
        "gamma",
        "lambd",
        "tis_clip",
        "tis_clip_low",
        "opsm_delta",
        "value_clip",
    },
    "open-instruct": set(),
    "prime-rl": {"loss.ipo_threshold"},
    "grpo-zero": set(),
    "nano-aha": set(),
    "torchtune": set(),
}


def test_every_option_of_the_golden_numbers_is_listed():
    names = {"trl": "trl", "nemo": "nemo-rl", "open_instruct": "open-instruct", "prime": "prime-rl", "nano": "nano-aha"}
    harness = {"steps_per_generation", "micro_batches", "dp_size", "rewards_k_seed", "dense_rewards", "use_margin"}
    for case in entries():
        project = PROJECTS.get(names.get(case["peer"], case["peer"]).replace("grpo_zero", "grpo-zero"))
        if project is None or ".adv." in case["family"] or ".kl" in case["family"] or "value" in case["family"]:
            continue
        listed = {option.name for options in (project.options, *(o for _, o in project.other)) for option in options}
        if case["family"].startswith(("verl.policy", "trl.grpo", "slime", "prime", "skyrl.cispo", "oat", "nemo.loss")):
            named = set(flat(merged(case["knob_defaults"], case["knobs"]))) - harness - {"length_penalty"}
            rest = {name for name in named - listed if not name.startswith("policy_loss.rollout_correction")}
            assert rest == set(), case["id"]


def test_verls_losses_with_their_own_mean_leave_the_kl_to_loss_agg_mode():
    changes = {"policy_loss": {"loss_mode": "geo_mean"}, "use_kl_loss": True, "loss_agg_mode": "token-mean"}
    objective = built("verl", changes)
    assert objective.weights.settings["rollouts"] == "all"
    assert objective.penalty_weights is not None
    assert objective.penalty_weights.name == "token_mean"


def test_openrlhf_centres_without_dividing_and_clips_for_every_estimator_that_shares_the_option():
    defaults = nested(read_options("openrlhf"))
    for estimator in ("gae", "reinforce", "reinforce_baseline"):
        spec = openrlhf.advantage(Options({**defaults, "estimator": estimator, "no_std_norm": True}))
        assert spec["whiten"]["scale"] is False
    for estimator in ("group_norm", "dr_grpo", "rloo", "reinforce", "reinforce_baseline", "gae"):
        spec = openrlhf.advantage(Options({**defaults, "estimator": estimator, "reward_clip_range": [-0.5, 2]}))
        assert spec["advantage_clip"] == [-0.5, 2.0]


def test_gmpos_kl_is_plain_k3_averaged_per_rollout():
    spec = trl.spec(Options({**nested(read_options("trl")), "loss_type": "gmpo", "beta": 0.1}))
    assert (spec["kl"], spec["weights"]) == ({"name": "k3", "weight": "none"}, "sequence_mean")
    assert spec["correction"] == []


def test_a_forced_on_policy_ratio_of_nemo_has_no_clip():
    spec = nemo.spec(
        Options(merged(nested(read_options("nemo-rl")), {"force_on_policy_ratio": True, "ratio_clip_min": 0.1}))
    )
    assert spec["surrogate"] == {"name": "plain"}
    assert spec["anchor"] == "policy"
