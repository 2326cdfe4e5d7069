"""vLLM's CPU build as one side of the benchmark."""

from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path

from rounds import Rounds
from vllm import LLM, SamplingParams


def main() -> None:
    rounds = Rounds()
    settings = rounds.settings
    llm = LLM(
        settings["model"],
        dtype=settings["dtype"],
        max_model_len=512,
        max_num_seqs=settings["prompts"] * settings["samples"],
        max_num_batched_tokens=16384,
        seed=0,
        **settings["options"],
    )
    sizes = cycle(settings.get("sizes", [[settings["prompts"], settings["samples"]]]))
    rows = [json.loads(line) for line in Path(settings["data"]).read_text(encoding="utf-8").splitlines()]
    tokenizer = llm.get_tokenizer()
    prompts = [
        {"prompt_token_ids": tokenizer.encode(row["prompt"], add_special_tokens=False)}
        for row in rows[: settings["prompts"]]
    ]
    while rounds.begin():
        num_prompts, num_samples = next(sizes)
        params = SamplingParams(
            n=num_samples,
            temperature=1.0,
            min_tokens=settings["min_tokens"],
            max_tokens=settings["max_tokens"],
            logprobs=0,
            detokenize=False,
        )
        outputs = llm.generate(prompts[:num_prompts], params, use_tqdm=False)
        tokens = sum(len(response.token_ids) for output in outputs for response in output.outputs)
        rounds.end(rows=num_prompts * num_samples, tokens=tokens)


if __name__ == "__main__":
    main()
