"""The sampling options of commands: one group, with the names of recipes."""

from __future__ import annotations

import dataclasses

import pytest

from ansatz.cli.sampling_options import _OTHERS, ModelSampling, as_flags, model_sampling
from ansatz.config.sampling import SamplingOptions
from ansatz.errors import ConfigError
from ansatz.registry import LARGEST

COMMANDS = [("eval",), ("sample",), ("data", "difficulty"), ("data", "filter")]
FLAGS = [f"--{name.replace('_', '-')}" for name in SamplingOptions.model_fields]


def values(**changes):
    options = {name: field.default for name, field in SamplingOptions.model_fields.items()}
    others = {"template": "tiny", "seed": 0, "batch": 1, "device": "cpu", "dtype": "auto", "threads": 1}
    return {**options, **others, **changes}


def test_the_table_has_every_option_that_recipes_do_not_have():
    assert ["options", *_OTHERS] == [field.name for field in dataclasses.fields(ModelSampling)]
    assert _OTHERS["seed"]["max"] == LARGEST - 1


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_samples_has_every_option(ansatz, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = ansatz(*command, "--help")
    assert code == 0
    assert [flag for flag in FLAGS if flag not in out] == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"temperature": 0.0}, "^--temperature = 0 with --samples-per-prompt = 8: every response would be the same"),
        ({"top_p": 1.5}, "^--top-p = 1.5: it should be less than or equal to 1"),
        ({"closing": "Time is up."}, "^--closing = 'Time is up.' does not end a thought"),
        ({"wait": "</think>"}, "^--wait = '</think>' makes no thought go on"),
        ({"dtype": "float16"}, "^--dtype = 'float16': expected auto, float32 or bfloat16"),
    ],
)
def test_a_wrong_option_is_refused_in_the_words_of_the_command_line(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        model_sampling(values(**changes))


def test_options_are_passed_on(ansatz):
    sampling = model_sampling(values(stop=["a", "b"], top_k=5, seed=7))
    assert (sampling.options.stop, sampling.options.top_k, sampling.seed) == (("a", "b"), 5, 7)
    assert model_sampling(values(stop=None)).options.stop == ()


def test_only_names_of_options_become_flags():
    assert as_flags("top_p = 2: bad; stop it") == "--top-p = 2: bad; stop it"
