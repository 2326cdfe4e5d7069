"""Healthy values of the gap between sampler and trainer: the same weights computed twice, in other layouts and dtypes.

    .venv/bin/python benchmarks/audit/healthy.py FOLDER... [--tokens 64]

FOLDER: a Hugging Face folder, or `random:LAYERSxWIDTH`, a Llama with random weights. Tokens are sampled in float32 at
temperature 1. Each row is the mean |gap| over the first and the second half of the tokens, and the largest, in nats.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM


def load(name: str) -> Any:
    if not name.startswith("random:"):
        return AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32).eval()
    layers, width = map(int, name.removeprefix("random:").split("x"))
    sizes = {"hidden_size": width, "intermediate_size": 3 * width, "num_attention_heads": width // 32}
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=4096, num_hidden_layers=layers, initializer_range=0.2, **sizes)
    return LlamaForCausalLM(config).eval()


@torch.no_grad()
def logps(model: Any, tokens: torch.Tensor, prompt: int, *, padding: int = 0, rows: int = 0) -> torch.Tensor:
    """Return the log-probs of the sampled tokens. padding: on the left. rows: in batches of this many rows."""
    given = torch.nn.functional.pad(tokens, (padding, 0))
    mask = torch.nn.functional.pad(torch.ones_like(tokens), (padding, 0))
    found = list[torch.Tensor]()
    for part, kept in zip(given.split(rows or len(given)), mask.split(rows or len(given)), strict=True):
        place = (kept.cumsum(-1) - 1).clamp(min=0)
        logits = model(input_ids=part, attention_mask=kept, position_ids=place).logits[:, padding + prompt - 1 : -1]
        found.append(logits.float().log_softmax(-1).gather(-1, part[:, padding + prompt :, None]).squeeze(-1))
    return torch.cat(found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("--tokens", type=int, default=64)
    asked = parser.parse_args()
    print("| model | layers | compared | first half | second half | largest |\n|---|---|---|---|---|---|")
    for name in asked.models:
        model = load(name)
        torch.manual_seed(1)
        start = torch.randint(5, 1000, (8, 8))
        length = 8 + asked.tokens
        tokens = model.generate(
            start, do_sample=True, top_k=0, min_length=length, max_length=length, pad_token_id=0, eos_token_id=None
        )
        plain, layers = logps(model, tokens, 8), model.config.num_hidden_layers
        padded, alone = logps(model, tokens, 8, padding=13), logps(model, tokens, 8, rows=1)
        half = model.to(torch.bfloat16)
        rounded, other = logps(half, tokens, 8), logps(half, tokens, 8, padding=13, rows=2)
        for what, gap in (
            ("float32, with padding", padded - plain),
            ("float32, one row at a time", alone - plain),
            ("bfloat16, other layout", other - rounded),
            ("bfloat16 and float32", rounded - plain),
        ):
            first, second = gap.abs().chunk(2, dim=1)
            values = f"{first.mean():.1e} | {second.mean():.1e} | {gap.abs().max():.1e}"
            print(f"| {name.rsplit('/', 1)[-1][:24]} | {layers} | {what} | {values} |", flush=True)


if __name__ == "__main__":
    main()
