"""What the sampler and the update make of one GPU: shares of its memory bandwidth and of its bfloat16 matrix rate.

    python benchmarks/gpu.py --model Qwen/Qwen2.5-1.5B --out gpu.json

The model has the published shape and random weights, so nothing is downloaded. Decoding is held against the least that
a step must read (weights once, each prompt's and each response's keys and values once), training against 6 FLOP a
parameter and token; both rates of the card are measured first. Alignment is exp(mean |behavior_logp - old_logp|) of
sampled rollouts. On a CPU the script runs too, at whatever size is given, which shows that it works and nothing else.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ansatz import process
from ansatz.config.schema import TrainSection
from ansatz.models.known_models import KNOWN_MODELS
from ansatz.models.load import Policy, cast, load_policy
from ansatz.models.tiny import build_random_model
from ansatz.objectives.build import build_objective
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import NativeSampler
from ansatz.train.local import LocalTrainer
from ansatz.train.optim import Schedule
from ansatz.train.sample import TrainSample
from ansatz.types import Problem, Prompt, Rollout


def seconds(work: Callable[[], Any], *, repeats: int) -> float:
    """The best of some runs, after one that is not counted."""
    best = math.inf
    for repeat in range(repeats + 1):
        settle()
        started = time.perf_counter()
        work()
        settle()
        if repeat:
            best = min(best, time.perf_counter() - started)
    return best


def settle() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def matrix_rate(device: torch.device, size: int) -> float:
    """FLOP/s of bfloat16 products."""
    a, b = (torch.randn(size, size, device=device).bfloat16() for _ in range(2))
    return 2 * size**3 / seconds(lambda: a @ b, repeats=5)


def bandwidth(device: torch.device, size: int) -> float:
    """Bytes/s, read and written, of a copy."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / seconds(lambda: target.copy_(source), repeats=5)


def prompts_of(policy: Policy, count: int, length: int) -> list[Prompt]:
    draw = random.Random(0)
    vocabulary = policy.head.weight.shape[0]
    return [
        Prompt(
            problem=Problem(id=str(number), question="", answer="", source="random", split="train"),
            text="",
            token_ids=tuple(draw.randrange(2, vocabulary) for _ in range(length)),
        )
        for number in range(count)
    ]


def decoding(
    policy: Policy, prompts: list[Prompt], how: Sampling, rate: float
) -> tuple[dict[str, float], list[Rollout]]:
    """Decode steps a second against what the card could read; and the rollouts."""
    rows = len(prompts) * how.num_samples
    sampler = NativeSampler(policy, max_concurrent=rows)
    found: list[Rollout] = []
    whole = seconds(lambda: found.__setitem__(slice(None), sampler.generate(prompts, how)), repeats=2)
    one = dataclasses.replace(how, max_response_tokens=1, min_response_tokens=0)
    prefill = seconds(lambda: sampler.generate(prompts, one), repeats=2)
    config, size = policy.model.config, policy.model.dtype.itemsize
    weights = sum(value.numel() for value in policy.model.parameters()) * size
    heads = config.num_key_value_heads * getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
    kept = 2 * config.num_hidden_layers * heads * size
    positions = len(prompts) * len(prompts[0].token_ids) + rows * how.max_response_tokens / 2
    step = (whole - prefill) / (how.max_response_tokens - 1)
    floor = (weights + positions * kept) / rate
    return {"decode_step_s": step, "floor_s": floor, "share_of_bandwidth": floor / step}, found


def training(policy: Policy, rollouts: list[Rollout], rate: float, tokens_per_microbatch: int) -> dict[str, float]:
    """One update of the rollouts against the card's matrix rate, and the alignment of its first step."""
    samples = [
        TrainSample.from_rollout(rollout, group=int(rollout.prompt.problem.id), reward=float(rollout.sample % 2))
        for rollout in rollouts
    ]
    trainer = LocalTrainer(
        policy,
        build_objective({"preset": "grpo"}, max_response_tokens=rollouts[0].num_tokens),
        settings=TrainSection(tokens_per_microbatch=tokens_per_microbatch),
        dtype=torch.bfloat16,
        lr=1e-6,
        schedule=Schedule(warmup_steps=0, decay_steps=0, total_steps=100),
    )
    measures: list[float] = []

    def update() -> None:
        report = trainer.update(trainer.batch(samples), step=len(measures) + 1)
        measures.append(report.metrics["align/mean_gap"])

    spent = seconds(update, repeats=3)
    tokens = sum(len(one.prompt.token_ids) + one.num_tokens for one in rollouts)
    flop = 6 * policy.num_parameters * tokens
    return {"update_s": spent, "share_of_matrix_rate": flop / spent / rate, "alignment": measures[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen2.5-1.5B", choices=sorted(KNOWN_MODELS))
    parser.add_argument("--layers", type=int, help="fewer layers than published, for a try on a small machine")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--response-tokens", type=int, default=512)
    parser.add_argument("--tokens-per-slice", type=int, default=16384)
    parser.add_argument("--matrix", type=int, default=8192, help="rows of the products that measure the card")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    process.configure_process()
    shape = dataclasses.replace(
        KNOWN_MODELS[given.model], num_layers=given.layers or KNOWN_MODELS[given.model].num_layers
    )
    with tempfile.TemporaryDirectory() as folder:
        build_random_model(folder, texts=["a b c"], shape=shape)
        policy = load_policy(folder)
    policy.model.resize_token_embeddings(shape.vocab_size, mean_resizing=False)  # the tokenizer has few tokens
    cast(policy, torch.bfloat16)
    rates = {"matrix_flops": matrix_rate(policy.device, given.matrix), "bytes_per_s": bandwidth(policy.device, 2**30)}
    how = Sampling(
        num_samples=given.samples,
        max_response_tokens=given.response_tokens,
        min_response_tokens=given.response_tokens,
    )
    prompts = prompts_of(policy, given.prompts, given.prompt_tokens)
    decoded, rollouts = decoding(policy, prompts, how, rates["bytes_per_s"])
    trained = training(policy, rollouts, rates["matrix_flops"], given.tokens_per_microbatch)
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    found = {"card": name, "torch": torch.__version__, **vars(given), **rates, **decoded, **trained}
    found["out"] = str(given.out)
    print(json.dumps(found, indent=1))
    if given.out:
        given.out.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
