"""GGUF files as models. Each is written by the package gguf, with random weights at toy size."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tiny_models import tiny_folder

from ansatz import gguf_file
from ansatz.errors import MissingExtraError, MissingModelError, ModelError
from ansatz.hub import hub_name, local_folder, model_folder, pinned
from ansatz.models.known_models import model_shape
from ansatz.models.load import load_policy, load_tokenizer
from tools.real_models import SOURCES, gguf_path

gguf: Any = pytest.importorskip("gguf", reason="needs the package gguf: the extra gguf")

TEMPLATE = "{% for turn in messages %}{{ turn['content'] }}<|end|>{% endfor %}"
TOKENS = ["<|pad|>", "<|end|>", "\u0120", *"0123456789+-=?abcdefghijklmnopqrstuvwxyzABCDEFGHIJ", "ab"]
SIZES = {"vocab_size": len(TOKENS), "intermediate_size": 64, "num_key_value_heads": 2}
METADATA = {"context_length": 128, "embedding_length": 32, "block_count": 2, "feed_forward_length": 64}
METADATA |= {"attention.head_count": 4, "attention.head_count_kv": 2}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path / "cache" / "ansatz" / "gguf"
    gguf_file._folder.cache_clear()


def write_gguf(
    file: Path,
    *,
    tokens: list[str] = TOKENS,
    architecture: str = "qwen2",
    config: str = "Qwen2Config",
    kind: str = "gpt2",
    pre: str = "qwen2",
    merge: str = "a b",
    scaling: str | None = None,
    split: int = 1,
    **changes: Any,
) -> dict[str, torch.Tensor]:
    """Write a model whose matrices are rounded to Q4_1, and return the rounded weights under transformers' names."""
    folder = tiny_folder(file.parent / f"{file.stem}-original", config, **SIZES)
    writer = gguf.GGUFWriter(str(file), architecture)
    for key, value in {**METADATA, **changes}.items():
        writer.add_uint32(f"{architecture}.{key}", value)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e4)
    if scaling == "rope_freqs":
        writer.add_tensor("rope_freqs.weight", np.ones(4, dtype=np.float32))
    elif scaling is not None:
        writer.add_string(f"{architecture}.rope.scaling.type", scaling)
    writer.add_uint16("split.count", split)
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, *[1] * (len(tokens) - 2)])
    writer.add_token_merges([merge])
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(0)
    writer.add_chat_template(TEMPLATE)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, 2)
    rounded: dict[str, torch.Tensor] = {}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy()
        stored_as = gguf.GGMLQuantizationType.Q4_1 if values.ndim == 2 else gguf.GGMLQuantizationType.F32
        blocks = gguf.quantize(values, stored_as)
        rounded[name] = torch.from_numpy(np.copy(gguf.dequantize(blocks, stored_as)))
        short, _, ending = name.rpartition(".")
        writer.add_tensor(f"{names.get_name(short)}.{ending}", blocks, raw_dtype=stored_as)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return rounded


