"""Shapes within the supported families: sampler and training give transformers' log-probs, or the model is refused.

Texts are longer than every sliding window here, and shorter than the original context of every scaled rotary position
only where that is the family's limit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_models import tiny_folder

from ansatz.errors import ModelError
from ansatz.models.load import load_policy
from tools.families import GPT2_SIZES, LATENT, LLAMA3_ROPE, LONGROPE, MAX_CONTEXT, MIXTURE, OSS_EXPERTS, SOFT_CAPS
from tools.family_runs import LOGP_TOLERANCE, logp_gap

LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
YARN_MSCALE = {**YARN, "mscale": 0.7, "mscale_all_dim": 1.0, "beta_fast": 16.0, "beta_slow": 2.0}
PLAIN = {"rope_type": "default", "rope_theta": 1e4}
ONE_KEY_HEAD = {"num_key_value_heads": 1}
UNTIED = {"tie_word_embeddings": False}
SHARED = {**MIXTURE, "shared_expert_intermediate_size": 16}
ALTERNATING = {"layer_types": ["sliding_attention", "full_attention"], "use_sliding_window": True, "sliding_window": 7}
BIASED = {"attention_bias": True}

SHAPES: list[tuple[str, dict[str, Any]]] = [
    ("LlamaConfig", UNTIED),
    ("LlamaConfig", ONE_KEY_HEAD),
    ("LlamaConfig", {**BIASED, "mlp_bias": True}),
    ("LlamaConfig", {"head_dim": 16}),
    ("LlamaConfig", {"rope_parameters": LINEAR}),
    ("LlamaConfig", {"rope_parameters": YARN}),
    ("LlamaConfig", {"rope_parameters": {**LLAMA3_ROPE, "original_max_position_embeddings": 16}}),
    ("LlamaConfig", {"rope_parameters": {**YARN, "attention_factor": 1.3, "truncate": False}}),
    ("MistralConfig", {"sliding_window": None, **UNTIED}),
    ("MistralConfig", {"sliding_window": 1}),
    ("MistralConfig", {"sliding_window": 7, "head_dim": 16, **ONE_KEY_HEAD}),
    ("MistralConfig", {"sliding_window": None, "rope_parameters": YARN}),
    ("Qwen2Config", UNTIED),
    ("Qwen2Config", {**ALTERNATING, **ONE_KEY_HEAD}),
    ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}),
    ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 0}),
    ("Qwen2Config", {"rope_parameters": YARN}),
    ("Qwen2MoeConfig", {**SHARED, "norm_topk_prob": True, **UNTIED}),
    ("Qwen2MoeConfig", {**SHARED, "decoder_sparse_step": 2, "qkv_bias": False}),
    ("Qwen2MoeConfig", {**SHARED, "mlp_only_layers": [0], **ONE_KEY_HEAD}),
    ("Qwen3Config", {**UNTIED, **ONE_KEY_HEAD}),
    ("Qwen3Config", BIASED),
    ("Qwen3Config", ALTERNATING),
    ("Qwen3Config", {"rope_parameters": YARN, "head_dim": 16}),
    ("Qwen3MoeConfig", {**MIXTURE, "norm_topk_prob": True, **UNTIED}),
    ("Qwen3MoeConfig", {**MIXTURE, "mlp_only_layers": [1], **BIASED}),
    ("Qwen3MoeConfig", {**MIXTURE, "use_sliding_window": True, "sliding_window": 7}),
    ("Qwen3MoeConfig", {**MIXTURE, "decoder_sparse_step": 2, **ONE_KEY_HEAD}),
    ("GemmaConfig", {"head_dim": 16, **BIASED}),
    ("Gemma2Config", {"sliding_window": 5, **SOFT_CAPS, **ONE_KEY_HEAD}),
    ("Gemma2Config", {"sliding_window": 5, "attn_logit_softcapping": None, "final_logit_softcapping": None}),
    ("Gemma2Config", {"sliding_window": 5, "attn_logit_softcapping": None, "final_logit_softcapping": 3.0, **BIASED}),
    ("Gemma2Config", {"sliding_window": 5, "attn_logit_softcapping": 2.0, "final_logit_softcapping": None}),
    ("Gemma3TextConfig", {"sliding_window": 7, "layer_types": ["sliding_attention", "full_attention"]}),
    ("Gemma3TextConfig", {"sliding_window": 7, "layer_types": ["full_attention"] * 2, **ONE_KEY_HEAD}),
    ("Gemma3TextConfig", {"sliding_window": 7, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}),
    (
        "Gemma3TextConfig",
        {
            "sliding_window": 7,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {"sliding_attention": PLAIN, "full_attention": {**LINEAR, "rope_theta": 1e6}},
        },
    ),
    ("Phi3Config", {"sliding_window": 7, **UNTIED}),
    ("Phi3Config", {"sliding_window": None, **ONE_KEY_HEAD}),
    ("Phi3Config", {"sliding_window": None, "rope_parameters": {**PLAIN, "partial_rotary_factor": 0.5}}),
    ("Phi3Config", {"sliding_window": None, "attention_dropout": 0.5, "resid_pdrop": 0.5, "embd_pdrop": 0.5}),
    (
        "Phi3Config",
        {
            "sliding_window": None,
            "original_max_position_embeddings": 64,
            "rope_parameters": {**LONGROPE, "factor": 2.0},
        },
    ),
    (
        "Phi3Config",
        {
            "sliding_window": 7,
            "original_max_position_embeddings": 64,
            "rope_parameters": {
                **LONGROPE,
                "partial_rotary_factor": 0.5,
                "short_factor": [1.0, 1.5],
                "long_factor": [2.0, 3.0],
            },
        },
    ),
    ("Olmo2Config", {**UNTIED, **BIASED}),
    ("Olmo2Config", {"rope_parameters": YARN, **ONE_KEY_HEAD}),
    ("SmolLM3Config", {"no_rope_layers": [0, 1], **UNTIED}),
    ("SmolLM3Config", {"no_rope_layers": [1, 0], **BIASED}),
    ("SmolLM3Config", {**ALTERNATING, **ONE_KEY_HEAD}),
    ("SmolLM3Config", {"rope_parameters": YARN}),
    ("GPT2Config", {**GPT2_SIZES, **UNTIED, "n_inner": 48}),
    ("GPT2Config", {**GPT2_SIZES, "scale_attn_by_inverse_layer_idx": True}),
    ("GPT2Config", {**GPT2_SIZES, "scale_attn_weights": False}),
    ("GPT2Config", {**GPT2_SIZES, "reorder_and_upcast_attn": True}),
    ("GPT2Config", {**GPT2_SIZES, "activation_function": "relu", "attn_pdrop": 0.5}),
    ("GPTNeoXConfig", {"rope_parameters": {**PLAIN, "partial_rotary_factor": 1.0}}),
    ("GPTNeoXConfig", {"rope_parameters": {**PLAIN, "partial_rotary_factor": 0.5}, **UNTIED}),
    ("GPTNeoXConfig", {"use_parallel_residual": False, "attention_bias": False}),
    ("GPTNeoXConfig", {"rope_parameters": {**LINEAR, "partial_rotary_factor": 0.25}, "attention_dropout": 0.5}),
    ("GptOssConfig", {**OSS_EXPERTS, "sliding_window": 7, **UNTIED, **ONE_KEY_HEAD}),
    ("GptOssConfig", {**OSS_EXPERTS, "layer_types": ["full_attention"] * 2, "attention_bias": False}),
    ("GptOssConfig", {**OSS_EXPERTS, "sliding_window": 1, "rope_parameters": PLAIN, "num_experts_per_tok": 1}),
    ("GptOssConfig", {**OSS_EXPERTS, "sliding_window": 7, "rope_parameters": {**YARN, "truncate": False}}),
    ("DeepseekV2Config", {**LATENT, "q_lora_rank": None}),
    ("DeepseekV2Config", {**LATENT, "topk_method": "group_limited_greedy", "routed_scaling_factor": 2.0}),
    ("DeepseekV2Config", {**LATENT, "rope_parameters": YARN_MSCALE, "first_k_dense_replace": 0, **UNTIED}),
    ("DeepseekV2Config", {**LATENT, "v_head_dim": 12, "attention_bias": True, "norm_topk_prob": True}),
    ("DeepseekV3Config", {**LATENT, "q_lora_rank": None, "rope_interleave": False}),
    ("DeepseekV3Config", {**LATENT, "rope_parameters": YARN_MSCALE, "first_k_dense_replace": 0, **UNTIED}),
    ("DeepseekV3Config", {**LATENT, "v_head_dim": 12, "attention_bias": True, "norm_topk_prob": False}),
    ("DeepseekV3Config", {**LATENT, "n_group": 1, "n_shared_experts": 2, "first_k_dense_replace": 2}),
]


OFTEN = 3
"""`make test` tries every third shape, `make test-slow` all of them."""


@pytest.mark.parametrize(
    ("config", "settings"),
    [pytest.param(*shape, marks=[pytest.mark.slow] * (n % OFTEN > 0)) for n, shape in enumerate(SHAPES)],
    ids=lambda value: str(value)[:90],
)
def test_a_shape_has_the_log_probs_of_transformers(tmp_path: Path, config: str, settings: dict[str, Any]) -> None:
    assert logp_gap(tiny_folder(tmp_path, config, **settings), max_response_tokens=40) < LOGP_TOLERANCE


@pytest.mark.parametrize(
    ("config", "settings", "message"),
    [
        ("Gemma3TextConfig", {"use_bidirectional_attention": True}, "an unusual attention"),
        ("Qwen3Config", {"rope_parameters": {**LONGROPE}}, "longrope rotary positions"),
        ("SmolLM3Config", {"rope_parameters": {**PLAIN, "rope_type": "dynamic", "factor": 2.0}}, "dynamic rotary"),
    ],
)
def test_a_shape_that_would_be_computed_wrongly_is_refused(
    tmp_path: Path, config: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        load_policy(tiny_folder(tmp_path, config, **settings))


def test_a_window_that_attention_is_not_told_bounds_the_context(tmp_path: Path) -> None:
    window = {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2}
    folder = tiny_folder(tmp_path, "Qwen2MoeConfig", **{**SHARED, **window})
    assert load_policy(folder).max_context == 16
    assert (
        load_policy(tiny_folder(tmp_path / "b", "Qwen3MoeConfig", **{**MIXTURE, **window})).max_context == MAX_CONTEXT
    )
