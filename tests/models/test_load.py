from __future__ import annotations

import contextlib
import json
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import ARCHITECTURES, tiny_folder, tiny_policy
from transformers import AddedToken, AutoModelForCausalLM, AutoTokenizer

from ansatz.certify import doctor
from ansatz.errors import ModelError
from ansatz.models import families
from ansatz.models.load import Policy, cast, check_folder, compute_dtype, head_logits, load_policy, load_tokenizer
from ansatz.models.reader import reader_of
from ansatz.models.save import save_model
from ansatz.models.token_counts import token_counter
from tools.families import END_ID, LATENT, MAX_CONTEXT, MIXTURE, VOCAB_SIZE, build_folder


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_policy_has_the_folders_weights_in_float32_its_end_token_and_its_context(tmp_path: Path, name: str) -> None:
    policy = load_policy(tiny_folder(tmp_path, name))
    weights = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).state_dict()
    assert all(torch.equal(value, weights[key]) for key, value in policy.model.state_dict().items())
    assert policy.dtype == torch.float32
    assert policy.end_ids == (END_ID,)
    assert policy.max_context == MAX_CONTEXT
    assert policy.head.weight.shape == (VOCAB_SIZE, 32)
    assert policy.num_parameters == sum(p.numel() for p in policy.model.parameters())
    assert not policy.model.training


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_head_logits_of_hidden_states_are_the_models_own_logits(name: str) -> None:
    policy = tiny_policy(name)
    token_BL, position_BL = torch.arange(20)[None] % VOCAB_SIZE, torch.arange(20)[None]
    with torch.no_grad():
        logits = head_logits(policy.hidden(token_BL, position_BL), policy.head.weight, 0.5, policy.softcap)
        expected = policy.model(token_BL).logits.float() / 0.5
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


def test_end_tokens_are_those_of_generation_config_and_tokenizer_together(tmp_path: Path) -> None:
    tiny_folder(tmp_path)
    edit_json(tmp_path / "generation_config.json", eos_token_id=[5, 9])
    assert load_policy(tmp_path).end_ids == (END_ID, 5, 9)


def test_the_token_that_ends_a_turn_in_the_chat_template_is_an_end_token(tmp_path: Path) -> None:
    """A base model of Qwen2.5 has another end token than its chat template, and would not stop in a chat."""
    tiny_folder(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    tokenizer.add_special_tokens({"additional_special_tokens": ["t9"]})
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }} t9 {% endfor %}"
    tokenizer.save_pretrained(tmp_path)
    assert load_policy(tmp_path).end_ids == (END_ID, 9)


def test_a_tokenizer_that_has_other_rules_than_its_file_is_named_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tiny_folder(tmp_path / "words", "Qwen2Config")
    for _ in range(2):
        load_tokenizer(folder)
    said = f"model.path = {str(folder)!r}: transformers reads tokenizer.json as a Qwen2Tokenizer, which splits text by"
    assert capsys.readouterr().err.count(said) == 1
    load_tokenizer(build_folder(tmp_path / "letters", "Qwen2Config", letters=True))
    load_tokenizer(tiny_folder(tmp_path / "of its file", "Qwen3Config"))
    assert "other rules" not in capsys.readouterr().err


def edit_json(path: Path, **values: Any) -> None:
    content = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def edit_weights(path: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def no_end_token(folder: Path) -> None:
    edit_json(folder / "config.json", eos_token_id=None)
    edit_json(folder / "generation_config.json", eos_token_id=None)
    edit_json(folder / "tokenizer_config.json", eos_token=None)


def no_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


def half_of_the_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:3000])


def a_layer_missing(folder: Path) -> None:
    edit_weights(
        folder / "model.safetensors",
        lambda weights: {name: value for name, value in weights.items() if "layers.1" not in name},
    )


def a_weight_of_another_shape(folder: Path) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    edit_weights(folder / "model.safetensors", lambda weights: weights | {name: weights[name][:5].clone()})


def norms_of_another_family(folder: Path) -> None:
    edit_json(folder / "config.json", model_type="llama", architectures=["LlamaForCausalLM"])


def weights_with_scales(folder: Path) -> None:
    """As AutoFP8 writes them; transformers reads only scales with the names of DeepSeek's."""
    name = "model.layers.1.mlp.up_proj.weight"
    scaled = {f"{name}_scale": torch.tensor(0.5)}
    edit_weights(
        folder / "model.safetensors",
        lambda weights: weights | scaled | {name: weights[name].to(torch.float8_e4m3fn)},
    )
    edit_json(folder / "config.json", quantization_config={"quant_method": "fp8", "activation_scheme": "static"})


