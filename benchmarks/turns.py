"""Responses of several turns against responses of one turn: tokens per second of the native sampler.

    python benchmarks/turns.py --rounds 9 --out turns.json

All responses have the same number of tokens, so that only the turns differ. The kinds alternate within every round: one
turn; an environment that answers in the sampling thread; one that runs in threads; one with `async` methods; and one in
which every call takes a second. The environments answer at once, except the last. The result of a kind is the median
over rounds of its rate divided by that of one turn.

A token counts whether it was sampled or belongs to an observation, which is decoded like any other. `sampled` are those
that the policy sampled.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from ansatz.data.base import load_problems
from ansatz.environments.base import Environment, EnvironmentSpec, TurnSettings
from ansatz.models.load import load_policy
from ansatz.models.threads import set_threads
from ansatz.models.tiny import build_tiny_model
from ansatz.prompts.render import render
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import NativeSampler
from ansatz.types import Rollout

OBSERVATION = "<result>201954</result>\n"
SIZES = {"hidden_size": 128, "num_layers": 4, "num_heads": 4, "num_kv_heads": 2, "head_dim": 32}
"""Of the model of the tiny recipes."""


class Threads(Environment):
    """Answers at once, from a thread."""

    turn_ends = ("a", "7")  # of a random model, about every twenty tokens

    def step(self, response: str) -> Any:
        return OBSERVATION


class InPlace(Threads):
    """Answers at once, in the thread that samples."""

    instant = True


class Async(Threads):
    """Answers at once, in the event loop."""

    async def step(self, response: str) -> Any:
        return OBSERVATION


class Slow(Threads):
    """Answers after a second."""

    async def step(self, response: str) -> Any:
        await asyncio.sleep(1.0)
        return OBSERVATION


KINDS: dict[str, Callable[[], Environment] | None] = {
    "one turn": None,
    "in place": InPlace,
    "threads": Threads,
    "async": Async,
    "a second": Slow,
}


def measure(sample: Callable[[], list[Rollout]]) -> dict[str, float]:
    start = time.perf_counter()
    rollouts = sample()
    seconds = time.perf_counter() - start
    tokens = sum(rollout.num_tokens for rollout in rollouts)
    sampled = sum(sum(rollout.sampled_mask) if rollout.sampled_mask else rollout.num_tokens for rollout in rollouts)
    masks = ["".join("os"[each] for each in rollout.sampled_mask) for rollout in rollouts]
    return {
        "tokens_per_s": tokens / seconds,
        "sampled_per_s": sampled / seconds,
        "observations": sum(mask.count("so") for mask in masks) / len(rollouts),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=96, help="length of every response")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--out", type=Path, default=Path("turns.json"))
    arguments = parser.parse_args()
    set_threads(arguments.threads)
    problems = list(load_problems("long_numbers", split="train", settings={"count": arguments.prompts, "digits": 3}))
    with tempfile.TemporaryDirectory() as folder:
        texts = [f"{problem.question}\n{problem.solution}" for problem in problems]
        build_tiny_model(folder, texts=texts, intermediate_size=512, **SIZES)
        policy = load_policy(folder)
    prompts = [render(problem, "tiny", policy.tokenizer) for problem in problems]
    length = arguments.tokens
    sampling = Sampling(num_samples=arguments.samples, max_response_tokens=length, min_response_tokens=length)
    samplers: dict[str, Callable[[], list[Rollout]]] = {}
    for name in ("one turn", *(kind for kind in arguments.kinds if kind != "one turn")):
        make, spec = KINDS[name], None
        if make is not None:
            settings = TurnSettings(turns=100)
            spec = EnvironmentSpec(name=name, make=make, settings=settings, sample=make())
        sampler = NativeSampler(policy, max_concurrent=arguments.prompts * arguments.samples, environment=spec)
        samplers[name] = lambda sampler=sampler: sampler.generate(prompts, sampling)
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(arguments.rounds + 1):
        results = {name: measure(sample) for name, sample in samplers.items()}
        if number:  # the first round warms up
            rounds.append(results)
            print(json.dumps({name: round(each["tokens_per_s"]) for name, each in results.items()}), flush=True)
    ratios = {
        name: median(each[name]["tokens_per_s"] / each["one turn"]["tokens_per_s"] for each in rounds)
        for name in samplers
    }
    arguments.out.write_text(json.dumps({"ratios": ratios, "rounds": rounds}, indent=2), encoding="utf-8")
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.3f} of one turn, {rounds[0][name]['observations']:.1f} observations a response")


if __name__ == "__main__":
    main()
