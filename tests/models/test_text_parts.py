"""The text part of models that also read images: transformers' log-probs and gradients, export and reading back."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from ansatz.cli.export import export
from ansatz.errors import ConfigError, ModelError
from ansatz.loop.pipeline import run_pipeline
from ansatz.model_config import TEXT_PART_OF
from ansatz.models import lora
from ansatz.models.known_models import model_shape
from ansatz.models.load import Policy, check_folder, head_logits, load_policy
from ansatz.models.reader import reader_of
from ansatz.models.save import save_model
from ansatz.reward_models.model import load_reward_model
from ansatz.rollout.vllm.vllm import vllm
from ansatz.track.console import PlainConsole
from tools import family_runs
from tools.families import SIZES, letter_tokenizer, tokenizer

UNTIED = {"tie_word_embeddings": False}
VISION: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
EYES: dict[str, dict[str, Any]] = {
    "Gemma3Config": {"model_type": "siglip_vision_model", **VISION},
    "Mistral3Config": {"model_type": "pixtral", **VISION, "head_dim": 8},
    "LlavaConfig": {"model_type": "clip_vision_model", **VISION, "projection_dim": 16},
    "LlavaNextConfig": {"model_type": "clip_vision_model", **VISION, "projection_dim": 16},
    "LlavaOnevisionConfig": {"model_type": "siglip_vision_model", **VISION},
    "InternVLConfig": {"model_type": "internvl_vision", **VISION, "image_size": [28, 28], "patch_size": [14, 14]},
}
LINEAR = {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}
GEMMA_ROPES = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}, "full_attention": LINEAR}
TWO_KINDS = {"layer_types": ["sliding_attention", "full_attention"]}
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "gemma 3": ("Gemma3Config", {"model_type": "gemma3_text", "sliding_window": 7}, {}),
    "gemma 3, as the 4B": (
        "Gemma3Config",
        {"model_type": "gemma3_text", "sliding_window": 7, "rope_parameters": GEMMA_ROPES, **TWO_KINDS},
        {},
    ),
    "gemma 3, untied": ("Gemma3Config", {"model_type": "gemma3_text", "sliding_window": 7, **UNTIED}, UNTIED),
    "mistral 3": ("Mistral3Config", {"model_type": "mistral", "sliding_window": None, **UNTIED}, UNTIED),
    "mistral 3, tied outside only": ("Mistral3Config", {"model_type": "mistral", **UNTIED}, {}),
    "llava with llama": ("LlavaConfig", {"model_type": "llama", **UNTIED}, {}),
    "llava, tied inside": ("LlavaConfig", {"model_type": "llama", "num_key_value_heads": 1}, {}),
    "llava next with mistral": ("LlavaNextConfig", {"model_type": "mistral", "sliding_window": 7, **UNTIED}, {}),
    "llava onevision with qwen 2": ("LlavaOnevisionConfig", {"model_type": "qwen2"}, {}),
    "internvl with qwen 2": ("InternVLConfig", {"model_type": "qwen2"}, {}),
    "internvl with qwen 3": ("InternVLConfig", {"model_type": "qwen3", **UNTIED}, UNTIED),
}


def wrapper_folder(folder: Path, name: str = "gemma 3", *, new_names: bool = False, num_layers: int = 2) -> Path:
    """A model with random weights that also reads images. new_names: those of transformers 4.52 and later."""
    config, text, outer = MODELS[name]
    text = {**SIZES, **text, "num_hidden_layers": num_layers}
    sizes = getattr(transformers, config)(text_config=text, vision_config=EYES[config], **outer)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = AutoModelForImageTextToText.from_config(sizes)
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    if new_names:
        weights = load_file(folder / "model.safetensors")
        new = {re.sub(r"^language_model\.model", "model.language_model", key): value for key, value in weights.items()}
        new = {re.sub(r"^language_model\.lm_head", "lm_head", key): value for key, value in new.items()}
        save_file(new, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def whole_model(folder: Path) -> Any:
    return AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def whole_logps(folder: Path, token_ids: list[int]) -> torch.Tensor:
    """The log-probs of each token after the first, by the model that also reads images."""
    with torch.no_grad():
        logp_TV = whole_model(folder)(input_ids=torch.tensor([token_ids])).logits[0].log_softmax(-1)
    return logp_TV[:-1].gather(1, torch.tensor(token_ids[1:])[:, None])[:, 0]


QUICK = ("gemma 3", "mistral 3, tied outside only", "internvl with qwen 3")
"""What `make test` compares; `make test-slow` compares all."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in MODELS]
)
def test_sampler_and_training_agree_with_the_model_that_also_reads_images(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = wrapper_folder(tmp_path, name, new_names=name.startswith(("llava", "mistral")))
    monkeypatch.setattr(family_runs, "transformers_logps", whole_logps)
    assert family_runs.logp_gap(folder) < family_runs.LOGP_TOLERANCE


TOKENS = [5, 17, 30, 2, 44, 9, 21, 8, 33, 12]


def loss_of(policy: Policy) -> torch.Tensor:
    """The mean of minus the log-probs of the tokens, packed as in training."""
    place_T = torch.arange(len(TOKENS))
    hidden_TH = policy.packed_hidden(torch.tensor(TOKENS), place_T, torch.zeros_like(place_T))
    logp_TV = head_logits(hidden_TH, policy.head.weight, softcap=policy.softcap).log_softmax(-1)
    return -logp_TV[:-1].gather(1, torch.tensor(TOKENS[1:])[:, None]).mean()


@pytest.mark.parametrize("name", ["gemma 3, as the 4B", "gemma 3, untied", "mistral 3, tied outside only"])
def test_gradients_are_those_of_the_model_that_also_reads_images(tmp_path: Path, name: str) -> None:
    folder = wrapper_folder(tmp_path, name)
    policy, whole = load_policy(folder), whole_model(folder)
    loss_of(policy).backward()
    logp_TV = whole(input_ids=torch.tensor([TOKENS])).logits[0].log_softmax(-1)
    (-logp_TV[:-1].gather(1, torch.tensor(TOKENS[1:])[:, None]).mean()).backward()
    inner = dict(whole.named_parameters())
    for key, parameter in policy.model.named_parameters():
        place = re.sub(r"^model\.", "model.language_model.", key)
        torch.testing.assert_close(parameter.grad, inner[place].grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["gemma 3", "gemma 3, untied", "mistral 3", "llava, tied inside"])
def test_a_checkpoint_is_a_model_of_text_only_which_others_load(tmp_path: Path, name: str) -> None:
    policy = load_policy(wrapper_folder(tmp_path / "whole", name))
    state = {key: value.detach() for key, value in policy.model.named_parameters()}
    save_model(policy, tmp_path / "saved", state=state, dtype=torch.float32)
    saved, report = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert (list(report["missing_keys"]), list(report["unexpected_keys"])) == ([], [])
    assert type(saved) is type(policy.model)
    assert not [key for key in load_file(tmp_path / "saved" / "model.safetensors") if "language_model" in key]
    stored = json.loads((tmp_path / "saved" / "config.json").read_text())
    outer, text, _ = MODELS[name]
    assert stored["model_type"] == text["model_type"]
    assert stored[TEXT_PART_OF] == getattr(transformers, outer).model_type
    again = load_policy(tmp_path / "saved")
    assert again.text_part is None
    assert loss_of(again).item() == pytest.approx(loss_of(policy).item(), abs=1e-6)


def test_adapters_fit_the_model_that_also_reads_images_and_are_read_back(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    folder = wrapper_folder(tmp_path / "whole", num_layers=3)  # peft shortens the names of 20 layers or more
    policy = lora.add_adapters(load_policy(folder), rank=2)
    with torch.no_grad():
        for key, value in policy.model.named_parameters():
            if "lora_B" in key:
                value += 0.3 * torch.randn(value.shape, generator=torch.Generator().manual_seed(len(key)))
    weights = {key: value.detach() for key, value in policy.model.named_parameters() if value.requires_grad}
    lora.save_adapters(policy, tmp_path / "adapter", weights=weights)
    read = lora.read_adapters(tmp_path / "adapter")
    assert read.keys() == weights.keys()
    assert all(torch.equal(read[key], weights[key]) for key in weights)
    adapted = peft.PeftModel.from_pretrained(whole_model(folder), tmp_path / "adapter")
    assert [key for key, _ in adapted.named_parameters() if "lora_" in key and "language_model" not in key] == []
    with torch.no_grad():
        logp_TV = adapted(input_ids=torch.tensor([TOKENS])).logits[0].log_softmax(-1)
        before = loss_of(load_policy(folder)).item()
    expected = -logp_TV[:-1].gather(1, torch.tensor(TOKENS[1:])[:, None]).mean().item()
    assert loss_of(policy).item() == pytest.approx(expected, abs=1e-5)
    assert abs(expected - before) > 1e-2
    stored = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    old = {key.replace("model.language_model.", "language_model.model."): value for key, value in stored.items()}
    save_file(old, tmp_path / "adapter" / "adapter_model.safetensors")
    assert lora.read_adapters(tmp_path / "adapter").keys() == weights.keys()  # as of transformers before 4.52


def test_a_run_says_once_that_images_are_left_out_and_the_export_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = wrapper_folder(tmp_path / "whole")
    letter_tokenizer().save_pretrained(folder)
    lines = list[str]()
    config = family_runs.recipe(tmp_path, folder, train={"steps": 1})
    run = run_pipeline(config, console=PlainConsole(lines.append))
    assert len([line for line in lines if "'gemma3' also reads images" in line]) == 1
    export(run, tmp_path / "out")
    assert "(the text part of a gemma3 model, without the weights for images)" in capsys.readouterr().out
    assert "the text part of a gemma3 model" in (tmp_path / "out" / "README.md").read_text()
    assert type(AutoModelForCausalLM.from_pretrained(tmp_path / "out")).__name__ == "Gemma3ForCausalLM"


def test_the_weights_that_are_left_out_are_counted_in_one_sentence(tmp_path: Path) -> None:
    folder = wrapper_folder(tmp_path)
    names = load_file(folder / "model.safetensors").keys()
    eyes = [name for name in names if not name.startswith("language_model")]
    policy = load_policy(folder)
    assert policy.text_part is not None
    assert "'gemma3' also reads images" in policy.text_part
    assert f"Left out: {len(eyes)} of {len(names)} weights, which are the weights for images." in policy.text_part
    with pytest.raises(ConfigError, match="vLLM would load the part for images, too"):
        vllm(policy)


def test_a_reward_model_can_start_from_a_text_part(tmp_path: Path) -> None:
    policy = load_reward_model(wrapper_folder(tmp_path), reads="response")
    text = load_policy(tmp_path).model.model.state_dict()
    assert type(policy.model).__name__ == "Gemma3TextForSequenceClassification"
    assert all(torch.equal(value, text[key]) for key, value in policy.model.model.state_dict().items())


def test_sizes_and_end_tokens_are_those_of_the_text_part(tmp_path: Path) -> None:
    folder = wrapper_folder(tmp_path)
    assert model_shape(folder).architecture == "gemma3_text"
    assert model_shape(folder).num_parameters == load_policy(folder).num_parameters
    assert reader_of(folder).max_context == SIZES["max_position_embeddings"]
    (folder / "generation_config.json").unlink()
    change_config(folder, lambda stored: stored.update(eos_token_id=[1, 7]))
    assert load_policy(folder).end_ids == (1, 7)
    assert reader_of(folder).max_context == SIZES["max_position_embeddings"]


def test_a_chat_template_in_the_file_of_the_processor_is_used(tmp_path: Path) -> None:
    folder = wrapper_folder(tmp_path)
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "{{ messages[0]['content'] }} t5"}))
    policy = load_policy(folder)
    turns = [{"role": "user", "content": "t3"}]
    assert policy.tokenizer.apply_chat_template(turns, tokenize=False) == "t3 t5"
    policy.tokenizer.save_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved" / "chat_template.jinja").read_text() == "{{ messages[0]['content'] }} t5"


