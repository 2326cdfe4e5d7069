"""`ansatz simulate`: what cannot be simulated is refused with one sentence, before the simulation."""

import pytest

RECIPE = "tiny_arithmetic_grpo_cpu"
GPUS = ("--train", "2", "--rollout", "6")
STEPS = ("--train.steps", "2")


def test_a_recipe_is_simulated_with_every_option(ansatz):
    code, out, err = ansatz(
        "simulate", RECIPE, *GPUS, *STEPS, "--lag", "1", "--worker-gpus", "3", "--median-tokens", "9"
    )
    assert (code, err) == (0, "")
    assert "2 GPUs train, 2 workers x 3 GPUs sample; lag 1, 2 steps of 64 x 8 responses" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--train.steps", "0"], "the recipe has no RL steps to simulate."),
        (["--stages", "[sft]"], "the recipe has no RL steps to simulate."),
        (["--train.steps", "1000000000"], "512,000,000,000 responses, more than the 20,000,000 that can be simulated."),
        (["--worker-gpus", "8"], "--rollout 6 is less than the 8 GPUs of one worker."),
        (["--model.tiny.hidden_size", "x"], "model.tiny: hidden_size = 'x'"),
        (["--algorithm.preset", "grppo"], "algorithm.preset = 'grppo' is unknown."),
        (
            ["--rollout.lag", "100", "--rollout.long_lag", "true", "--algorithm.correction", "truncate"],
            "rollout.lag = 100: at most 64 can be simulated.",
        ),
    ],
)
def test_what_cannot_be_simulated_is_one_sentence(ansatz, arguments, sentence):
    code, out, err = ansatz("simulate", RECIPE, *GPUS, *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("option", ["--train", "--rollout", "--worker-gpus", "--median-tokens"])
def test_numbers_of_gpus_and_tokens_have_limits(ansatz, option):
    code, _, err = ansatz("simulate", RECIPE, *GPUS, option, "-5")
    assert code == 2
    assert "Invalid value" in err


def test_a_recipe_for_another_machine_is_simulated_here(ansatz):
    """vLLM need not be installed where a run is planned."""
    arguments = ("--rollout.engine", "{name: vllm}", "--model.tiny.head_dim", "32")
    code, _, err = ansatz("simulate", RECIPE, *GPUS, *STEPS, *arguments)
    assert (code, err) == (0, "")
