import importlib
import pkgutil

import pytest
from toy_runs import REPOSITORY, toy_config, toy_recipe

import ansatz.cli
from ansatz import __version__
from ansatz.cli.explain import step_arithmetic
from ansatz.cli.recipe import split_overrides
from ansatz.config.load import dump
from ansatz.errors import ConfigError

VERBS = sorted(
    info.name
    for info in pkgutil.iter_modules(ansatz.cli.__path__)
    if info.name != "main" and ({info.name, "app"} & vars(importlib.import_module(f"ansatz.cli.{info.name}")).keys())
)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(ansatz, verb):
    code, out, err = ansatz(verb, "--help")
    assert (code, err) == (0, "")
    assert f"ansatz {verb}" in out


def test_the_command_alone_lists_its_verbs(ansatz):
    _, out, _ = ansatz("--help")
    assert {"train", "explain", "parity"} <= set(VERBS)
    assert all(verb in out for verb in VERBS)


def test_an_unknown_verb_is_refused(ansatz):
    code, _, err = ansatz("trian")
    assert code == 2
    assert "trian" in err


def test_explain_prints_the_resolved_config_the_arithmetic_and_the_formula(ansatz, tmp_path):
    code, out, err = ansatz("explain", toy_recipe(tmp_path), "--train.lr", "1e-6", "--train.updates_per_step=2")
    assert (code, err) == (0, "")
    config = toy_config(tmp_path, {"train": {"lr": 1e-6, "updates_per_step": 2}})
    assert dump(config) in out
    assert step_arithmetic(config) in out
    assert "grpo: loss = sum over response tokens of weight x surrogate" in out


def test_the_arithmetic_of_a_step(tmp_path):
    train = {"steps": 10, "updates_per_step": 2, "epochs_per_step": 3, "tokens_per_microbatch": 2048}
    text = step_arithmetic(toy_config(tmp_path, {"train": train, "rollout": {"max_prompt_tokens": 500}}))
    assert "4 prompts x 4 samples = 16 rollouts" in text
    assert "at most 16 x 48 = 768 response tokens and 2,000 prompt tokens" in text
    assert "2 minibatches x 3 epochs = 6 optimizer steps on them, in microbatches of at most 2,048 tokens" in text
    assert "10 steps = 160 rollouts, 60 optimizer steps" in text


@pytest.mark.parametrize("recipe", sorted((REPOSITORY / "recipes").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_of_the_project_is_explained(ansatz, recipe):
    impatient = ["--rewards.judge.patience_s", "0.2"] if "judge" in recipe.stem else []  # no judge runs here
    code, out, err = ansatz("explain", recipe, *impatient)
    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if line.startswith("# ")] == [
        "# Recipe",
        "# Arithmetic of a step",
        "# Memory",
        "# Objective",
    ]


@pytest.mark.parametrize("preset", ["grpo", "dr_grpo", "dapo", "rloo", "reinforce"])
def test_the_presets_that_every_user_meets_are_explained(ansatz, tmp_path, preset):
    code, out, _ = ansatz("explain", toy_recipe(tmp_path), "--algorithm.preset", preset)
    assert code == 0
    assert f"{preset}: loss = sum" in out


def test_settings_may_stand_before_the_recipe(ansatz, tmp_path):
    code, out, _ = ansatz("explain", "--train.steps", "77", toy_recipe(tmp_path), "--name", "other")
    assert code == 0
    assert "77 steps" in out
    assert "name: other" in out


def test_an_overlay_lies_under_the_overrides(ansatz, tmp_path):
    overlay = tmp_path / "over.yaml"
    overlay.write_text("train: {steps: 5, warmup_steps: 1}\n")
    _, out, _ = ansatz("explain", toy_recipe(tmp_path), "--overlay", overlay, "--train.steps", "6")
    assert "  steps: 6\n" in out
    assert "  warmup_steps: 1\n" in out


def test_overrides_are_told_from_the_verbs_own_options():
    options = ("--fresh", "--overlay")
    given = ["r.yaml", "--train.lr", "-3e-4", "--fresh", "--name=a=b", "--overlay", "o.yaml", "--model.path="]
    rest, overrides = split_overrides(given, verb_options=options)
    assert rest == ["r.yaml", "--fresh", "--overlay", "o.yaml"]
    assert overrides == {"train.lr": "-3e-4", "name": "a=b", "model.path": ""}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--train.lr"], "--train.lr has no value"),
        (["--train.lr", "--name", "x"], "--train.lr has no value"),
        (["--name", "a", "--name=b"], "--name is given twice"),
    ],
)
def test_an_override_needs_one_value(arguments, sentence):
    with pytest.raises(ConfigError, match=sentence):
        split_overrides(arguments, verb_options=())


def test_the_version_is_that_of_the_package(ansatz):
    assert ansatz("--version") == (0, f"ansatz {__version__}\n", "")
