"""How well the sampler and the update use one GPU: fractions of its memory bandwidth and of its bfloat16 matrix rate.

    python benchmarks/gpu.py --model Qwen/Qwen2.5-1.5B --out gpu.json [--profile kernels.txt]

The model has the published shape and random weights, so nothing is downloaded. A decode step has two floors: the bytes
that it must read, which are the weights once and the keys and values of each prompt and each response once, and 2 FLOP
per parameter and row. Training is compared with 6 FLOP per parameter and token. Both rates of the card are measured
first. Alignment is exp(mean |behavior_logp - old_logp|) of sampled rollouts. The script also runs on a CPU, which only
shows that it works.
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
    """The shortest time of `repeats` runs, after one run that is not counted."""
    best = math.inf
    for repeat in range(repeats + 1):
        synchronize()
        started = time.perf_counter()
        work()
        synchronize()
        if repeat:
            best = min(best, time.perf_counter() - started)
    return best


def synchronize() -> None:
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


def kernels(work: Callable[[], Any], *, title: str) -> str:
    """The operations and kernels of a run that took the most time on the GPU."""
    on_gpu = torch.cuda.is_available()
    activities = [torch.profiler.ProfilerActivity.CUDA if on_gpu else torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profiler:
        work()
        synchronize()
    order = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
    return f"{title}\n{profiler.key_averages().table(sort_by=order, row_limit=60, max_name_column_width=90)}\n"


def prompts_of(policy: Policy, count: int, length: int) -> list[Prompt]:
    generator = random.Random(0)
    vocabulary = policy.head.weight.shape[0]
    return [
        Prompt(
            problem=Problem(id=str(number), question="", source="random", split="train"),
            text="",
            token_ids=tuple(generator.randrange(2, vocabulary) for _ in range(length)),
        )
        for number in range(count)
    ]


def decoding(
    policy: Policy, prompts: list[Prompt], sampling: Sampling, rates: dict[str, float], profile: list[str] | None
) -> tuple[dict[str, float], list[Rollout]]:
    """Seconds of a decode step and the least that the card's rates allow; and the rollouts.

    profile: takes a table of the kernels of a shorter call.
    """
    rows = len(prompts) * sampling.num_samples
    sampler = NativeSampler(policy, max_concurrent=rows)
    rollouts: list[Rollout] = []
    whole = seconds(lambda: rollouts.__setitem__(slice(None), sampler.generate(prompts, sampling)), repeats=2)
    one_token = dataclasses.replace(sampling, max_response_tokens=1, min_response_tokens=0)
    prefill = seconds(lambda: sampler.generate(prompts, one_token), repeats=2)
    if profile is not None:
        shorter = dataclasses.replace(sampling, max_response_tokens=33, min_response_tokens=33)
        profile.append(kernels(lambda: sampler.generate(prompts, shorter), title="a prefill and 32 decode steps"))
    config, size = policy.model.config, policy.model.dtype.itemsize
    weights = sum(value.numel() for value in policy.model.parameters()) * size
    heads = config.num_key_value_heads * getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
    bytes_per_position = 2 * config.num_hidden_layers * heads * size
    positions = len(prompts) * len(prompts[0].token_ids) + rows * sampling.max_response_tokens / 2
    step = (whole - prefill) / (sampling.max_response_tokens - 1)
    floors = {
        "bytes_floor_s": (weights + positions * bytes_per_position) / rates["bytes_per_s"],
        "flop_floor_s": 2 * policy.num_parameters * rows / rates["matrix_flops"],
    }
    return {"rows": rows, "decode_step_s": step, **floors, "floor_frac": max(floors.values()) / step}, rollouts


def training(
    policy: Policy,
    rollouts: list[Rollout],
    flop_per_s: float,
    tokens_per_microbatch: int,
    profile: list[str] | None,
) -> dict[str, float]:
    """Seconds of an update on the rollouts, its fraction of the card's matrix rate, and the first step's alignment."""
    samples = [
        TrainSample.from_rollout(rollout, group=int(rollout.prompt.problem.id), reward=float(rollout.sample % 2))
        for rollout in rollouts
    ]
    trainer = LocalTrainer(
        policy,
        build_objective({"preset": "grpo"}, max_response_tokens=rollouts[0].num_tokens),
        settings=TrainSection(tokens_per_microbatch=tokens_per_microbatch),
        dtype=torch.bfloat16,
        schedule=Schedule(lr=1e-6, warmup_steps=0, decay_steps=0, total_steps=100),
    )
    alignments: list[float] = []

    def update() -> None:
        trainer.version = 0  # the version of the rollouts; tokens of an earlier one are not compared
        report = trainer.update(trainer.batch(samples), step=len(alignments) + 1)
        alignments.append(report.metrics["align/mean_exp_gap"])

    spent = seconds(update, repeats=3)
    if profile is not None:
        samples = samples[: len(samples) // 8]
        profile.append(kernels(update, title="an update on an eighth of the rollouts"))
    memory_gb = torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else 0.0
    tokens = sum(len(rollout.prompt.token_ids) + rollout.num_tokens for rollout in rollouts)
    flop = 6 * policy.num_parameters * tokens
    return {
        "update_s": spent,
        "matrix_rate_frac": flop / spent / flop_per_s,
        "alignment": alignments[0],
        "peak_memory_gb": memory_gb,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen2.5-1.5B", choices=sorted(KNOWN_MODELS))
    parser.add_argument("--layers", type=int, help="fewer layers than published, to try it on a small machine")
    parser.add_argument("--prompts", type=int, nargs="+", default=[8, 128, 32], help="the last number is trained on")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--response-tokens", type=int, default=512)
    parser.add_argument("--tokens-per-microbatch", type=int, default=12288)
    parser.add_argument("--matrix", type=int, default=8192, help="size of the matrices that measure the card")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--profile", type=Path, help="a file for tables of the kernels that take the most time")
    options = parser.parse_args()
    process.configure_process()
    shape = dataclasses.replace(
        KNOWN_MODELS[options.model], num_layers=options.layers or KNOWN_MODELS[options.model].num_layers
    )
    with tempfile.TemporaryDirectory() as folder:
        build_random_model(folder, texts=["a b c"], shape=shape)
        policy = load_policy(folder)
    policy.model.resize_token_embeddings(shape.vocab_size, mean_resizing=False)  # the tokenizer has few tokens
    cast(policy, torch.bfloat16)
    rates = {"matrix_flops": matrix_rate(policy.device, options.matrix), "bytes_per_s": bandwidth(policy.device, 2**30)}
    sampling = Sampling(
        num_samples=options.samples,
        max_response_tokens=options.response_tokens,
        min_response_tokens=options.response_tokens,
    )
    profile = None if options.profile is None else list[str]()
    decoded, rollouts = list[dict[str, float]](), list[Rollout]()
    for count in options.prompts:
        prompts = prompts_of(policy, count, options.prompt_tokens)
        row, rollouts = decoding(policy, prompts, sampling, rates, profile)
        decoded.append(row)
        print(json.dumps(rates | row), flush=True)
    trained = training(policy, rollouts, rates["matrix_flops"], options.tokens_per_microbatch, profile)
    if profile is not None:
        options.profile.write_text("\n".join(profile), encoding="utf-8")
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    report = {"card": name, "torch": torch.__version__, **vars(options), **rates, "decoding": decoded, **trained}
    report |= {"out": str(options.out), "profile": str(options.profile)}
    print(json.dumps(report, indent=1))
    if options.out:
        options.out.write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
