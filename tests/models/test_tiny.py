from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ansatz.data.word_problems import word_problems
from ansatz.errors import ConfigError
from ansatz.models.tiny import build_tiny_model
from ansatz.prompts.render import render, render_demonstration

ROOT = Path(__file__).parents[2]
PROBLEMS = word_problems(split="train", count=1500)
TEXTS = [f"Question: {p.question}\nAnswer:\n{p.solution}" for p in PROBLEMS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    build_tiny_model(path, texts=TEXTS)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


def digest(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def test_the_folder_loads_as_any_hugging_face_model(folder: Path, tokenizer: Any) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.config.model_type == "qwen3"
    assert model.config.tie_word_embeddings
    assert 1_000_000 <= model.num_parameters() <= 4_000_000
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.config.eos_token_id == model.generation_config.eos_token_id == tokenizer.eos_token_id == 1
    assert model.config.pad_token_id == tokenizer.pad_token_id == 0
    assert model.config.vocab_size == len(tokenizer) <= 1024
    logits = model(torch.tensor([tokenizer.encode(TEXTS[0])])).logits
    assert logits.isfinite().all()


def test_an_untrained_model_is_near_uniform_over_its_tokens(folder: Path, tokenizer: Any) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([tokenizer.encode(TEXTS[0])])
    loss = model(ids, labels=ids).loss
    assert abs(loss.item() - torch.tensor(float(len(tokenizer))).log().item()) < 0.5


def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_weights(folder: Path, tmp_path: Path) -> None:
    build_tiny_model(tmp_path / "same", texts=TEXTS)
    build_tiny_model(tmp_path / "other", texts=TEXTS, seed=1)
    assert digest(tmp_path / "same") == digest(folder)
    differing = {name for name, value in digest(tmp_path / "other").items() if value != digest(folder)[name]}
    assert differing == {"model.safetensors"}


@pytest.mark.slow
def test_another_process_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from tests.models.test_tiny import TEXTS; from ansatz.models.tiny import build_tiny_model; "
        "build_tiny_model(sys.argv[1], texts=TEXTS)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "again")], check=True, cwd=ROOT)
    assert digest(tmp_path / "again") == digest(folder)


def test_the_global_random_state_is_not_changed(tmp_path: Path) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    build_tiny_model(tmp_path, texts=TEXTS[:20], vocab_size=300, num_layers=1, hidden_size=16, intermediate_size=16)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("text", [TEXTS[0], "Ünïcode €5 \\frac{1}{2}\n\n\tx  y", "12345 +6.7", "<|end", ""])
def test_any_text_survives_encoding_and_decoding(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_digits_are_single_tokens(tokenizer: Any) -> None:
    pieces = [tokenizer.decode([i]) for i in tokenizer.encode("17*5=85\n\\boxed{85}")]
    assert pieces == ["1", "7", "*", "5", "=", "8", "5", "\n", "\\boxed{", "8", "5", "}"]


def test_special_tokens_are_single_and_skipped_on_request(tokenizer: Any) -> None:
    assert tokenizer.encode("<|pad|><|end|>") == [0, 1]
    assert tokenizer.decode([*tokenizer.encode("5"), 1], skip_special_tokens=True) == "5"


def test_prompts_and_demonstrations_need_few_tokens(tokenizer: Any) -> None:
    made = [render_demonstration(p, "tiny", tokenizer) for p in PROBLEMS[:500]]
    assert 40 <= sum(len(d.prompt.token_ids) for d in made) / len(made) <= 80
    assert 20 <= sum(len(d.response_ids) for d in made) / len(made) <= 60
    longest_step, boxed_and_end = len("120+80=200\n") + 1, 6
    assert all(len(d.response_ids) <= longest_step * int(d.prompt.problem.level) + boxed_and_end for d in made)


def test_the_chat_template_gives_the_tiny_format(tokenizer: Any) -> None:
    text = render(PROBLEMS[0], "chat", tokenizer).text
    assert text.startswith(f"Question: {PROBLEMS[0].question}\n")
    assert text.endswith("\nAnswer:\n")
    turns = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    assert tokenizer.apply_chat_template(turns, tokenize=False) == "Question: 1+1?\nAnswer:\n2<|end|>"


def test_sizes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="vocab_size = 100"):
        build_tiny_model(tmp_path, texts=TEXTS, vocab_size=100)
    with pytest.raises(ConfigError, match="num_heads = 4 is not a multiple of num_kv_heads = 3"):
        build_tiny_model(tmp_path, texts=TEXTS, num_kv_heads=3)
