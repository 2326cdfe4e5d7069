"""Recipes to objectives: presets, overrides, users' files, projects' defaults, and errors in words."""

from __future__ import annotations

from pathlib import Path

import pytest
from given import build_objective

from ansatz.certify.parity.report import LEFT_OUT
from ansatz.errors import ConfigError
from ansatz.objectives.build import check_recipe
from ansatz.objectives.explain import explain, formula
from ansatz.objectives.presets import COMMON, DESCRIPTION, KEYS, PRESETS
from ansatz.objectives.projects import ALIASES, PROJECTS
from ansatz.objectives.projects.comparison import list_other_defaults


def test_the_default_is_grpo_with_a_symmetric_clip_and_no_reference():
    objective = build_objective({})
    assert (objective.preset, objective.advantage.name, objective.weights.name) == (
        "grpo",
        "group_zscore",
        "sequence_mean",
    )
    assert objective.surrogate.settings == {"low": 0.2, "high": 0.2}
    assert objective.kl_coef == 0


def test_settings_without_a_name_keep_the_presets_component():
    objective = build_objective({"preset": "dapo", "surrogate": {"high": 0.4}, "advantage": {"ddof": 0}})
    assert objective.surrogate.name == "clip"
    assert objective.surrogate.settings == {"low": 0.2, "high": 0.4}
    assert objective.advantage.settings["ddof"] == 0


def test_a_named_component_takes_its_own_defaults():
    objective = build_objective({"preset": "dapo", "surrogate": "clip"})
    assert objective.surrogate.settings["high"] == 0.2


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_builds_explains_itself_and_names_its_source(preset: str):
    objective = build_objective({"preset": preset}, max_response_tokens=64)
    assert formula(objective).startswith(f"{preset}: loss = ")
    assert "{" not in formula(objective)
    assert PRESETS[preset]["source"]
    for alias in PRESETS[preset].get("aliases", ()):
        assert build_objective({"preset": alias}, max_response_tokens=64).advantage == objective.advantage


def test_aliases_are_nobodys_name_twice():
    aliases = [alias for row in PRESETS.values() for alias in row.get("aliases", ())]
    assert len({*aliases, *PRESETS}) == len(aliases) + len(PRESETS)


def test_the_keys_of_rows_are_documented_keys():
    assert {"preset", "defaults_of", *COMMON} == set(KEYS)
    for row in PRESETS.values():
        assert set(row) - set(DESCRIPTION) <= set(COMMON)


@pytest.mark.parametrize("project", [*PROJECTS, *ALIASES])
def test_every_project_gives_an_objective(project: str):
    objective = build_objective({"defaults_of": project}, max_response_tokens=64)
    assert objective.preset == f"defaults of {project}"


def test_a_project_keeps_to_its_conventions():
    assert build_objective({"defaults_of": "verl"}).surrogate.settings["dual"] == 3.0
    assert build_objective({"defaults_of": "trl-1.16"}).correction[0].settings["level"] == "sequence"
    assert build_objective({"defaults_of": "openrlhf"}).kl_in == "return"
    assert build_objective({"defaults_of": "nemo-rl"}).advantage.name == "leave_one_out_std"
    assert build_objective({"defaults_of": "grpo-zero"}).advantage.settings["ddof"] == 0
    oat = build_objective({"defaults_of": "oat"}, max_response_tokens=3000)
    assert oat.weights.settings["max_tokens"] == 3000


def test_a_preset_with_the_defaults_of_a_project_takes_its_settings_of_the_same_components():
    objective = build_objective({"defaults_of": "verl", "preset": "dr_grpo"}, max_response_tokens=64)
    assert objective.advantage.name == "group_mean"
    assert objective.weights.name == "fixed_length"
    assert objective.ratio.settings["clamp"] == 20.0
    zscored = build_objective({"defaults_of": "slime", "preset": "dapo", "surrogate": {"low": 0.1}})
    assert zscored.advantage.settings["eps"] == 1e-6
    assert zscored.surrogate.settings == {"low": 0.1, "high": 0.2}


