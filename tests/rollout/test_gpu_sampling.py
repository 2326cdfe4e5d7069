"""Sampling on a GPU: CUDA graphs, the CPU's tokens, and log-probs that are the trainer's."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from tiny_models import ARCHITECTURES, some_prompts, tiny_folder, tiny_policy

from ansatz.models.load import Policy, cast, load_policy
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import NativeSampler
from ansatz.rollout.native.cache import free_bytes
from ansatz.rollout.native.fused import FusedDecodeStep
from ansatz.train.logps import logps_of
from ansatz.train.packed import pack_rollouts
from ansatz.train.sample import TrainSample
from ansatz.types import Rollout
from tools.families import END_ID

pytestmark = pytest.mark.gpu
pytest.importorskip("triton")

PROMPTS = some_prompts(40)
SAMPLING = Sampling(num_samples=3, max_response_tokens=60, seed=7, step=4)
KINDS = (torch.float32, torch.bfloat16)


def policy_on(device: str, folder: Path, name: str, dtype: torch.dtype = torch.float32) -> Policy:
    """A policy with several end tokens, so that responses end at different lengths."""
    policy = load_policy(tiny_folder(folder, name), device=device)
    cast(policy, dtype)
    return dataclasses.replace(policy, end_ids=(END_ID, 5, 9))


@pytest.mark.parametrize("dtype", KINDS)
def test_cuda_graphs_sample_the_same_rollouts_as_the_plain_step(tmp_path: Path, dtype: torch.dtype) -> None:
    policy = policy_on("cuda", tmp_path, "qwen3, grouped heads, tied", dtype)
    assert free_bytes(policy.device) > 0
    captured = NativeSampler(policy, max_concurrent=70)
    plain = NativeSampler(policy, max_concurrent=70, capture=lambda work: work() or work)
    assert isinstance(captured._step, FusedDecodeStep)
    assert captured.generate(PROMPTS, SAMPLING) == plain.generate(PROMPTS, SAMPLING)
    assert captured.generate(PROMPTS, SAMPLING) == captured.generate(PROMPTS, SAMPLING)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_in_float32_a_gpu_samples_the_tokens_of_the_cpu(tmp_path: Path, name: str) -> None:
    """The noise depends only on the key, so only rounding can change a token."""
    rollouts = [
        NativeSampler(policy_on(device, tmp_path / device, name), max_concurrent=70).generate(PROMPTS, SAMPLING)
        for device in ("cpu", "cuda")
    ]
    same = [left.token_ids == right.token_ids for left, right in zip(*rollouts, strict=True)]
    assert sum(same) >= 0.95 * len(same)
    logps = [
        torch.tensor(
            [logp for rollout, equal in zip(each, same, strict=True) if equal for logp in rollout.behavior_logps]
        )
        for each in rollouts
    ]
    torch.testing.assert_close(logps[0], logps[1], rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_logps_of_a_sampled_token_are_those_of_the_trainer(tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    policy = policy_on("cuda", tmp_path, name, dtype)
    rollouts = NativeSampler(policy, max_concurrent=70).generate(PROMPTS, SAMPLING)
    gap_M = logp_gaps(policy, rollouts)
    if dtype == torch.float32:
        assert gap_M.max() < 1e-4
    else:  # with experts, rounding can send a token to another one
        assert gap_M.exp().mean() < (1.1 if "experts" in name else 1.05)


def logp_gaps(policy: Policy, rollouts: list[Rollout]) -> torch.Tensor:
    """|sampler's - trainer's| log-prob of each sampled token, in nats."""
    samples = [
        TrainSample.from_rollout(rollout, group=int(rollout.prompt.problem.id[1:]), reward=0.0) for rollout in rollouts
    ]
    packed = pack_rollouts(samples, device=policy.device)
    logp_T = logps_of(policy, packed, tokens_per_microbatch=512)
    return (logp_T - packed.behavior_logp_T)[packed.sampled_mask_T].abs()


@pytest.mark.parametrize("dtype", KINDS)
def test_greedy_decoding_takes_the_likeliest_tokens(tmp_path: Path, dtype: torch.dtype) -> None:
    policy = policy_on("cuda", tmp_path, "qwen3, grouped heads, tied", dtype)
    rollouts = NativeSampler(policy, max_concurrent=70).generate(PROMPTS, SAMPLING.greedy())
    assert all(set(rollout.behavior_logps) == {0.0} for rollout in rollouts)


def test_filters_of_candidates_are_the_same_in_sampler_and_trainer(tmp_path: Path) -> None:
    policy = policy_on("cuda", tmp_path, "qwen3, grouped heads, tied")
    sampling = dataclasses.replace(SAMPLING, top_k=8, top_p=0.9, min_response_tokens=5)
    rollouts = NativeSampler(policy, max_concurrent=70).generate(PROMPTS, sampling)
    assert logp_gaps(policy, rollouts).max() < 1e-4


def test_a_model_is_loaded_on_the_gpu_if_there_is_one() -> None:
    assert tiny_policy().device.type == "cuda"
