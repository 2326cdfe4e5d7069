"""docs/models.md: the families of models, from the table that tests/models/test_families.py checks.

python -m tools.model_reference
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.pages import DOCS, paragraph

PAGE = DOCS / "models.md"

INTRODUCTION = """\
# Models

This page is generated from `tools/model_reference.py` by `make docs`; do not edit it.

`model.path`, `rejection.teacher` and `rewards.learned.model` take a local folder in Hugging Face
format, or a model of the hub with an optional branch, tag or commit:

```yaml
model: {path: Qwen/Qwen2.5-1.5B-Instruct}
model: {path: Qwen/Qwen2.5-1.5B-Instruct@main}
```

An existing folder wins over a hub name. A model is downloaded to the hub's cache before a run
writes anything, without files that are not needed. The run's config.yaml and run.json name the
commit, so a resumed run loads the same weights. `HF_HUB_OFFLINE=1` uses the cache only. Code in a
model's repository is never run.

## Families

Each family is tested with random weights at toy size. For a family that works, the log-probs of
sampled tokens and those of training are compared with transformers' own, token by token (float32,
within 1e-4). The normal tests also train gpt-oss and DeepSeek-V3 for three RL steps, resume them
with the same bits and reload their checkpoints in transformers; `make test-slow` does this for
every family, and runs `ansatz check` on it. A refused family is refused by name before its weights
are read. Other families are
accepted if they pass the check at loading: the logits must be the output embedding times the last
hidden state, and our attention must give transformers' logits.
"""

_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [2.0, 3.0, 4.0, 5.0],
    "original_max_position_embeddings": 64,
}
_MIXTURE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_LATENT = {
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
    "n_group": 1,
    "topk_group": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family of models. config: transformers' config class, with the settings of its toy model.

    refused: the feature for which it is refused; empty if it works. note: what a user has to know.
    """

    name: str
    config: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    refused: str = ""
    note: str = ""


FAMILIES = (
    Family(name="Llama 2", config="LlamaConfig", settings={"num_key_value_heads": 4}),
    Family(name="Llama 3", config="LlamaConfig", settings={"rope_parameters": _LLAMA3}),
    Family(
        name="Mistral",
        config="MistralConfig",
        settings={"sliding_window": 12},
    ),
    Family(name="Qwen2, Qwen2.5, R1-distill", config="Qwen2Config"),
    Family(
        name="Qwen2 mixture of experts",
        config="Qwen2MoeConfig",
        settings={**_MIXTURE, "shared_expert_intermediate_size": 16},
    ),
    Family(name="Qwen3", config="Qwen3Config"),
    Family(name="Qwen3 mixture of experts", config="Qwen3MoeConfig", settings=_MIXTURE),
    Family(name="Gemma", config="GemmaConfig", settings={"num_key_value_heads": 1}),
    Family(
        name="Gemma 2",
        config="Gemma2Config",
        settings={
            "sliding_window": 12,
            "query_pre_attn_scalar": 8,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    Family(
        name="Gemma 3 (text)",
        config="Gemma3TextConfig",
        settings={"sliding_window": 12},
    ),
    Family(
        name="Phi-3, Phi-4",
        config="Phi3Config",
        settings={"sliding_window": 12},
    ),
    Family(
        name="Phi-3, Phi-4, longrope",
        config="Phi3Config",
        settings={"sliding_window": None, "original_max_position_embeddings": 64, "rope_parameters": _LONGROPE},
        note="context at most that before longrope",
    ),
    Family(name="OLMo 2", config="Olmo2Config"),
    Family(name="SmolLM 3", config="SmolLM3Config"),
    Family(name="GPT-2", config="GPT2Config", settings={"n_layer": 2, "n_head": 4, "n_embd": 32, "n_positions": 128}),
    Family(name="Pythia (GPT-NeoX)", config="GPTNeoXConfig", settings={"tie_word_embeddings": False}),
    Family(
        name="gpt-oss",
        config="GptOssConfig",
        settings={"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 12},
    ),
    Family(name="DeepSeek-V2", config="DeepseekV2Config", settings=_LATENT),
    Family(name="DeepSeek-V3, R1", config="DeepseekV3Config", settings=_LATENT),
    Family(name="Llama 4", config="Llama4TextConfig", refused="layers of kind chunked_attention"),
    Family(
        name="Qwen3-Next",
        config="Qwen3NextConfig",
        settings={**_MIXTURE, "num_hidden_layers": 4},
        refused="layers of kind linear_attention",
    ),
    Family(name="Mamba", config="MambaConfig", refused="layers of kind linear_attention"),
    Family(name="Falcon-H1", config="FalconH1Config", refused="layers of kind hybrid"),
)


def page() -> str:
    """The page as Markdown."""
    lines = [INTRODUCTION, "| family | transformers' class | state |", "|---|---|---|"]
    for family in FAMILIES:
        state = f"refused: {family.refused}" if family.refused else "works"
        lines.append(f"| {family.name} | `{family.config}` | {state}{'; ' if family.note else ''}{family.note} |")
    limits = paragraph(
        "Soft caps, attention sinks and sliding windows are computed as in transformers, while sampling and in "
        "training. Soft caps and sinks need the attention scores of a microbatch in memory; bound them with "
        "`train.tokens_per_microbatch`. A family with a window that is not listed runs with the window as its context. "
        "With latent attention (DeepSeek-V2 and V3) the cache holds the latents of every row, and keys and values are "
        "computed from them at every step. The weights of gpt-oss on the hub have 4 bits, which cannot be trained: "
        "convert them to bfloat16 first. Only the dense layers of Llama, Mistral, Qwen2 and Qwen3 have an estimate of "
        "memory in `ansatz explain`."
    )
    return "\n".join([*lines, "", limits, ""])


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"docs/models.md: {len(FAMILIES)} families")


if __name__ == "__main__":
    main()