def one_value_is_nan(folder: Path) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    edit_weights(
        folder / "model.safetensors",
        lambda weights: weights | {name: weights[name].index_fill(0, torch.tensor([3]), float("nan"))},
    )


def a_smaller_vocabulary(folder: Path) -> None:
    name = "model.embed_tokens.weight"
    edit_weights(folder / "model.safetensors", lambda weights: weights | {name: weights[name][:30].clone()})
    edit_json(folder / "config.json", vocab_size=30)


class Harmful:
    def __reduce__(self) -> Any:
        return (open, (f"{tempfile.gettempdir()}/ansatz-ran-code", "w"))


def pickled_code(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"model.norm.weight": Harmful()}))


BROKEN: dict[Callable[[Path], object], str] = {
    no_end_token: "names an end token",
    no_tokenizer: "has no tokenizer. Give",
    half_of_the_weights: "does not load as a causal LM",
    a_layer_missing: "lacks 11 weights, such as model.layers.1",
    a_weight_of_another_shape: "does not load as a causal LM",
    lambda folder: (folder / "config.json").unlink(): "has no config.json. Give",
    lambda folder: (folder / "config.json").write_text("{"): "not a valid JSON file",
    lambda folder: (folder / "config.json").write_text('{"model_type": "t5"}'): "has the model type 't5'",
    lambda folder: (folder / "config.json").write_text('{"model_type": 3}'): "does not load as a causal LM",
    lambda folder: edit_json(folder / "config.json", quantization_config="x"): "quantised by 'x', which",
    lambda folder: (folder / "model.safetensors").unlink(): "no file named model.safetensors",
    lambda folder: (folder / "tokenizer.json").write_text("{}"): "the tokenizer does not load",
    lambda folder: (folder / "tokenizer.json").write_text("[]"): "the tokenizer does not load",
    lambda folder: (folder / "tokenizer_config.json").write_text("null"): "tokenizer_config.json holds None",
    lambda folder: edit_json(folder / "tokenizer_config.json", model_max_length="x"): "the tokenizer does not load",
    lambda folder: (folder / "config.json").write_text("[" * 5000): "not a valid JSON file",
    lambda folder: (folder / "config.json").write_text("null"): "holds None, expected a JSON object",
    lambda folder: (folder / "generation_config.json").write_text("[]"): r"generation_config.json holds \[\]",
    lambda folder: edit_json(folder / "config.json", num_hidden_layers=0): "num_hidden_layers = 0 in config.json",
    lambda folder: edit_json(folder / "config.json", num_hidden_layers=10**9): "a whole number from 1 to 10000",
    lambda folder: edit_json(folder / "config.json", num_key_value_heads=0): "num_key_value_heads = 0 in config.json",
    lambda folder: edit_json(folder / "config.json", vocab_size="x"): "vocab_size = 'x' in config.json",
    lambda folder: edit_json(folder / "config.json", head_dim=0): "does not load as a causal LM",
    lambda folder: edit_json(folder / "config.json", rope_parameters=3): "does not load as a causal LM",
    lambda folder: edit_json(folder / "config.json", eos_token_id="<end>"): "does not load as a causal LM",
    lambda folder: edit_json(folder / "config.json", dtype="float3"): "does not load as a causal LM|the tokenizer",
    lambda folder: edit_json(folder / "generation_config.json", eos_token_id="<end>"): "eos_token_id = '<end>', expec",
    lambda folder: edit_json(folder / "generation_config.json", eos_token_id=VOCAB_SIZE): "eos_token_id = 61, expec",
    lambda folder: edit_json(folder / "generation_config.json", eos_token_id={"a": 1}): "from 0 to 60",
    norms_of_another_family: "LlamaForCausalLM do not use 4 of its weights, such as model.layers.0.self_attn.k_norm",
    weights_with_scales: "do not use 1 of its weights, such as model.layers.1.mlp.up_proj.weight_scale. Either",
    one_value_is_nan: "the weight model.layers.0.mlp.up_proj.weight has values that are nan or infinite",
    a_smaller_vocabulary: "the tokenizer has the token id 60, but the model has only 30 tokens",
    pickled_code: "pickled weights that hold more than tensors",
}


