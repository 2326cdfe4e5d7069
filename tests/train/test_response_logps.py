"""The log-prob of whole responses: against a slow implementation in float64, and against counting samples."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from tiny_models import prompt, some_sequences, tiny_policy

from ansatz.models.load import Policy, load_policy
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import NativeSampler
from ansatz.track.measurements import values
from ansatz.train.logps import measure_demonstrations, response_logps
from ansatz.train.packed import pack_rollouts
from ansatz.train.placement import Placement
from ansatz.train.sample import TrainSample

TEMPERATURES = (0.5, 1.0, 1.7)


def sharp_policy(name: str = "qwen3, grouped heads, tied") -> Policy:
    """Logits with a spread of several nats, so that some responses are likely."""
    policy = tiny_policy(name)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(4)
    return policy


def some_samples() -> list[TrainSample]:
    """Prompts and responses of different lengths; the second and the third share a prompt."""
    prompts, responses = some_sequences(5, 3, 3, 9), some_sequences(4, 1, 7, 12, seed=1)
    prompts[2] = prompts[1]
    return [
        TrainSample(prompt_ids=before, token_ids=after, behavior_logps=[0.0] * len(after), group=0, reward=1.0)
        for before, after in zip(prompts, responses, strict=True)
    ]


def logps_of(
    policy: Policy, samples: Sequence[TrainSample], temperatures: Sequence[float], *, tokens_per_microbatch: int = 1000
) -> list[list[float]]:
    packed = pack_rollouts(samples, device=policy.device)
    return response_logps(policy, packed, temperatures=temperatures, tokens_per_microbatch=tokens_per_microbatch)


def slow_logp(policy: Policy, sample: TrainSample, temperature: float) -> float:
    """One token at a time, in float64, with nothing packed: log softmax(z / t), added up."""
    model, ids, total = copy.deepcopy(policy.model).double(), list(sample.prompt_ids), 0.0
    for token in sample.token_ids:
        with torch.no_grad():
            logits_V = model(torch.tensor([ids])).logits[0, -1].tolist()
        largest = max(logits_V)
        sum_exp = math.fsum(math.exp((logit - largest) / temperature) for logit in logits_V)
        total += (logits_V[token] - largest) / temperature - math.log(sum_exp)
        ids.append(token)
    return total


def test_the_loss_of_demonstrations_is_of_the_capped_distribution() -> None:
    policy = sharp_policy("gemma 2, soft caps, sliding window")
    packed = pack_rollouts(some_samples(), device=torch.device("cpu"))
    measured = values(measure_demonstrations(policy, packed, tokens_per_microbatch=64))
    logps = response_logps(policy, packed, temperatures=[1.0], tokens_per_microbatch=64)
    num_tokens = sum(len(sample.token_ids) for sample in some_samples())
    assert measured["sft/heldout_loss"] == pytest.approx(-sum(logp for (logp,) in logps) / num_tokens, rel=1e-5)


@pytest.mark.parametrize("name", ["qwen3, grouped heads, tied", "gemma 2, soft caps, sliding window"])
@pytest.mark.parametrize("tokens_per_microbatch", [14, 1000])
def test_the_log_probs_of_responses_are_those_of_a_slow_implementation(name: str, tokens_per_microbatch: int) -> None:
    policy, samples = sharp_policy(name), some_samples()
    found = logps_of(policy, samples, TEMPERATURES, tokens_per_microbatch=tokens_per_microbatch)
    expected = [[slow_logp(policy, sample, temperature) for temperature in TEMPERATURES] for sample in samples]
    for logps, slow in zip(found, expected, strict=True):
        assert logps == pytest.approx(slow, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_probability_of_a_response_is_how_often_it_is_sampled(temperature: float) -> None:
    """6,000 responses of two tokens. The eight most frequent ones are counted; each count is binomial."""
    policy, count, asked = sharp_policy(), 6000, prompt(3, 9, 4)
    sampling = Sampling(num_samples=count, max_response_tokens=2, temperature=temperature, seed=5)
    rollouts = NativeSampler(policy, max_concurrent=1000).generate([asked], sampling)
    counts = Counter(tuple(rollout.token_ids) for rollout in rollouts).most_common(8)
    samples = [
        TrainSample(prompt_ids=asked.token_ids, token_ids=ids, behavior_logps=[0.0] * len(ids), group=0, reward=1.0)
        for ids, _ in counts
    ]
    found = logps_of(policy, samples, [temperature])
    assert counts[0][1] > 100, "the test needs a likely response"
    for (logp,), (_, times) in zip(found, counts, strict=True):
        p = math.exp(logp)
        assert abs(times - count * p) < 5 * math.sqrt(count * p * (1 - p)) + 1


def logps_on(placement: Placement, folder: Path, samples: list[TrainSample]) -> list[list[float]]:
    policy = load_policy(folder, device="cpu")
    return response_logps(
        placement.policy(policy, torch.float32),
        pack_rollouts(samples, device=policy.device),
        temperatures=TEMPERATURES,
        tokens_per_microbatch=20,
        ranks=placement.ranks,
    )
