import subprocess
import sys

import pytest
from toy_runs import toy_config, toy_recipe

from ansatz import __version__
from ansatz.cli.explain import step_arithmetic
from ansatz.cli.recipe import split_overrides
from ansatz.cli.verbs import load_verb, verb_help
from ansatz.config import load_recipe
from ansatz.config.load import dump
from ansatz.errors import ConfigError

VERBS = tuple(verb_help())


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(ansatz, verb):
    code, out, err = ansatz(verb, "--help")
    assert (code, err) == (0, "")
    assert f"ansatz {verb}" in out


@pytest.mark.parametrize("words", ["", "train", "data", "data peek"])
def test_help_is_asked_for_in_three_ways(ansatz, words):
    asked = ansatz(*words.split(), "--help")
    assert asked[0] == 0
    assert ansatz("help", *words.split()) == ansatz(*words.split(), "-h") == asked


def test_help_about_an_unknown_verb_is_refused(ansatz):
    code, _, err = ansatz("help", "trian")
    assert (code, "trian" in err) == (2, True)


def test_the_command_alone_lists_its_verbs(ansatz):
    _, out, _ = ansatz("--help")
    assert {"train", "explain", "parity"} <= set(VERBS)
    assert all(verb in out for verb in VERBS)


def test_the_help_of_a_verb_in_the_list_is_its_own():
    assert len(VERBS) > 10
    for verb, text in verb_help().items():
        assert text.startswith(load_verb(verb).help.split("\n")[0])
        assert text


def test_an_unknown_verb_is_refused(ansatz):
    code, _, err = ansatz("trian")
    assert code == 2
    assert "trian" in err


def test_explain_prints_the_resolved_config_the_arithmetic_and_the_formula(ansatz, tmp_path):
    code, out, err = ansatz(
        "explain", toy_recipe(tmp_path), "--full", "--train.lr", "1e-6", "--train.updates_per_step=2"
    )
    assert (code, err) == (0, "")
    config = toy_config(tmp_path, {"train": {"lr": 1e-6, "updates_per_step": 2}})
    assert dump(config) in out
    assert step_arithmetic(config) in out
    assert "grpo: loss = sum over response tokens of weight x surrogate" in out


def test_the_arithmetic_of_a_step(tmp_path):
    train = {"steps": 10, "updates_per_step": 2, "epochs_per_step": 3, "tokens_per_microbatch": 2048}
    text = step_arithmetic(toy_config(tmp_path, {"train": train, "rollout": {"max_prompt_tokens": 500}}))
    assert "4 prompts x 4 samples = 16 rollouts" in text
    assert "at most 16 x 24 = 384 response tokens and 2,000 prompt tokens" in text
    assert "2 minibatches x 3 epochs = 6 optimizer steps on them, in microbatches of at most 2,048 tokens" in text
    assert "10 steps = 160 rollouts, 60 optimizer steps" in text


def test_explain_begins_with_the_answer_and_the_rest_takes_an_option(ansatz, tmp_path):
    recipe = toy_recipe(tmp_path)
    code, short, _ = ansatz("explain", recipe)
    _, full, _ = ansatz("explain", recipe, "--full")
    assert code == 0
    assert short.startswith("# Arithmetic of a step\n4 prompts x 4 samples = 16 rollouts\n")
    for answer in (
        "4 steps = 64 rollouts",
        "; add --memory 24GiB to see whether that fits",
        "grpo: loss = sum",
        "  surrogate   -min(rho A",
        "coefficient  ",
    ):
        assert answer in short, answer
    for detail in ("gradient sums", "Other projects' defaults", "  trl: ", "tokens_per_microbatch:"):
        assert detail not in short, detail
        assert detail in full, detail
    assert len(short.splitlines()) < 45


@pytest.mark.parametrize("preset", ["grpo", "dr_grpo", "dapo", "rloo", "reinforce"])
def test_the_presets_that_every_user_meets_are_explained(ansatz, tmp_path, preset):
    code, out, _ = ansatz("explain", toy_recipe(tmp_path), "--algorithm.preset", preset)
    assert code == 0
    assert f"{preset}: loss = sum" in out


def test_settings_may_stand_before_the_recipe(ansatz, tmp_path):
    code, out, _ = ansatz("explain", "--full", "--train.steps", "77", toy_recipe(tmp_path), "--name", "other")
    assert code == 0
    assert "77 steps" in out
    assert "name: other" in out