def test_a_gguf_file_has_the_rounded_weights_the_tokenizer_and_the_template_of_the_file(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tiny model.Q4_1.gguf"
    rounded = write_gguf(file)
    policy = load_policy(file)
    assert Path(policy.path).parent == cache
    weights = dict(policy.model.named_parameters())
    assert weights.keys() == rounded.keys()
    assert all(torch.equal(weights[name], rounded[name]) for name in rounded)
    assert policy.tokenizer.encode("ab + 3") == [TOKENS.index(each) for each in ("ab", "\u0120", "+", "\u0120", "3")]
    assert policy.tokenizer.chat_template == TEMPLATE
    assert policy.end_ids == (1,)
    assert policy.max_context == 128
    said = capsys.readouterr()
    assert said.out == ""
    assert "tiny model.Q4_1.gguf" in said.err
    assert "in Q4_1" in said.err
    assert "These are the rounded values" in said.err
    assert "tokenizer and a chat template came with it. Its folder" in said.err


def test_a_tokenizer_that_the_folder_cannot_keep_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_gguf(tmp_path / "tiny.gguf", tokens=[*TOKENS[:-1], "12"], merge="1 2", pre="default")
    load_tokenizer(local_folder(tmp_path / "tiny.gguf"))
    assert "splits text by other rules than the file names" in capsys.readouterr().err


LINES = [*TOKENS[:-2], "\u010a", "\u010a\u010a"]


@pytest.mark.parametrize(
    ("rule", "tokens", "said"),
    [
        (
            "smollm",
            ["\u010a\u010a", "1"],
            None,
        ),  # as in the tokenizer.json of SmolLM2, which splits off each digit first
        ("gpt-2", ["\u010a", "\u010a", "1"], None),
        ("deepseek-llm", ["\u010a", "\u010a", "1"], "transformers does not know the file's rule 'deepseek-llm'"),
    ],
)
def test_text_is_split_by_the_rule_that_the_file_names_or_a_note_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rule: str, tokens: list[str], said: str | None
) -> None:
    file = tmp_path / "tiny.gguf"
    write_gguf(file, architecture="llama", config="LlamaConfig", tokens=LINES, merge="\u010a \u010a", pre=rule)
    tokenizer = load_policy(file).tokenizer
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("\n\n1")) == tokens
    notes = capsys.readouterr().err
    assert said in notes if said else "Text is split as" not in notes


def completed(file: Path) -> Any:
    """The config of a file, with what transformers does not read of its attention."""
    config = transformers.AutoConfig.from_pretrained(file.parent, gguf_file=file.name)
    gguf_file._set_attention(config, gguf.GGUFReader(str(file)))
    return config


@pytest.mark.parametrize(("window", "expected"), [(48, 48), (128, None)], ids=["shorter", "as long as the context"])
def test_the_sliding_window_of_a_phi_3_is_kept(tmp_path: Path, window: int, expected: int | None) -> None:
    write_gguf(tmp_path / "tiny.gguf", architecture="phi3", **{"attention.sliding_window": window})
    assert completed(tmp_path / "tiny.gguf").sliding_window == expected


@pytest.mark.parametrize(("layers", "expected"), [(2, 16), (46, 8)])
def test_the_scale_of_gemma_2_is_that_of_llama_cpp(tmp_path: Path, layers: int, expected: int) -> None:
    """The head size, and with the 46 layers of Gemma-2-27B hidden size / heads, which is 32 / 4 here."""
    sizes = {"block_count": layers, "attention.key_length": 16}
    write_gguf(tmp_path / "tiny.gguf", architecture="gemma2", **sizes)
    assert completed(tmp_path / "tiny.gguf").query_pre_attn_scalar == expected