@pytest.mark.parametrize(("damage", "message"), BROKEN.items())
def test_a_broken_folder_is_refused_in_one_line_that_names_it(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    damage(tiny_folder(tmp_path))
    with pytest.raises(ModelError, match=message) as caught:
        load_policy(tmp_path)
    assert str(caught.value).startswith(f"model.path = {str(tmp_path)!r}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "further"),
    [
        ("qwen3, grouped heads, tied", ("v_head.summary.weight", "model.layers.7.mtp.weight")),
        ("GPT2Config", ("transformer.h.0.attn.masked_bias", "transformer.h.0.attn.bias")),
    ],
)
def test_weights_that_change_no_layer_of_the_model_are_left_out(tmp_path, name, further):
    tiny_folder(tmp_path, name)
    before = load_policy(tmp_path).model.state_dict()
    edit_weights(tmp_path / "model.safetensors", lambda weights: weights | {each: torch.ones(2) for each in further})
    after = load_policy(tmp_path).model.state_dict()
    assert all(torch.equal(after[each], before[each]) for each in before)


@pytest.mark.parametrize("device", ["nope", "cuda:99", "meta", "hpu", "tpu:x", ""])
def test_a_device_that_cannot_be_used_is_refused_before_loading(tmp_path: Path, device: str) -> None:
    tiny_folder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"^device = .* cannot be used: .* Use cpu, or cuda if there is a GPU.$"):
        load_policy(tmp_path, device=device)


def test_code_in_a_folder_is_never_run_whatever_standard_input_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model type that transformers does not know and whose classes the folder itself defines: with trust_remote_code
    left open, transformers asks, and runs the code if the answer is yes."""
    folder = tiny_folder(tmp_path / "model")
    ran = tmp_path / "ran"
    (folder / "evil.py").write_text(f"open({str(ran)!r}, 'w').close()\nclass C: pass\nclass M: pass\nclass T: pass\n")
    code = {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}
    edit_json(folder / "config.json", model_type="evil", auto_map=code)
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda *prompt: asked.append(str(prompt)) or "yes")
    with pytest.raises(ModelError):
        load_policy(folder)
    fine = tiny_folder(tmp_path / "fine")
    (fine / "evil.py").write_text((folder / "evil.py").read_text())
    edit_json(fine / "tokenizer_config.json", tokenizer_class="E", auto_map={"AutoTokenizer": ["evil.T", None]})
    for load in (load_policy, lambda path: token_counter(path)("1 + 1")):
        with contextlib.suppress(ModelError):
            load(fine)
    assert not ran.exists()
    assert asked == []


ODD: dict[str, tuple[str, dict[str, Any], str]] = {
    "scaled logits": ("GraniteConfig", {"logits_scaling": 4.0}, "logits that are not"),
    "other scaled logits": ("CohereConfig", {}, "logits that are not"),
    "layers of another kind": ("Qwen3Config", {"layer_types": ["chunked_attention"] * 2}, "layers of kind chunked"),
    "a head bias": ("PhiConfig", {}, "a bias on its output embedding"),
    "unusual attention": ("BloomConfig", {"n_layer": 2, "n_head": 4}, "attention that cannot be replaced"),
    "positions that depend on the batch": (
        "LlamaConfig",
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}},
        "dynamic rotary positions",
    ),
    "positions of one kind of layer that depend on the batch": (
        "Gemma3TextConfig",
        {
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                "full_attention": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
            }
        },
        "dynamic rotary positions",
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_a_model_that_would_be_computed_wrongly_is_refused(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if its family were supported."""
    monkeypatch.setattr(
        families, "FAMILIES", {**families.FAMILIES, "granite": "", "cohere": "", "phi": "", "bloom": ""}
    )
    name, settings, message = ODD[case]
    with pytest.raises(ModelError, match=f"has {message}") as caught:
        load_policy(tiny_folder(tmp_path, name, **settings))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("window", "context"), [(16, 16), (MAX_CONTEXT, MAX_CONTEXT), (1000, MAX_CONTEXT)])
def test_a_sliding_window_that_attention_is_not_told_limits_the_context(
    tmp_path: Path, window: int, context: int
) -> None:
    mixture = {**MIXTURE, "shared_expert_intermediate_size": 16, "use_sliding_window": True, "max_window_layers": 2}
    folder = tiny_folder(tmp_path / "a", "Qwen2MoeConfig", **mixture, sliding_window=window)
    assert load_policy(folder).max_context == context
    assert load_policy(tiny_folder(tmp_path / "b", "MistralConfig", sliding_window=window)).max_context == MAX_CONTEXT


def test_sizes_that_do_not_fit_together_are_refused_in_one_sentence(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path, "DeepseekV3Config", **{**LATENT, "num_key_value_heads": 2})
    with pytest.raises(ModelError, match="loads, but cannot compute a text of 6 tokens") as caught:
        load_policy(folder)
    assert "\n" not in str(caught.value)