def test_an_overlay_lies_under_the_overrides(ansatz, tmp_path):
    overlay = tmp_path / "over.yaml"
    overlay.write_text("train: {steps: 5, warmup_steps: 1}\n")
    _, out, _ = ansatz("explain", toy_recipe(tmp_path), "--full", "--overlay", overlay, "--train.steps", "6")
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
    ],
)
def test_an_override_needs_one_value(arguments, sentence):
    with pytest.raises(ConfigError, match=sentence):
        split_overrides(arguments, verb_options=())


def test_of_an_override_that_is_given_twice_the_last_one_counts_and_is_named(capsys):
    assert split_overrides(["--name", "a", "--name=b"], verb_options=()) == ([], {"name": "b"})
    assert capsys.readouterr().err == "ansatz: --name is given twice; the last one counts: b\n"


def test_the_version_is_that_of_the_package(ansatz):
    assert ansatz("--version") == (0, f"ansatz {__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--lr 3e-4", "Did you mean --train.lr, --train.critic.lr, --sft.lr, --preference.lr or --reward_model.lr?"),
        ("--kl_coef=0.01", "Did you mean --algorithm.kl_coef?"),
        ("--samples-per-prompt 4", "Did you mean --rollout.samples_per_prompt, "),
        ("--train.temperature 1", "Did you mean rollout.temperature, "),
        ("--fressh", "Did you mean '--fresh'?"),
        ("--no-such-thing 1", "Known: --algorithm, "),
        ("train.lr=3e-4", "Write --train.lr 3e-4."),
        ("+name=x", "Write --name x."),
        ("lr=3e-4", "Did you mean --train.lr, "),
        ("allow_changes=", "Write --allow-changes, which takes no value."),
        ("fresh=true", "Write --fresh, which takes no value."),
        ("resume=", "Write --resume VALUE."),
    ],
)
def test_a_setting_that_is_misspelt_is_answered_with_the_option(ansatz, tmp_path, words, sentence):
    code, _, err = ansatz("train", toy_recipe(tmp_path), *words.split())
    assert (code, sentence in err) == (2, True), err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("eval somewhere suite=gsm8k", "suite=gsm8k: options begin with two hyphens. Write --suite gsm8k."),
        ("data peek rows.jsonl question_key=q", "Write --question-key q."),
        ("compare a b num_changed=3", "Write --num-changed 3."),
        ("data dedup a.jsonl --no-near ngram=3", "Write --ngram 3."),
    ],
)
def test_an_option_of_any_verb_that_is_written_as_an_assignment_is_answered_with_the_option(ansatz, words, sentence):
    code, _, err = ansatz(*words.split())
    assert (code, sentence in err) == (2, True), err


def test_values_and_files_with_an_equals_sign_are_no_settings(ansatz, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    toy_recipe(tmp_path).rename("lr=3.yaml")
    code, _, err = ansatz("explain", "lr=3.yaml", "--name", "other", "--overlay", "name=1.yaml")
    assert (code, "no recipe file 'name=1.yaml'" in err) == (2, True), err


@pytest.mark.parametrize("text", ["off", "no", "7", "1e3", "null", "'off'"])
def test_the_text_of_an_option_that_expects_a_text_is_no_boolean_and_no_number(tmp_path, text):
    config = load_recipe(toy_recipe(tmp_path), overrides={"name": text, "out": text})
    assert (config.name, config.out) == (text.strip("'"), text.strip("'"))


def test_null_still_removes_a_text_that_may_be_absent(tmp_path):
    assert load_recipe(toy_recipe(tmp_path), overrides={"model.path": "null"}).model.path is None
    assert load_recipe(toy_recipe(tmp_path), overrides={"model.path": "7"}).model.path == "7"


def test_a_word_of_a_recipe_that_yaml_reads_as_a_boolean_is_to_be_put_in_quotes(tmp_path):
    recipe = toy_recipe(tmp_path)
    recipe.write_text(recipe.read_text().replace("name: toy", "name: off"))
    with pytest.raises(ConfigError, match=r"name = False: it should be a text, .* Put it in quotes"):
        load_recipe(recipe)


@pytest.mark.parametrize("module", ["ansatz", "ansatz.cli.main"])
@pytest.mark.parametrize(
    ("arguments", "code"), [(("--version",), 0), (("trian",), 2), (("explain", "missing.yaml"), 2)]
)
def test_the_command_is_a_module_too(module, arguments, code):
    process = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    assert process.returncode == code
    assert process.stderr if code else process.stdout == f"ansatz {__version__}\n"