def test_a_file_is_read_once_and_a_changed_one_again(tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "tiny.gguf"
    write_gguf(file)
    folder = local_folder(file)
    (folder / "mark").touch()
    gguf_file._folder.cache_clear()  # as in the next process
    assert (local_folder(str(file)) / "mark").exists()
    assert pinned(str(file)) == str(folder)
    assert model_shape(file).num_layers == 2
    write_gguf(file, context_length=64)
    assert local_folder(file) != folder
    assert sorted(cache.iterdir()) == sorted([folder, local_folder(file)])


def test_only_the_file_counts_and_not_what_lies_next_to_it(tmp_path: Path) -> None:
    file = tmp_path / "blob"  # stores of models name files by their digests, without an ending
    write_gguf(file)
    for name in ("config.json", "tokenizer_config.json", "generation_config.json", "tokenizer.json"):
        (tmp_path / name).write_text('{"auto_map": {"AutoTokenizer": ["own.py--Own", null]}}')
    assert load_policy(file).tokenizer.chat_template == TEMPLATE


def cut(file: Path) -> None:
    write_gguf(file)
    file.write_bytes(file.read_bytes()[:-100])


def cut_in_its_header(file: Path) -> None:
    write_gguf(file)
    file.write_bytes(file.read_bytes()[:200])


def announce_more(file: Path) -> None:
    write_gguf(file)
    data = bytearray(file.read_bytes())
    data[8:24] = b"\xff" * 15 + b"\x0f"
    file.write_bytes(data)


DAMAGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda file: file.touch(), "only 0 bytes"),
    "another format": (lambda file: file.write_bytes(b"PK" * 100), "not a GGUF file"),
    "cut": (cut, "truncated"),
    "cut in its header": (cut_in_its_header, "cannot be read"),
    "counts beyond the file": (announce_more, "cannot be read"),
    "an unknown architecture": (lambda file: write_gguf(file, architecture="nosuch"), "nosuch"),
    "a refused family": (lambda file: write_gguf(file, architecture="starcoder2"), "has the model type 'starcoder2', "),
    "an unknown tokenizer": (lambda file: write_gguf(file, kind="nosuch"), "nosuch"),
    "too many layers": (lambda file: write_gguf(file, block_count=9999), "9999 layers"),
    "sizes beyond the weights": (lambda file: write_gguf(file, feed_forward_length=1 << 30), "of its sizes has"),
    "biases of a Llama": (lambda file: write_gguf(file, architecture="llama"), "transformers' LlamaForCausalLM of its"),
    "a layer that is missing": (lambda file: write_gguf(file, block_count=3, feed_forward_length=1), "cannot be read"),
    "no heads": (lambda file: write_gguf(file, **{"attention.head_count": 0}), "cannot be read"),
    "scaled positions": (lambda file: write_gguf(file, scaling="linear"), "rope.scaling.type = linear"),
    "scaled frequencies": (lambda file: write_gguf(file, scaling="rope_freqs"), "its positions .rope_freqs.weight"),
    "a window": (lambda file: write_gguf(file, **{"attention.sliding_window": 48}), "a sliding window of 48 tokens"),
    "a part": (lambda file: write_gguf(file, split=3), "it is one of the 3 parts of a file; join them with llama-gguf"),
    "an endless token": (lambda file: write_gguf(file, tokens=[*TOKENS[:-1], "a" * 5000]), "5000 characters"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_gguf_file_that_cannot_be_read_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, cache: Path, case: str
) -> None:
    file = tmp_path / "bad.gguf"
    write, expected = DAMAGED[case]
    write(file)
    with pytest.raises(ModelError, match=expected) as caught:
        local_folder(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(cache.iterdir()) == []


def test_a_conversion_that_is_interrupted_leaves_no_model(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tiny.gguf"
    write_gguf(file)

    def interrupt(*_: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(gguf_file, "_note", interrupt)
        with pytest.raises(KeyboardInterrupt):
            local_folder(file)
    assert list(cache.iterdir()) == []
    assert load_policy(file).num_parameters > 0


def test_without_the_extra_the_sentence_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tiny.gguf"
    write_gguf(file)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtraError, match=r"import of gguf .*pip install .*gguf>="):
        local_folder(file)


def test_a_missing_gguf_file_is_not_looked_for_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert hub_name("models/tiny.gguf") is None
    with pytest.raises(MissingModelError, match=r"'models/tiny.gguf' is not a file\..*a \.gguf file"):
        model_folder("models/tiny.gguf")
    write_gguf(tmp_path / "tiny.gguf")
    with pytest.raises(ModelError, match=r"has no config.json; give its file tiny\.gguf"):
        model_folder(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_a_real_model_gives_the_logits_that_transformers_computes_from_its_file(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # real models lie in the user's own cache
    file = gguf_path(name)
    if not file.is_file():
        pytest.skip("needs `make real-models`")
    policy = load_policy(file)
    source = {"gguf_file": file.name, "dtype": torch.float32, "attn_implementation": "eager"}
    expected = transformers.AutoModelForCausalLM.from_pretrained(file.parent, **source)
    stored = transformers.AutoModelForCausalLM.from_pretrained(policy.path, attn_implementation="eager")
    tokens = torch.tensor([policy.tokenizer.encode("What is 7 + 5? It is")])
    with torch.no_grad():
        assert torch.equal(stored(tokens).logits, expected(tokens).logits)