def change_config(folder: Path, change: Any) -> None:
    stored = json.loads((folder / "config.json").read_text())
    change(stored)
    (folder / "config.json").write_text(json.dumps(stored))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("qwen3_5", "layers of linear attention, whose state the sampler's cache does not hold"),
        ("qwen3_5_moe", "layers of linear attention"),
        ("gemma4", "embeddings for every layer, heads of two sizes, and layers that share keys and values"),
        ("gemma4_text", "embeddings for every layer"),
        ("gemma3n", "embeddings for every layer"),
        ("qwen2_5_vl", "rotary positions in several dimensions"),
        ("qwen3_vl", "rotary positions in several dimensions"),
        ("llama4", "attention in chunks"),
        ("paligemma", "attention in both directions within a prompt"),
    ],
)
def test_what_is_missing_for_a_refused_model_type_is_named(tmp_path: Path, kind: str, reason: str) -> None:
    folder = wrapper_folder(tmp_path)
    change_config(folder, lambda stored: stored.update(model_type=kind))
    with pytest.raises(ModelError, match=rf"has the model type '{kind}' \(it has {reason}.*\), which Ansatz does not"):
        check_folder(folder)


@pytest.mark.parametrize("kind", ["falcon", "qwen3_5_text", "cohere2", "gemma3n_text"])
def test_a_text_part_of_another_family_is_refused(tmp_path: Path, kind: str) -> None:
    tokenizer().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llava", "text_config": {"model_type": kind}}))
    with pytest.raises(ModelError, match=rf"^The text part of model.path = .* has the model type '{kind}'"):
        check_folder(tmp_path)


def test_a_broken_or_quantised_model_that_also_reads_images_is_refused(tmp_path: Path) -> None:
    folder = wrapper_folder(tmp_path)
    weights = load_file(folder / "model.safetensors")
    lacking = {key: value for key, value in weights.items() if "layers.1.mlp.up_proj" not in key or "vision" in key}
    save_file(lacking, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 weights, such as model\.layers\.1\.mlp\.up_proj\.weight"):
        load_policy(folder)
    change_config(folder, lambda stored: stored["text_config"].update(num_hidden_layers=10**9))
    with pytest.raises(ModelError, match="num_hidden_layers = 1000000000"):
        load_policy(folder)
    change_config(folder, lambda stored: stored.update(quantization_config={"quant_method": "fp8"}))
    with pytest.raises(ModelError, match="has weights that were quantised by 'fp8'"):
        check_folder(folder)
    change_config(folder, lambda stored: stored.pop("text_config"))
    with pytest.raises(ModelError, match="has the model type 'gemma3', which Ansatz does not support"):
        check_folder(folder)
