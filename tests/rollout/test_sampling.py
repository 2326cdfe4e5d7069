from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ansatz.rollout import sampling
from ansatz.rollout.sampling import filter_logits, noise_key, sample_tokens, uniforms

NUM_SAMPLES = 100_000


def noise(count: int = NUM_SAMPLES, *, key: int = 12345) -> Tensor:
    return uniforms(torch.full((count,), key), torch.arange(count))


def ks_distance(uniform_B: Tensor) -> float:
    """Largest gap between the empirical distribution function and that of the uniform distribution on [0, 1)."""
    ranked, count = uniform_B.double().sort().values, len(uniform_B)
    steps = torch.arange(count + 1, dtype=torch.float64) / count
    return max(float((steps[1:] - ranked).max()), float((ranked - steps[:-1]).max()))


def filtered_probabilities(logits: list[float], *, top_k: int, top_p: float, min_p: float = 0.0) -> list[float]:
    """Probabilities token by token in Python floats."""
    largest = max(logits)
    weight = [math.exp(z - largest) for z in logits]
    if top_k:
        bound = sorted(weight, reverse=True)[min(top_k, len(weight)) - 1]
        weight = [w if w >= bound else 0.0 for w in weight]
    probability = [w / sum(weight) for w in weight]
    reached, kept = 0.0, set[int]()
    for token in sorted(range(len(probability)), key=lambda token: (-probability[token], token)):
        if reached < top_p and probability[token] > 0:
            kept.add(token)
            reached += probability[token]
    kept = {token for token in kept if probability[token] >= min_p * max(probability)}
    total = sum(probability[token] for token in kept)
    return [probability[token] / total if token in kept else 0.0 for token in range(len(probability))]


