"""The families of models that Ansatz supports and some that it refuses, each with the settings of a toy model.

tests/models/test_families.py, tests/e2e/test_family_runs.py and docs/models.md are made from this table.
"""

from __future__ import annotations

import copy
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD_ID, END_ID, VOCAB_SIZE, MAX_CONTEXT = 0, 1, 61, 128

SIZES: dict[str, Any] = {
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
"""Of a toy model, unless its settings say otherwise."""
LEFT_OUT = "left out"
"""The value of a size that a config class does not take."""
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [2.0, 3.0, 4.0, 5.0],
    "original_max_position_embeddings": 64,
}
MIXTURE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
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
SOFT_CAPS = {"query_pre_attn_scalar": 8, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
GPT2_SIZES = {"n_layer": 2, "n_head": 4, "n_embd": 32, "n_positions": MAX_CONTEXT}
OSS_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family of models. config: transformers' config class, with the settings of its toy model.

    refused: a word of the sentence that refuses it; empty if it is supported. note: what a user has to know.
    """

    name: str
    config: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    refused: str = ""
    note: str = ""

    @property
    def model_type(self) -> str:
        return getattr(transformers, self.config).model_type


FAMILIES = (
    Family(name="Llama 2", config="LlamaConfig", settings={"num_key_value_heads": 4}),
    Family(name="Llama 3", config="LlamaConfig", settings={"rope_parameters": LLAMA3_ROPE}),
    Family(name="Mistral", config="MistralConfig", settings={"sliding_window": 12}),
    Family(name="Qwen2, Qwen2.5, R1-distill", config="Qwen2Config"),
    Family(
        name="Qwen2 mixture of experts",
        config="Qwen2MoeConfig",
        settings={**MIXTURE, "shared_expert_intermediate_size": 16},
    ),
    Family(name="Qwen3", config="Qwen3Config"),
    Family(name="Qwen3 mixture of experts", config="Qwen3MoeConfig", settings=MIXTURE),
    Family(name="Gemma", config="GemmaConfig", settings={"num_key_value_heads": 1}),
    Family(name="Gemma 2", config="Gemma2Config", settings={"sliding_window": 12, **SOFT_CAPS}),
    Family(name="Gemma 3 (text)", config="Gemma3TextConfig", settings={"sliding_window": 12}),
    Family(name="Phi-3, Phi-4", config="Phi3Config", settings={"sliding_window": 12}),
    Family(
        name="Phi-3, Phi-4, longrope",
        config="Phi3Config",
        settings={"sliding_window": None, "original_max_position_embeddings": 64, "rope_parameters": LONGROPE},
        note="context at most that before longrope",
    ),
    Family(name="OLMo 2", config="Olmo2Config"),
    Family(name="SmolLM 3", config="SmolLM3Config"),
    Family(name="GPT-2", config="GPT2Config", settings=GPT2_SIZES),
    Family(name="Pythia (GPT-NeoX)", config="GPTNeoXConfig", settings={"tie_word_embeddings": False}),
    Family(
        name="gpt-oss",
        config="GptOssConfig",
        settings={**OSS_EXPERTS, "sliding_window": 12},
        note="MXFP4 weights are converted when loaded",
    ),
    Family(name="DeepSeek-V2", config="DeepseekV2Config", settings=LATENT),
    Family(name="DeepSeek-V3, R1", config="DeepseekV3Config", settings=LATENT),
    Family(name="Bloom", config="BloomConfig", settings={"n_layer": 2, "n_head": 4}, refused="'bloom'"),
    Family(name="Cohere", config="CohereConfig", refused="'cohere'"),
    Family(name="Falcon", config="FalconConfig", settings={"head_dim": LEFT_OUT}, refused="'falcon'"),
    Family(name="Falcon-H1", config="FalconH1Config", refused="'falcon_h1'"),
    Family(name="Granite", config="GraniteConfig", refused="'granite'"),
    Family(name="Llama 4", config="Llama4TextConfig", refused="'llama4_text'"),
    Family(name="Mamba", config="MambaConfig", refused="'mamba'"),
    Family(
        name="Qwen3-Next",
        config="Qwen3NextConfig",
        settings={**MIXTURE, "num_hidden_layers": 4},
        refused="'qwen3_next'",
    ),
    Family(name="T5", config="T5Config", settings={"d_model": 32, "d_kv": 8, "d_ff": 48}, refused="'t5'"),
)
SUPPORTED = tuple(family for family in FAMILIES if not family.refused)


def build_folder(folder: Path, config: str, *, seed: int = 0, letters: bool = False, **settings: Any) -> Path:
    """A Hugging Face folder with random weights and a tokenizer, of words or of letters. config: a config class."""
    kind = transformers.AutoModelForSeq2SeqLM if config == "T5Config" else transformers.AutoModelForCausalLM
    sizes = {key: value for key, value in {**SIZES, **settings}.items() if value is not LEFT_OUT}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = kind.from_config(getattr(transformers, config)(**copy.deepcopy(sizes)))  # it adds to mappings in them
        for parameter in model.parameters():  # also biases and norms, which start as zeros and ones
            parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    (letter_tokenizer() if letters else tokenizer()).save_pretrained(folder)
    return folder


def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer in which token n is the word "tn"."""
    words = {"<|pad|>": PAD_ID, "<|end|>": END_ID, **{f"t{n}": n for n in range(2, VOCAB_SIZE)}}
    backend = Tokenizer(models.WordLevel(words, unk_token="<|pad|>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", pad_token="<|pad|>")


def letter_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of single characters, for texts. Other characters are left out.

    For Qwen2, transformers builds a tokenizer of its own kind from the vocabulary, which finds no words in texts.
    """
    letters = "\u0120" + string.digits + string.ascii_letters  # the first stands for a space
    vocabulary = {"<|pad|>": PAD_ID, "<|end|>": END_ID}
    vocabulary |= {letter: number for number, letter in enumerate(letters[: VOCAB_SIZE - 2], start=2)}
    backend = Tokenizer(models.BPE(vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", pad_token="<|pad|>")