def test_a_users_own_row_in_yaml_and_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("advantage: leave_one_out\nsurrogate: {name: clip, high: 0.5}\n")
    Path("mine.py").write_text(
        "import torch\n\n\ndef halved(reward_N, *, by=2.0):\n    return reward_N / by\n\n\n"
        "row = {'advantage': {'name': 'mine.py:halved', 'by': 4.0}}\n"
    )
    assert build_objective({"preset": "mine.yaml"}).surrogate.settings["high"] == 0.5
    objective = build_objective({"preset": "mine.py:row"})
    assert objective.advantage.settings == {"by": 4.0}
    assert "halved(by 4.0)" in formula(objective)


def test_a_users_own_row_with_a_former_key_is_refused_with_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("like: verl\n")
    with pytest.raises(ConfigError, match="the key 'like' is now called 'defaults_of'"):
        build_objective({"preset": "mine.yaml"})


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"advantag": "x"}, "algorithm has no key 'advantag'. Did you mean 'advantage'?"),
        ({"preset": "grop"}, "algorithm.preset = 'grop' is unknown. Did you mean 'grpo'?"),
        ({"defaults_of": "ver"}, "algorithm.defaults_of = 'ver' is unknown. Did you mean 'verl'?"),
        ({"advantage": "group_zscor"}, "advantage 'group_zscor' is unknown. Did you mean 'group_zscore'?"),
        ({"surrogate": {"hihg": 1}}, "surrogate 'clip' has no setting 'hihg'. Did you mean 'high'?"),
        ({"kl_in": "los"}, "algorithm.kl_in = 'los': expected one of loss, reward, return, advantage."),
        ({"kl_coef": "much"}, "algorithm.kl_coef = 'much': expected a number."),
        ({"kl_coef": None}, "algorithm.kl_coef = null: expected a value. Write 0.0 for the default of the preset or"),
        ({"preset": "dapo", "surrogate": None}, 'Write {"name": "clip", "low": 0.2, "high": 0.28} for the default'),
        ({"surrogate": 3}, "algorithm.surrogate = 3: expected a name, or a mapping with a name and settings."),
        ({"weights": "fixed_length"}, "algorithm.weights = 'fixed_length' needs a value for 'max_tokens'."),
        ({"preset": "dr_grpo"}, "algorithm.weights.max_tokens = 'max_response_tokens' needs a run's number here."),
        (
            {"value": "squared_error"},
            "algorithm.value is set, but algorithm.advantage = 'group_zscore' uses no critic.",
        ),
        (
            {"correction": {"name": "truncate", "level": "tokn"}},
            "level = 'tokn': input should be 'token', 'sequence' or",
        ),
        ({"surrogate": {"high": "wide"}}, "high = 'wide': input should be a valid number"),
        ({"surrogate": {"name": "dual_clip", "dual": 1.0}}, "dual = 1.0: input should be greater than 1."),
        ({"whiten": "rollouts", "advantage": "gae"}, 'gives one number per token. Use "tokens".'),
        ({"kl_coef": 1, "kl_in": "reward", "kl_to": "old"}, "a KL in the reward is to the reference"),
        ({"like": "verl"}, "algorithm: the key 'like' is now called 'defaults_of'."),
        ({"advantage": "accepted"}, "algorithm.advantage = 'accepted' is now called 'filtered_bc'."),
        ({"preset": "none.yaml"}, "algorithm.preset: the file 'none.yaml' does not exist"),
    ],
)
def test_mistakes_are_said_in_one_sentence(spec: dict[str, object], words: str):
    with pytest.raises(ConfigError) as caught:
        build_objective(spec)
    assert words in str(caught.value)


DOCS = Path(__file__).parents[2] / "docs"


def test_every_family_that_is_left_out_has_its_reason_in_the_docs():
    text = " ".join((DOCS / "parity.md").read_text().split())
    assert [family for family, reason in LEFT_OUT.items() if f"- `{family}`: {reason}" not in text] == []


def test_a_bound_may_be_null_where_the_signature_says_so():
    assert build_objective({"correction": {"name": "truncate", "high": None}}).correction[0].settings["high"] is None
    with pytest.raises(ConfigError, match="should be a valid number"):
        build_objective({"surrogate": {"high": None}})


