"""Tiny policies of several architectures, prompts, and other helpers for tests of models, rollout and train."""

from __future__ import annotations

import copy
import dataclasses
import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ansatz.models.load import Policy, cast, load_policy
from ansatz.types import Problem, Prompt
from tools.families import LATENT, MIXTURE, OSS_EXPERTS, SOFT_CAPS, VOCAB_SIZE, build_folder

ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3, grouped heads, tied": ("Qwen3Config", {}),
    "qwen3, untied": ("Qwen3Config", {"tie_word_embeddings": False}),
    "llama, one key head per query head, untied": (
        "LlamaConfig",
        {"num_key_value_heads": 4, "tie_word_embeddings": False},
    ),
    "qwen2, biases, untied": ("Qwen2Config", {"tie_word_embeddings": False}),
    "gemma, one key head, scaled embeddings": ("GemmaConfig", {"num_key_value_heads": 1}),
    "qwen3 mixture of experts": ("Qwen3MoeConfig", MIXTURE),
    "mistral, sliding window": ("MistralConfig", {"sliding_window": 7}),
    "gemma 2, soft caps, sliding window": ("Gemma2Config", {"sliding_window": 7, **SOFT_CAPS}),
    "gpt-oss, sinks, sliding window, experts": ("GptOssConfig", {**OSS_EXPERTS, "sliding_window": 7}),
    "deepseek v3, latents, experts in groups": ("DeepseekV3Config", LATENT),
}
"""transformers' config class and the settings of a toy model, by what is special about it."""


def tiny_folder(folder: Path, name: str = "qwen3, grouped heads, tied", *, seed: int = 0, **settings: Any) -> Path:
    """A Hugging Face folder with random weights. name: a key of ARCHITECTURES, or a transformers config class."""
    config, sizes = ARCHITECTURES.get(name, (name, {}))
    return build_folder(folder, config, seed=seed, **{**sizes, **settings})


def tiny_policy(
    name: str = "qwen3, grouped heads, tied",
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: str | None = None,
) -> Policy:
    """A new policy on each call, loaded from a `tiny_folder`. device: None: a GPU if there is one."""
    loaded = _loaded(name, seed, device)
    policy = dataclasses.replace(loaded, model=copy.deepcopy(loaded.model))
    cast(policy, dtype)
    return policy


@functools.cache
def _loaded(name: str, seed: int, device: str | None) -> Policy:
    with tempfile.TemporaryDirectory() as folder:
        return load_policy(tiny_folder(Path(folder), name, seed=seed), device=device)


def prompt(*token_ids: int, name: str = "p") -> Prompt:
    problem = Problem(id=name, question="?", answers=("5",), source="test", split="train")
    return Prompt(problem=problem, text=" ".join(f"t{n}" for n in token_ids), token_ids=token_ids)


def some_prompts(count: int, *, longest: int = 24, seed: int = 0) -> list[Prompt]:
    """Prompts p0, p1, ... with 1 to `longest` tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
    return [
        prompt(*torch.randint(2, VOCAB_SIZE, (length,), generator=generator).tolist(), name=f"p{index}")
        for index, length in enumerate(lengths)
    ]


@dataclasses.dataclass(frozen=True)
class FlatTokens:
    """`models.logps.PackedTokens` for tests."""

    token_T: torch.Tensor
    position_T: torch.Tensor
    segment_T: torch.Tensor
    sampled_mask_T: torch.Tensor
    prompt_id_T: torch.Tensor | None = None
    num_candidates_T: torch.Tensor | None = None
    no_eos_T: torch.Tensor | None = None


def packed(sequences: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(token_T, position_T, segment_T) of concatenated sequences."""
    return (
        torch.tensor([token for sequence in sequences for token in sequence]),
        torch.tensor([position for sequence in sequences for position in range(len(sequence))]),
        torch.tensor([segment for segment, sequence in enumerate(sequences) for _ in sequence]),
    )


def some_sequences(*lengths: int, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(2, VOCAB_SIZE, (length,), generator=generator).tolist() for length in lengths]


def tiny_token_classifier(folder: Path) -> str:
    """The folder of a process reward model with random weights and a tokenizer of bytes."""
    from transformers import AutoModelForTokenClassification

    from ansatz.models.tiny import build_tiny_model

    build_tiny_model(folder, texts=["12+3=15"], hidden_size=16, num_layers=1, num_heads=1, num_kv_heads=1)
    torch.manual_seed(0)
    AutoModelForTokenClassification.from_pretrained(folder, num_labels=1).save_pretrained(folder)
    return str(folder)
