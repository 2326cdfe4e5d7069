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
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ansatz.models.load import Policy, cast, load_policy
from ansatz.types import Problem, Prompt

PAD_ID, END_ID, VOCAB_SIZE, MAX_CONTEXT = 0, 1, 61, 128

_SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": MAX_CONTEXT,
    "initializer_range": 0.3,  # makes next-token distributions far from uniform
    "eos_token_id": END_ID,
    "pad_token_id": PAD_ID,
    "bos_token_id": None,
    "tie_word_embeddings": True,
}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
}
ARCHITECTURES: dict[str, tuple[Any, dict[str, Any]]] = {
    "qwen3, grouped heads, tied": (transformers.Qwen3Config, {}),
    "qwen3, untied": (transformers.Qwen3Config, {"tie_word_embeddings": False}),
    "llama, one key head per query head, untied": (
        transformers.LlamaConfig,
        {"num_key_value_heads": 4, "tie_word_embeddings": False},
    ),
    "qwen2, biases, untied": (transformers.Qwen2Config, {"tie_word_embeddings": False}),
    "gemma, one key head, scaled embeddings": (transformers.GemmaConfig, {"num_key_value_heads": 1}),
    "qwen3 mixture of experts": (
        transformers.Qwen3MoeConfig,
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    ),
    "mistral, sliding window": (transformers.MistralConfig, {"sliding_window": 7}),
    "gemma 2, soft caps, sliding window": (
        transformers.Gemma2Config,
        {
            "sliding_window": 7,
            "query_pre_attn_scalar": 8,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gpt-oss, sinks, sliding window, experts": (
        transformers.GptOssConfig,
        {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 7},
    ),
    "deepseek v3, latents, experts in groups": (transformers.DeepseekV3Config, LATENT),
}


def tiny_folder(folder: Path, name: str = "qwen3, grouped heads, tied", *, seed: int = 0, **settings: Any) -> Path:
    """A Hugging Face folder with random weights. name: a key of ARCHITECTURES, or a transformers config class."""
    config_class, sizes = ARCHITECTURES[name] if name in ARCHITECTURES else (getattr(transformers, name), {})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config_class(**{**_SIZES, **sizes, **settings}))
        for parameter in model.parameters():  # also biases and norms, which start as zeros and ones
            parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def tiny_policy(
    name: str = "qwen3, grouped heads, tied", *, seed: int = 0, dtype: torch.dtype = torch.float32
) -> Policy:
    """A new policy on each call, loaded from a `tiny_folder`."""
    loaded = _loaded(name, seed)
    policy = dataclasses.replace(loaded, model=copy.deepcopy(loaded.model))
    cast(policy, dtype)
    return policy


@functools.cache
def _loaded(name: str, seed: int) -> Policy:
    with tempfile.TemporaryDirectory() as folder:
        return load_policy(tiny_folder(Path(folder), name, seed=seed))


def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer in which token n is the word "tn"."""
    words = {"<|pad|>": PAD_ID, "<|end|>": END_ID, **{f"t{n}": n for n in range(2, VOCAB_SIZE)}}
    backend = Tokenizer(models.WordLevel(words, unk_token="<|pad|>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", pad_token="<|pad|>")


def prompt(*token_ids: int, name: str = "p") -> Prompt:
    problem = Problem(id=name, question="?", answer="5", source="test", split="train")
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
    mask_T: torch.Tensor
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