def test_null_takes_away_what_the_row_below_has(tmp_path: Path):
    row = tmp_path / "mine.yaml"
    row.write_text("max_ratio: 2.0\nentropy_target: 0.4\nmasks: not_truncated\ncorrection: truncate\n")
    below = build_objective({"preset": str(row)})
    assert (below.max_ratio, below.entropy_target, len(below.masks), len(below.correction)) == (2.0, 0.4, 1, 1)
    nothing = dict.fromkeys(("max_ratio", "entropy_target", "masks", "correction"))
    objective = build_objective({"preset": str(row), **nothing})
    assert [getattr(objective, key) for key in nothing] == [None, None, (), ()]
    assert build_objective({"defaults_of": "trl", "correction": None}).correction == ()


def test_explain_prints_formula_coefficient_and_what_projects_do_otherwise():
    grpo = build_objective({"preset": "grpo", "kl_coef": 0.04})
    text = "\n".join([explain(grpo), *list_other_defaults(grpo, max_response_tokens=1024)])
    assert "-min(rho A, clip(rho, 1 - 0.2, 1 + 0.2) A)" in text
    assert "coefficient  weight x (rho A, 0 where the clip holds) - 0.04 x weight x (1 - reference / policy)" in text
    assert "verl: advantage eps 1e-06" in text
    assert "torchtune:" in text
    same = build_objective({"defaults_of": "slime"})
    assert "  slime: the same" in list_other_defaults(same, max_response_tokens=1024)
    assert "several per prompt" in explain(same)
    process = explain(build_objective({"preset": "grpo_process", "kl_in": "return", "kl_coef": 0.1}))
    assert "one reward per reasoning step" in process


def test_the_coefficient_has_the_strengths_of_all_terms_and_no_term_of_strength_0():
    distilled = explain(build_objective({"preset": "gkd", "correction": "truncate"}))
    assert "  coefficient  - 1.0 x weight x (" in distilled
    assert distilled.count("old / behavior") == 1  # in the formula
    likelihood = {"likelihood_coef": 0.1, "likelihood_weights": "token_mean"}
    coefficient = explain(build_objective({"policy_coef": 0.5, **likelihood})).splitlines()[-1]
    assert coefficient == "  coefficient  0.5 x weight x (rho A, 0 where the clip holds) + 0.1 x likelihood weight"
    assert explain(build_objective({"policy_coef": 0.0, **likelihood})).endswith("coefficient  0.1 x likelihood weight")


def test_a_kl_in_rewards_that_the_advantage_does_not_read_is_refused():
    for advantage in ("grpo_process", "gdpo"):
        with pytest.raises(
            ConfigError, match=r"kl_in = 'reward', but algorithm\.advantage = '(process|gdpo)' does not"
        ):
            build_objective({"preset": advantage, "kl_in": "reward", "kl_coef": 0.1})
    assert build_objective({"preset": "grpo", "kl_in": "reward", "kl_coef": 0.1}).kl_in == "reward"


def test_an_entropy_bonus_that_would_be_cut_in_its_second_step_is_refused():
    for coef in (0.05, -0.01):
        with pytest.raises(ConfigError, match=r"entropy_coef = .* with entropy_target = 0\.4: .* between 0 and 0\.02"):
            build_objective({"preset": "grpo", "entropy_coef": coef, "entropy_target": 0.4})
    assert build_objective({"preset": "grpo", "entropy_coef": 0.02, "entropy_target": 0.4}).entropy_coef == 0.02


def test_weights_of_rewards_are_as_many_as_the_rewards():
    objective = build_objective({"preset": "gdpo", "advantage": {"component_weights": [1, 1]}})
    with pytest.raises(ConfigError, match=r"component_weights = .*, expected one for each of the 3 rewards"):
        check_recipe(objective, samples_per_prompt=4, num_rewards=3)
    check_recipe(objective, samples_per_prompt=4, num_rewards=2)


def test_settings_of_ppo_that_could_have_no_effect_are_refused():
    with pytest.raises(ConfigError, match=r"reward_whiten is set, but algorithm\.advantage = 'group_zscore' does not"):
        build_objective({"preset": "grpo", "reward_whiten": "tokens"})
    with pytest.raises(ConfigError, match=r"kl_control adapts the KL to the reference, but kl_coef = 0\.0"):
        build_objective({"preset": "ppo", "kl_control": {"name": "adaptive", "target": 1.0}})
    with pytest.raises(ConfigError, match="kl_control = 'adaptive' needs a value for 'target'"):
        build_objective({"preset": "ppo", "kl_coef": 0.1, "kl_control": "adaptive"})