def splitmix64(key: int, counter: int) -> float:
    """The published algorithm in Python integers: the (counter + 1)-th output of state `key`, its top 53 bits."""
    mask = 2**64 - 1
    z = (key + (counter + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return ((z ^ (z >> 31)) >> 11) / 2**53


def test_uniforms_are_splitmix64() -> None:
    keys = [0, 1, -1, 2**62 + 3, -(2**63), 987654321]
    for position in (0, 1, 77, 100_000):
        got = uniforms(torch.tensor(keys), torch.full((len(keys),), position))
        assert got.tolist() == [splitmix64(key, position) for key in keys]


def test_noise_is_uniform_along_positions_keys_problems_and_samples() -> None:
    """A distance above 1.95 / sqrt(n) would occur once in a thousand times."""
    keys = torch.tensor([noise_key(0, 3, f"problem-{n}", 0) for n in range(20_000)])
    samples = torch.tensor([noise_key(0, 3, "problem", n) for n in range(20_000)])
    for uniform in (
        noise(),
        uniforms(torch.arange(NUM_SAMPLES), torch.full((NUM_SAMPLES,), 5)),
        *first_of(keys, samples),
    ):
        assert ks_distance(uniform) < 1.95 / math.sqrt(len(uniform))
        assert uniform.min() >= 0
        assert uniform.max() < 1


def first_of(*keys: Tensor) -> list[Tensor]:
    return [uniforms(key, torch.zeros_like(key)) for key in keys]


def test_neighbouring_positions_and_samples_are_uncorrelated() -> None:
    along = noise()
    across = first_of(torch.tensor([noise_key(0, 1, "problem", n) for n in range(20_000)]))[0]
    for uniform in (along, across):
        correlation = float(torch.corrcoef(torch.stack([uniform[:-1], uniform[1:]]))[0, 1])
        assert abs(correlation) < 4 / math.sqrt(len(uniform))


def test_every_part_of_the_noise_key_changes_the_noise() -> None:
    keys = {
        noise_key(*parts)
        for parts in [(0, 0, "a", 0), (1, 0, "a", 0), (0, 1, "a", 0), (0, 0, "b", 0), (0, 0, "a", 1), (0, 0, "0/a", 0)]
    }
    assert len(keys) == 6
    assert noise_key(0, 0, "a", 0) == noise_key(0, 0, "a", 0)
    assert all(-(2**63) <= key < 2**63 for key in keys)


@pytest.mark.parametrize(
    "filters",
    [
        {"top_k": 0, "top_p": 1.0},
        {"top_k": 3, "top_p": 1.0},
        {"top_k": 0, "top_p": 0.7},
        {"top_k": 4, "top_p": 0.9},
        {"top_k": 0, "top_p": 1.0, "min_p": 0.2},
        {"top_k": 4, "top_p": 0.95, "min_p": 0.35},
    ],
    ids=["all", "top-k", "top-p", "both", "min-p", "all three"],
)
def test_samples_follow_the_filtered_distribution_and_so_do_log_probs(filters: dict[str, Any]) -> None:
    logits = [0.3, -1.0, 2.0, 1.1, -3.0, 0.9, -0.2]
    expected = filtered_probabilities(logits, **filters)
    logits_BV = torch.tensor(logits).expand(NUM_SAMPLES, -1)
    token_B, logp_B, num_candidates_B = sample_tokens(logits_BV, noise(), **filters, greedy=False)
    assert set(num_candidates_B.tolist()) == {sum(probability > 0 for probability in expected)}
    count_V = torch.bincount(token_B, minlength=7).tolist()
    chi_square = sum(
        (count - NUM_SAMPLES * probability) ** 2 / (NUM_SAMPLES * probability)
        for count, probability in zip(count_V, expected, strict=True)
        if probability
    )
    assert chi_square < 22.5  # 1 in 1000 with 6 degrees of freedom
    assert all(count == 0 for count, probability in zip(count_V, expected, strict=True) if not probability)
    assert logp_B.tolist() == pytest.approx([math.log(expected[token]) for token in token_B.tolist()], abs=1e-5)


def test_a_token_with_probability_zero_is_never_sampled() -> None:
    logits_V = torch.tensor([-math.inf, 1.0, -math.inf, -math.inf, 0.5, -math.inf])
    ends = torch.tensor([0.0, 5e-324, 0.5, 1 - 2**-53], dtype=torch.float64)
    uniform_B = torch.cat([ends, noise()])
    token_B, logp_B, num_candidates_B = sample_tokens(
        logits_V.expand(len(uniform_B), -1), uniform_B, top_k=0, top_p=1.0, greedy=False
    )
    assert set(token_B.tolist()) == {1, 4}
    assert token_B[:4].tolist() == [1, 1, 1, 4]
    assert logp_B.isfinite().all()
    assert set(num_candidates_B.tolist()) == {2}


def test_rare_tokens_of_a_large_vocabulary_are_sampled_one_by_one() -> None:
    """9,999 tokens of 1e-9 each after one with the rest. Float32 noise would lump sixty of them together."""
    logits_V = torch.full((10_000,), math.log(1e-9))
    logits_V[0] = math.log(1 - 1e-5)
    uniform_B = 1 - 1e-5 * (torch.arange(500, dtype=torch.float64) + 0.5) / 500
    token_B, _, _ = sample_tokens(logits_V.expand(500, -1), uniform_B, top_k=0, top_p=1.0, greedy=False)
    assert len(set(token_B.tolist())) >= 498


@pytest.mark.parametrize("top_p", [1.0, 0.95, 0.5, 0.01])
@pytest.mark.parametrize("top_k", [0, 1, 5, 40, 60])
@pytest.mark.parametrize("min_p", [0.0, 0.1, 0.7, 1.0])
def test_candidates_are_exact(top_k: int, top_p: float, min_p: float) -> None:
    logits_BV = torch.randn(30, 40, generator=torch.Generator().manual_seed(0)) * 2
    kept = filter_logits(logits_BV, top_k=top_k, top_p=top_p, min_p=min_p)
    for row, logits in zip(kept, logits_BV.tolist(), strict=True):
        expected = filtered_probabilities(logits, top_k=top_k, top_p=top_p, min_p=min_p)
        assert row.isfinite().tolist() == [probability > 0 for probability in expected]
        assert row[row.isfinite()].tolist() == [
            z for z, probability in zip(logits, expected, strict=True) if probability
        ]


def test_top_k_and_min_p_keep_all_tied_tokens_and_top_p_the_first_ones() -> None:
    level = torch.tensor([[8.0, 1.0, 4.0, 4.0, 2.0, 1.0]]).log()  # of 20
    support = lambda **filters: filter_logits(level, **filters)[0].isfinite().nonzero()[:, 0].tolist()  # noqa: E731
    assert support(top_k=2, top_p=1.0) == [0, 2, 3]
    assert support(top_k=0, top_p=0.5) == [0, 2]
    assert support(top_k=0, top_p=0.65) == [0, 2, 3]
    assert support(top_k=2, top_p=0.55) == [0, 2]  # 8, 4, 4 of 16: 0.5, then 0.75
    assert support(top_k=0, top_p=1.0, min_p=0.45) == [0, 2, 3]
    assert support(top_k=0, top_p=0.5, min_p=0.1) == [0, 2]
    assert support(top_k=0, top_p=1.0, min_p=1.0) == [0]
    flat = filter_logits(torch.zeros(1, 100), top_k=0, top_p=0.305)
    assert flat[0].isfinite().nonzero()[:, 0].tolist() == list(range(31))


def test_greedy_takes_the_largest_logit_with_log_prob_zero() -> None:
    logits_BV = torch.randn(20, 9, generator=torch.Generator().manual_seed(0))
    token_B, logp_B, num_candidates_B = sample_tokens(logits_BV, noise(20), top_k=0, top_p=1.0, greedy=True)
    assert torch.equal(token_B, logits_BV.argmax(-1))
    assert logp_B.dtype == torch.float32
    assert not logp_B.any()
    assert set(num_candidates_B.tolist()) == {1}


@pytest.mark.parametrize("num_tokens", [7, 8, 9, 40, 43])
def test_a_large_vocabulary_that_is_searched_by_blocks_gives_the_same_tokens(
    monkeypatch: pytest.MonkeyPatch, num_tokens: int
) -> None:
    """Of tokens that fill whole blocks, and of a last block that is not full; a third of them are impossible."""
    generator = torch.Generator().manual_seed(num_tokens)
    logits_BV = torch.randn(500, num_tokens, generator=generator)
    logits_BV[:, 1::3] = -torch.inf
    uniform_B = torch.rand(500, generator=generator, dtype=torch.float64)
    whole = sample_tokens(logits_BV, uniform_B, top_k=0, top_p=1.0, greedy=False)
    monkeypatch.setattr(sampling, "_BLOCK", 8)
    blocks = sample_tokens(logits_BV, uniform_B, top_k=0, top_p=1.0, greedy=False)
    assert all(left.equal(right) for left, right in zip(whole, blocks, strict=True))
