"""Model folders that somebody else has made or damaged: each ends in a sentence, and none chooses what code runs."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny_models import tiny_folder

from ansatz import trial
from ansatz.errors import ModelError
from ansatz.model_config import transformers_config
from ansatz.models.load import load_errors, load_policy, load_tokenizer
from ansatz.models.token_counts import token_counter
from ansatz.rewards.classifiers import Classifier

LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
CALLS = "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"
IN_A_SYSTEM_TURN = "{% if messages[0].role == 'system' %}" + CALLS + "{% endif %}"
BYTES = "{{ 'x' * 10**11 }}"
FOR_TOOLS = "{% if tools %}" + CALLS + "{% endif %}"
FOR_CALLS = "{% for each in messages %}{% if each.tool_calls %}" + CALLS + "{% endif %}{% endfor %}"
FOR_MANY_TURNS = (
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(messages|length) }}"
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("whole") / "model")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "model"))


def change(folder: Path, name: str, **values: Any) -> None:
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    "template",
    [LOOPS, IN_A_SYSTEM_TURN, BYTES, FOR_TOOLS, FOR_CALLS, FOR_MANY_TURNS],
    ids=["loops", "calls", "bytes", "tools", "tool calls", "many turns"],
)
def test_a_chat_template_that_does_not_end_is_refused(folder, monkeypatch, template):
    monkeypatch.setattr(trial, "CPU_S", 1)
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(ModelError, match="are not enough for the tokenizer and its chat template"):
        load_tokenizer(folder)


TWICE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
DOUBLES_SIXTY_TIMES = {"type": "Sequence", "normalizers": [TWICE] * 60}


def test_a_tokenizer_that_only_counts_tokens_has_a_trial_too(folder, monkeypatch):
    monkeypatch.setattr(trial, "CPU_S", 1)
    change(folder, "tokenizer.json", normalizer=DOUBLES_SIXTY_TIMES)
    with pytest.raises(ModelError, match="are not enough for the tokenizer"):
        token_counter(folder)
    with pytest.raises(ModelError, match="are not enough for the tokenizer"):
        Classifier(str(folder), key="rewards.learned.model", by_token=False, batch_size=1, device="cpu")


def test_a_normalizer_that_doubles_a_text_sixty_times_is_refused(folder, monkeypatch):
    monkeypatch.setattr(trial, "CPU_S", 1)
    change(folder, "tokenizer.json", normalizer=DOUBLES_SIXTY_TIMES)
    with pytest.raises(ModelError, match="are not enough for the tokenizer"):
        load_tokenizer(folder)


def test_a_template_that_refuses_a_system_turn_passes_the_trial(folder):
    (folder / "chat_template.jinja").write_text(
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system turn') }}{% endif %}"
        "{% for each in messages %}{{ each.content }}{% endfor %}"
    )
    assert load_tokenizer(folder).chat_template


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json"])
@pytest.mark.parametrize(
    ("value", "said"), [(math.nan, "NaN is not a number"), (-math.inf, "Infinity"), ("\ud83d", "surrogates")]
)
def test_nan_and_half_characters_in_a_file_are_a_sentence(folder, name, value, said):
    change(folder, name, of_somebody=[value])
    with pytest.raises(ModelError, match=said) as raised:
        load_policy(folder)
    assert name in str(raised.value)


@pytest.mark.parametrize(
    "values",
    [
        {"final_logit_softcapping": {}},
        {"num_labels": 10**9},
        {"num_hidden_layers": 10**6},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10**200}},
    ],
    ids=lambda values: next(iter(values)),
)
def test_a_value_that_fails_anywhere_is_a_sentence(folder, values):
    change(folder, "config.json", **values)
    with pytest.raises(ModelError, match=r"model\.path = "):
        load_policy(folder)


@pytest.mark.parametrize("name", ["somebody/kernels", "flash_attention_2", "sdpa"])
def test_a_config_does_not_choose_the_implementation(folder, name):
    """transformers would download somebody/kernels, and run it."""
    change(folder, "config.json", _attn_implementation=name, _experts_implementation=name)
    config = transformers_config(folder)
    assert (config._attn_implementation, config._experts_implementation) == (None, None)
    assert load_policy(folder).model.config._attn_implementation == "ansatz"


def test_a_text_that_the_pattern_of_a_tokenizer_cannot_take_is_a_sentence(folder, ansatz):
    """The trial of the folder has other texts, so only the question shows it."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    splits = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [splits, tokenizer["pre_tokenizer"]]}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    code, _, err = ansatz("ask", folder, "a" * 40 + "!", "--max-response-tokens", "4")
    assert code == 2
    (sentence,) = [line for line in err.splitlines() if line.startswith("ansatz: ")]
    assert "retry-limit" in sentence
    assert "tokenizer" in sentence


@pytest.mark.parametrize("place", ["../model.safetensors", "/weights/model.safetensors", "..", 3])
@pytest.mark.parametrize("index", ["model.safetensors.index.json", "pytorch_model.bin.index.json"])
def test_an_index_names_weights_of_its_own_folder_only(folder, place, index):
    (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": {"model.norm.weight": place}}))
    with pytest.raises(ModelError, match=r"index\.json names .* expected the name of a file in the same folder"):
        load_policy(folder)


def test_the_panic_of_a_library_is_a_sentence_and_the_end_of_the_process_is_none():
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(ModelError, match="index out of bounds"), load_errors("model"):
        raise panic("index out of bounds")
    with pytest.raises(KeyboardInterrupt), load_errors("model"):
        raise KeyboardInterrupt
