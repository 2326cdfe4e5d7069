"""Real vLLM engines over tiny models, and the gap between their log-probs and a policy's."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tiny_models import prompt, tiny_folder

from ansatz.models.load import Policy, load_policy
from ansatz.rollout.base import Sampling
from ansatz.rollout.engines import engine_of
from ansatz.rollout.vllm import VllmSampler
from ansatz.train.logps import logps_of
from ansatz.train.packed import pack_rollouts
from ansatz.train.sample import TrainSample
from ansatz.types import Prompt, Rollout
from tools.families import VOCAB_SIZE

SAMPLING = Sampling(num_samples=4, max_response_tokens=24, seed=5, step=1)


def policy_in(folder: Path, *, seed: int = 0, **settings: Any) -> Policy:
    """A model with tied embeddings and a head size that vLLM supports on a CPU. Its context spans several blocks."""
    return load_policy(tiny_folder(folder, seed=seed, head_dim=32, max_position_embeddings=512, **settings))


def long_prompts(count: int = 4) -> list[Prompt]:
    """Prompts of 130 tokens and more, so that the prefix cache holds whole blocks of 128."""
    generator = torch.Generator().manual_seed(1)
    lengths = [130 + 40 * index for index in range(count)]
    tokens = [torch.randint(2, VOCAB_SIZE, (length,), generator=generator).tolist() for length in lengths]
    return [prompt(*ids, name=f"long{index}") for index, ids in enumerate(tokens)]


def sampler_of(policy: Policy, mode: str, **settings: Any) -> VllmSampler:
    sampler = engine_of({"name": "vllm", "mode": mode, "max_concurrent": 16, **settings})(policy)
    assert isinstance(sampler, VllmSampler)
    return sampler


def gap(policy: Policy, rollouts: Sequence[Rollout], *, temperature: float = 1.0) -> float:
    """The largest |behavior_logp - policy_logp| in nats."""
    rows = [TrainSample.from_rollout(rollout, group=0, reward=0.0) for rollout in rollouts]
    layout = pack_rollouts(rows, device=policy.device)
    logp_T = logps_of(policy, layout, tokens_per_microbatch=4096, temperature=temperature)
    return float((logp_T - layout.behavior_logp_T)[layout.sampled_mask_T].abs().max())


def with_other_weights(policy: Policy, folder: Path) -> Policy:
    """Another policy of the same shape."""
    return dataclasses.replace(policy_in(folder, seed=9), path=policy.path)


def alive(processes: Sequence[int] | frozenset[int]) -> set[int]:
    """The processes that still run. A zombie counts as ended."""
    running: set[int] = set()
    for pid in processes:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            continue
        if state != "Z":
            running.add(pid)
    return running


def segments() -> set[str]:
    """Shared-memory files on this machine."""
    return {name for name in os.listdir("/dev/shm") if name.startswith(("psm_", "ansatz-weights-"))}
