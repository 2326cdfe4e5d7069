"""The sampling options: one definition for `rollout`, `evaluate`, `rejection` and the command line."""

from __future__ import annotations

import pytest
from toy_runs import toy_config

from ansatz.config.load import dump, load_recipe, parse_section
from ansatz.config.sampling import SamplingOptions
from ansatz.config.schema import EvaluateSection
from ansatz.errors import ConfigError
from ansatz.loop.pair_rounds import pair_sampling
from ansatz.loop.stages.rejection import rejection_options
from ansatz.rollout.base import Sampling

FORM = {"max_response_tokens": 40, "min_response_tokens": 3, "stop": ["\n"], "thinking_budget": 20}
FORM |= {"closing": "Enough.</think>"}


def form(options: SamplingOptions) -> dict[str, object]:
    return options.model_dump(mode="json", include=set(FORM))


def test_evaluation_takes_the_form_of_a_response_from_rollout(tmp_path):
    evaluate = toy_config(tmp_path, {"rollout": {**FORM, "temperature": 0.6, "top_k": 9, "top_p": 0.8}}).evaluate
    assert form(evaluate) == FORM
    assert (evaluate.temperature, evaluate.top_k, evaluate.top_p, evaluate.min_p) == (1.0, 0, 1.0, 0.0)


def test_evaluation_can_differ_from_rollout_in_every_option(tmp_path):
    own = {"max_response_tokens": 80, "min_response_tokens": 0, "stop": [], "thinking_budget": 0}
    own |= {"closing": "</think>", "temperature": 0.3, "top_k": 5, "top_p": 0.9, "min_p": 0.1}
    config = toy_config(tmp_path, {"rollout": FORM, "evaluate": own})
    assert config.evaluate.model_dump(mode="json", include=set(own)) == own
    assert form(config.rollout) == FORM


def test_a_resolved_config_gives_the_same_evaluation_again(tmp_path):
    config = toy_config(tmp_path, {"rollout": FORM})
    file = tmp_path / "config.yaml"
    file.write_text(dump(config))
    assert load_recipe(file) == config
    assert load_recipe(file, overrides={"rollout.max_response_tokens": "50"}).evaluate.max_response_tokens == 40


def test_an_option_of_evaluation_that_contradicts_rollout_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"^evaluate\.min_response_tokens = 20: no response could end within .* = 10"):
        toy_config(tmp_path, {"rollout": {"min_response_tokens": 20}, "evaluate": {"max_response_tokens": 10}})


def test_rejection_samples_like_rollout_with_eight_samples_unless_it_says_otherwise(tmp_path):
    rollout = {**FORM, "samples_per_prompt": 4, "temperature": 0.6}
    options = rejection_options(toy_config(tmp_path, {"rollout": rollout, "rejection": {}}))
    assert (options.samples_per_prompt, options.temperature, form(options)) == (8, 0.6, FORM)
    config = toy_config(tmp_path, {"rollout": rollout, "rejection": {"samples_per_prompt": 2, "temperature": 0.9}})
    options = rejection_options(config)
    assert (options.samples_per_prompt, options.temperature, form(options)) == (2, 0.9, FORM)


def test_a_section_that_allows_no_token_is_refused_by_its_own_name(tmp_path):
    none = {"max_response_tokens": 0}
    sentence = r"max_response_tokens = 0: it should be greater than 0"
    with pytest.raises(ConfigError, match=rf"^evaluate\.{sentence}"):
        toy_config(tmp_path, {"evaluate": none})
    config = toy_config(tmp_path, {"rejection": none})
    with pytest.raises(ConfigError, match=rf"^rejection\.{sentence}"):
        rejection_options(config)
    with pytest.raises(ConfigError, match=rf"^preference\.pairs\.{sentence}"):
        pair_sampling(config, none, number=1)
    assert parse_section(SamplingOptions, none, name="").max_response_tokens == 0  # of a command: as many as fit


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"temperature": 0}, "^temperature = 0 with samples_per_prompt = 8: every response would be the same"),
        ({"top_p": 0}, "^top_p = 0: it should be greater than 0"),
        ({"top_p": 1.5}, "^top_p = 1.5: it should be less than or equal to 1"),
        ({"min_response_tokens": 9, "max_response_tokens": 9}, "no response could end within max_response_tokens = 9"),
        ({"thinking_budget": 9, "max_response_tokens": 9}, "leaves no room for an answer"),
        ({"closing": "Time is up."}, "^closing = 'Time is up.' does not end a thought; it must contain </think>"),
        ({"stop": [""]}, "stop"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        parse_section(SamplingOptions, options, name="")


def test_greedy_sampling_of_one_response_is_allowed():
    assert parse_section(SamplingOptions, {"temperature": 0, "samples_per_prompt": 1}, name="").temperature == 0


def test_the_sampler_gets_every_option():
    options = {**FORM, "stop": ("\n",), "temperature": 0.5, "top_k": 7, "top_p": 0.9, "min_p": 0.1}
    sampling = Sampling.of(SamplingOptions(samples_per_prompt=3, **options), seed=5, step=2)
    assert sampling == Sampling(num_samples=3, seed=5, step=2, **options)
    assert set(EvaluateSection.AS_ROLLOUT) <= SamplingOptions.model_fields.keys()