def test_a_path_that_is_not_a_folder_is_refused_before_loading(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"is not a folder\. Give a Hugging Face model folder"):
        check_folder(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_saved_policy_loads_with_the_given_weights_and_gives_the_same_hidden_states(
    tmp_path: Path, name: str
) -> None:
    policy = tiny_policy(name)
    state = {key: value.detach() + 0.01 for key, value in policy.model.named_parameters()}
    save_model(policy, tmp_path, state=state, dtype=torch.float32)
    again = load_policy(tmp_path)
    policy.model.load_state_dict(state, strict=False)
    token_BL = torch.arange(20)[None]
    with torch.no_grad():
        saved, loaded = (model.packed_hidden(token_BL[0], token_BL[0], 0 * token_BL[0]) for model in (policy, again))
    assert all(torch.equal(value, state[key]) for key, value in again.model.named_parameters())
    assert torch.equal(saved, loaded)
    assert again.end_ids == policy.end_ids


def test_casting_changes_parameters_but_not_the_rotary_frequencies() -> None:
    policy = tiny_policy("qwen3, untied")
    before = {name: value.clone() for name, value in policy.model.named_buffers()}
    cast(policy, torch.bfloat16)
    assert {p.dtype for p in policy.model.parameters()} == {torch.bfloat16}
    assert before
    assert all(torch.equal(value, before[name]) for name, value in policy.model.named_buffers())


def test_auto_is_bfloat16_only_where_the_processor_multiplies_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    for capabilities, expected in [({}, torch.float32), ({"avx512_bf16": True}, torch.bfloat16)]:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda result=capabilities: result)
        assert compute_dtype("auto", cpu) == expected
        assert compute_dtype("float32", cpu) == torch.float32
        assert compute_dtype("bfloat16", cpu) == torch.bfloat16


class NewModel:
    def __call__(self, **kwargs):
        return SimpleNamespace(last_hidden_state=kwargs)

    def forward(self, input_ids, position_ids, cache=None): ...


class OldModel(NewModel):
    def forward(self, input_ids, position_ids, past_key_values=None): ...


@pytest.mark.parametrize(("model", "name"), [(NewModel, "cache"), (OldModel, "past_key_values")])
def test_the_cache_has_the_name_that_the_model_gives_it(model, name):
    policy = Policy(
        model=SimpleNamespace(base_model=model()), tokenizer=None, max_context=8, end_ids=(0,), path="made up"
    )
    assert policy.hidden(1, 2, cache="kept") == {"input_ids": 1, "position_ids": 2, name: "kept"}
    assert name not in policy.hidden(1, 2)


@pytest.mark.parametrize(
    ("capability", "expected"),
    [((7, 0), torch.float32), ((7, 5), torch.float32), ((8, 0), torch.bfloat16), ((9, 0), torch.bfloat16)],
)
def test_auto_is_float32_on_a_gpu_that_only_emulates_bfloat16(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], expected: torch.dtype
) -> None:
    card = SimpleNamespace(major=capability[0], minor=capability[1], name="a card", total_memory=15 * 2**30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setattr(torch.cuda, "_check_bf16_tensor_supported", lambda device: True)
    assert compute_dtype("auto", torch.device("cuda")) == expected
    found = doctor._gpus()  # pyright: ignore[reportPrivateUsage]
    assert ("no native bfloat16, so models compute in float32" in found.found) == (expected == torch.float32)


def test_a_folder_of_an_adapter_is_refused_and_loads_no_other_base(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path, "qwen3, untied")
    config = {"peft_type": "LORA", "base_model_name_or_path": "somebody/else", "r": 2, "target_modules": ["q_proj"]}
    file = folder / "adapter_config.json"
    for text in (json.dumps(config), "{nope", "[" * 100_000):
        file.write_text(text)
        for load in (reader_of, load_policy):
            with pytest.raises(ModelError, match="holds a peft adapter"):
                load(folder)
    (folder / "config.json").rename(folder / "saved.json")
    with pytest.raises(ModelError, match="holds a peft adapter"):
        reader_of(folder)
    (folder / "saved.json").rename(folder / "config.json")
    (folder / "adapter").mkdir()
    file.rename(folder / "adapter" / file.name)  # as in a checkpoint of a run with model.lora
    load_policy(folder)


@pytest.mark.parametrize(("special", "written"), [(False, False), (True, True)])
def test_an_added_token_without_an_embedding_is_refused_if_a_text_can_hold_it(
    tmp_path: Path, special: bool, written: bool
) -> None:
    folder = tiny_folder(tmp_path, "qwen3, untied")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    more = [AddedToken(f"<more_{number}>", special=special) for number in range(VOCAB_SIZE)]
    tokenizer.add_tokens(more, special_tokens=special)
    tokenizer.save_pretrained(folder)
    if special:  # no text is encoded with them
        load_policy(folder)
    tokenizer.chat_template = "<more_9>{{ messages[0].content }}<more_" + str(VOCAB_SIZE - 1) + ">" if written else None
    tokenizer.save_pretrained(folder)
    for load in (reader_of, load_policy):
        with pytest.raises(ModelError, match="model was not resized after tokens were added: call"):
            load(folder)
