import dataclasses
import json

import pytest
from tiny_models import tiny_folder, tiny_policy
from transformers import AutoConfig, AutoModelForCausalLM

from ansatz.errors import ModelError
from ansatz.models.known_models import ARCHITECTURES, KNOWN_MODELS, ModelShape, model_shape
from ansatz.models.load import load_policy
from ansatz.models.tiny import build_random_model

KNOWN = [
    "qwen3, grouped heads, tied",
    "qwen3, untied",
    "llama, one key head per query head, untied",
    "qwen2, biases, untied",
]

# Numbers of weights from the pages of the models.
PUBLISHED = {
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "deepseek-ai/deepseek-math-7b-instruct": 6_910_365_696,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": 1_777_088_000,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-3B-Instruct": 3_085_938_688,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen2.5-32B": 32_763_876_352,
}


def written(policy, folder) -> ModelShape:
    (folder / "config.json").write_text(json.dumps(policy.model.config.to_dict()))
    return model_shape(folder)


@pytest.mark.parametrize("name", KNOWN)
def test_the_parameter_count_equals_the_models(tmp_path, name):
    policy = tiny_policy(name)
    assert written(policy, tmp_path).num_parameters == policy.num_parameters


@pytest.mark.parametrize(("name", "number"), PUBLISHED.items())
def test_published_shapes_have_the_published_number_of_parameters(name, number):
    assert KNOWN_MODELS[name].num_parameters == number


@pytest.mark.parametrize("family", ["Gemma", "Gemma2", "Gemma3Text", "Phi3", "Olmo2", "SmolLM3", "Mistral"])
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_the_parameters_of_every_architecture_are_counted_from_its_config(tmp_path, family, kv_heads):
    folder = tiny_folder(tmp_path, f"{family}Config", num_key_value_heads=kv_heads)
    assert model_shape(folder).num_parameters == load_policy(folder).num_parameters


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_has_a_toy_model_that_loads(tmp_path, architecture):
    shape = dataclasses.replace(KNOWN_MODELS["meta-llama/Llama-3.1-8B"], architecture=architecture)
    toy = shape.at_toy_size(vocab_size=400, max_context=64)
    build_random_model(tmp_path, texts=["one and two is three"] * 3, shape=toy)
    assert load_policy(tmp_path).model.config.model_type == architecture


def test_an_unknown_name_and_another_architecture_are_refused(tmp_path):
    with pytest.raises(ModelError, match=r"nor a model whose shape is known\. Did you mean 'Qwen/Qwen2\.5-3B'\?"):
        model_shape("Qwen/Qwen2.5-3b")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    with pytest.raises(ModelError, match="has the architecture 'mamba'"):
        model_shape(tmp_path)


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B", "deepseek-ai/deepseek-math-7b-base", "Qwen/Qwen2.5-3B"])
def test_a_toy_model_has_the_same_class_and_loads_as_a_policy(tmp_path, name):
    shape = KNOWN_MODELS[name].at_toy_size(vocab_size=400, max_context=64)
    build_random_model(tmp_path, texts=["one and two is three"] * 3, shape=shape)
    policy = load_policy(tmp_path)
    model_class = AutoModelForCausalLM._model_mapping[type(AutoConfig.for_model(KNOWN_MODELS[name].architecture))]
    assert type(policy.model) is model_class
    assert policy.model.config.tie_word_embeddings is KNOWN_MODELS[name].tied
    assert policy.max_context == 64
    assert model_shape(tmp_path).num_parameters == policy.num_parameters < 200_000
    biased = policy.model.model.layers[0].self_attn.q_proj.bias is not None
    assert biased is (KNOWN_MODELS[name].architecture == "qwen2")


def test_a_toy_model_keeps_the_ratio_of_query_heads_to_key_heads():
    groups = {name: shape.at_toy_size(vocab_size=1, max_context=1).num_kv_heads for name, shape in KNOWN_MODELS.items()}
    assert groups["deepseek-ai/deepseek-math-7b-base"] == 4  # one key head per query head
    assert groups["meta-llama/Llama-3.1-8B"] == groups["Qwen/Qwen2.5-3B"] == 1
    assert set(groups.values()) == {1, 4}
    assert {shape.architecture for shape in KNOWN_MODELS.values()} <= set(ARCHITECTURES)
