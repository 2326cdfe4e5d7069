"""transformers' own `generate` as one side of the benchmark."""

from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path

import torch
from rounds import Rounds
from transformers import AutoModelForCausalLM, AutoTokenizer


@torch.inference_mode()
def main() -> None:
    rounds = Rounds()
    settings = rounds.settings
    torch.set_num_threads(settings["threads"])
    tokenizer = AutoTokenizer.from_pretrained(settings["model"])
    model = AutoModelForCausalLM.from_pretrained(
        settings["model"], dtype=getattr(torch, settings["dtype"]), attn_implementation=settings["attention"]
    ).eval()
    rows = [json.loads(line) for line in Path(settings["data"]).read_text(encoding="utf-8").splitlines()]
    sizes = cycle(settings.get("sizes", [[settings["prompts"], settings["samples"]]]))
    sampling = {
        "do_sample": True,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_new_tokens": settings["min_tokens"],
        "max_new_tokens": settings["max_tokens"],
        **settings["options"],
    }
    ends = torch.tensor(model.generation_config.eos_token_id).flatten()
    while rounds.begin():
        num_prompts, num_samples = next(sizes)
        texts = [row["prompt"] for row in rows[:num_prompts] for _ in range(num_samples)]
        tokens = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        out = model.generate(**tokens, **sampling)[:, tokens["input_ids"].shape[1] :]
        ended = torch.isin(out, ends)
        before_end = ended.cumsum(1) - ended.long() == 0
        rounds.end(rows=len(texts), tokens=int(before_end.sum()))


if __name__ == "__main__":
    main()
