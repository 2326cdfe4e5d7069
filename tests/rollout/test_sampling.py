from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ansatz.rollout import sampling
from ansatz.rollout.sampling import (
    draw_noise,
    draw_seeds,
    filter_logits,
    find_winners,
    noise_key,
    sample_tokens,
)

NUM_SAMPLES = 100_000
MASK = 2**32 - 1


def seeds(count: int = NUM_SAMPLES, *, key: int = 12345) -> Tensor:
    return draw_seeds(torch.full((count,), key), torch.arange(count))


def ks_distance(noise: Tensor) -> float:
    """Largest gap between the empirical distribution function and that of the Gumbel distribution."""
    ranked, count = torch.exp(-torch.exp(-noise.double().flatten())).sort().values, noise.numel()
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


def splitmix64(key: int, counter: int) -> int:
    """The published algorithm in Python integers: the counter-th output of state `key`, from 1 on."""
    mask = 2**64 - 1
    z = (key + counter * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def lowbias32(token: int, seed: int) -> int:
    """The published hash in Python integers, with the lower half of `seed` added at first and the upper half in the
    middle."""
    value = (token * 0x9E3779B1 + seed) & MASK
    value = ((value ^ (value >> 16)) * 0x21F0AAAD) & MASK
    value ^= seed >> 32
    value = ((value ^ (value >> 15)) * 0x735A2D97) & MASK
    return value ^ (value >> 15)


def slow_noise(key: int, position: int, token: int) -> float:
    """The noise in Python integers and the logarithms of the C library."""
    high = lowbias32(token, splitmix64(key, 2 * position + 1)) & (2**31 - 1)
    low = lowbias32(token, splitmix64(key, 2 * position + 2))
    return -math.log(-math.log1p(-((high << 32) + low + 0.5) * 2.0**-63))


def test_the_noise_is_the_published_hashes_and_two_logarithms() -> None:
    keys = [0, 1, -1, 2**62 + 3, -(2**63), 987654321]
    tokens = [0, 1, 2, 299, 151_935, 2**31 - 1]
    for position in (0, 1, 77, 100_000):
        seed_B22 = draw_seeds(torch.tensor(keys), torch.full((len(keys),), position))
        noise_BC = draw_noise(seed_B22, torch.tensor(tokens).expand(len(keys), -1))
        for key, row in zip(keys, noise_BC.tolist(), strict=True):
            assert row == pytest.approx([slow_noise(key, position, token) for token in tokens], abs=1e-9)


def test_the_logarithms_hold_for_the_smallest_and_the_largest_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """x runs over powers of two from half of 2^-63 to 1/2 and over 1 minus them: 44.4 is the largest noise."""
    numbers = [(1 << power) - 1 for power in range(64)]
    numbers += [2**63 - 1 - (1 << power) for power in range(63)]

    def bits(token: Tensor, seed: Tensor) -> Tensor:
        high = torch.tensor([number >> 32 for number in numbers])
        low = torch.tensor([number & MASK for number in numbers])
        return torch.stack((high, low))[None].to(torch.int32)

    monkeypatch.setattr(sampling, "_mix", bits)
    noise = draw_noise(seeds(1), torch.zeros(1, len(numbers), dtype=torch.long))[0].tolist()
    for number, value in zip(numbers, noise, strict=True):
        x = min((number + 0.5) * 2.0**-63, 1 - 2.0**-53)
        assert value == pytest.approx(-math.log(-math.log1p(-x)), abs=1e-9)
    assert max(noise) == pytest.approx(64 * math.log(2), abs=1e-9)
    assert min(noise) == pytest.approx(-math.log(53 * math.log(2)), abs=1e-9)


def test_noise_follows_the_gumbel_distribution_along_tokens_positions_keys_problems_and_samples() -> None:
    """A distance above 1.95 / sqrt(n) would occur once in a thousand times."""
    problems = torch.tensor([noise_key(0, 3, f"problem-{n}", 0) for n in range(20_000)])
    samples = torch.tensor([noise_key(0, 3, "problem", n) for n in range(20_000)])
    for noise in (
        draw_noise(seeds(1), torch.arange(NUM_SAMPLES)[None]),
        draw_noise(seeds(), torch.zeros(NUM_SAMPLES, 1)),
        draw_noise(draw_seeds(torch.arange(NUM_SAMPLES), torch.full((NUM_SAMPLES,), 5)), torch.full((1, 1), 77)),
        draw_noise(draw_seeds(problems, torch.zeros_like(problems)), torch.arange(3)[None]),
        draw_noise(draw_seeds(samples, torch.zeros_like(samples)), torch.arange(3)[None]),
    ):
        assert ks_distance(noise) < 1.95 / math.sqrt(noise.numel())


def test_the_far_tail_of_the_noise_is_as_heavy_as_it_should_be() -> None:
    """Of 10^7 numbers, noise above t has the share 1 - exp(-exp(-t)), down to one in a million."""
    noise = draw_noise(seeds(100, key=99), torch.arange(100_000)[None])
    for threshold in (2.0, 5.0, 8.0, 11.0, 13.5):
        expected = noise.numel() * -math.expm1(-math.exp(-threshold))
        assert abs(int((noise > threshold).sum()) - expected) < 4 * math.sqrt(expected) + 1


def test_neighbouring_tokens_positions_and_samples_are_uncorrelated() -> None:
    keys = torch.tensor([noise_key(0, 1, "problem", n) for n in range(500)])
    across = draw_noise(draw_seeds(keys, torch.zeros_like(keys)), torch.arange(300)[None])
    along = draw_noise(seeds(500), torch.arange(300)[None])
    for noise in (across, along, across.T, along.T, across.flatten()[None].T, (across * along)):
        correlation = float(torch.corrcoef(torch.stack([noise[:-1].flatten(), noise[1:].flatten()]))[0, 1])
        assert abs(correlation) < 4 / math.sqrt(noise.numel())


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
    token_B, logp_B, num_candidates_B = sample_tokens(logits_BV, seeds(), **filters, greedy=False)
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


def slow_winners(logits_BV: Tensor, seed_B22: Tensor) -> list[int]:
    """The largest sum of each row, with the exact noise of every token."""
    noise_BV = draw_noise(seed_B22, torch.arange(logits_BV.shape[-1]).expand_as(logits_BV))
    return (logits_BV.double() + noise_BV).argmax(-1).tolist()


@pytest.mark.parametrize("margin", [1e-3, 0.5, 1 - 1e-6], ids=["usual", "many contenders", "nearly all"])
@pytest.mark.parametrize("num_tokens", [1, 2, 3, 300, 5000])
@pytest.mark.parametrize("scale", [0.0, 1.0, 8.0])
def test_the_fast_way_finds_the_largest_noisy_logit(
    monkeypatch: pytest.MonkeyPatch, margin: float, num_tokens: int, scale: float
) -> None:
    logits_BV = torch.randn(200, num_tokens, generator=torch.Generator().manual_seed(num_tokens)) * scale
    logits_BV[:, 1::5] = -torch.inf
    seed_B22 = seeds(200, key=num_tokens)
    expected = slow_winners(logits_BV, seed_B22)
    mass_BV = (logits_BV - logits_BV.amax(-1, keepdim=True)).exp()
    monkeypatch.setattr(sampling, "_MARGIN", margin)
    assert find_winners(logits_BV, mass_BV, seed_B22)[:, 0].tolist() == expected


def test_a_noise_whose_upper_bits_are_zero_is_compared_by_its_lower_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens 0 and 1 have the same upper bits, 0, and token 1 the smaller lower bits, hence the larger noise. Token 2
    has so large a logit that it wins against both bounds in the second row alone."""
    mix = sampling._mix

    def bits(token: Tensor, seed: Tensor) -> Tensor:
        value = mix(token, seed)
        if value.dim() == 2:  # the upper bits of all tokens
            value[:, :2] = 0
            value[:, 2] = 1 << 30
            return value
        value[:, 0] = torch.where(token[:, 0] == 2 * sampling._TOKEN_STEP, 1 << 30, 0).to(torch.int32)
        value[:, 1] = torch.where(token[:, 0] == 0, 1 << 30, 1 << 20).to(torch.int32)
        return value

    monkeypatch.setattr(sampling, "_mix", bits)
    logits_BV = torch.tensor([[0.0, 0.0, 5.0], [-9.0, -9.0, 29.0]])
    mass_BV = (logits_BV - logits_BV.amax(-1, keepdim=True)).exp()
    assert find_winners(logits_BV, mass_BV, seeds(2))[:, 0].tolist() == [1, 2]


@pytest.mark.parametrize("words", [[-1891973857, -1785386323, 1811365721, -632619230], [1032184211, -842233427, 1, 2]])
def test_a_likely_token_wins_with_its_least_noise(words: list[int]) -> None:
    """Its upper bits are among the last 64 of 2^31, which float32 rounds to 2^31."""
    seed_B22 = torch.tensor([words], dtype=torch.int32).view(1, 2, 2)
    high = sampling._mix(torch.zeros(1, dtype=torch.int32), seed_B22[:, 0, :, None])[0] & 0x7FFFFFFF
    assert int(high) >= 2**31 - 64
    logits_BV = torch.full((1, 50), -14.0).index_fill_(1, torch.tensor([0]), 0.0)
    assert sampling.find_winners(logits_BV, logits_BV.exp(), seed_B22).item() == 0


def test_a_noise_with_the_largest_upper_bits_is_compared_by_its_lower_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lower bits of token 0 let E be anything from 21 to 37, so that its mass can be half of its upper bound."""
    mix = sampling._mix

    def bits(token: Tensor, seed: Tensor) -> Tensor:
        value = mix(token, seed)
        if value.dim() == 2:  # the upper bits of all tokens
            value[:, 0] = 2**31 - 1
        else:
            value[:, 0] = torch.where(token[:, 0] == 0, torch.tensor(2**31 - 1, dtype=torch.int32), value[:, 0])
        return value

    monkeypatch.setattr(sampling, "_mix", bits)
    seed_B22 = seeds(2000)
    logits_BV = torch.tensor([[3.0, 0.0]]).repeat(2000, 1)
    exact_BV = logits_BV.double() + draw_noise(seed_B22, torch.arange(2).expand(2000, 2))
    assert find_winners(logits_BV, (logits_BV - 3.0).exp(), seed_B22)[:, 0].equal(exact_BV.argmax(-1))


def test_noisy_masses_are_within_their_margin_for_the_largest_upper_bits() -> None:
    high_BV = torch.cat((2**31 - torch.arange(1, 100_000), 2**31 - 2 ** torch.arange(17, 31)))[None]
    noisy_BV = sampling._add_noise(torch.ones(high_BV.shape), high_BV.to(torch.int32))
    exact_BV = -1 / torch.log((2**31 - high_BV) / 2**31)
    assert ((noisy_BV / exact_BV - 1).abs() < sampling._MARGIN / 5).all()


def test_a_token_with_probability_zero_is_never_sampled() -> None:
    logits_V = torch.tensor([-math.inf, 1.0, -math.inf, -math.inf, 0.5, -math.inf])
    token_B, logp_B, num_candidates_B = sample_tokens(
        logits_V.expand(NUM_SAMPLES, -1), seeds(), top_k=0, top_p=1.0, greedy=False
    )
    assert set(token_B.tolist()) == {1, 4}
    assert logp_B.isfinite().all()
    assert set(num_candidates_B.tolist()) == {2}


def test_rare_tokens_of_a_large_vocabulary_are_as_frequent_as_they_should_be() -> None:
    """9,999 tokens of 1e-6 each after one with the rest: 1 % of 30,000 rows, spread evenly over 20 parts."""
    logits_V = torch.full((10_000,), math.log(1e-6))
    logits_V[0] = math.log(1 - 9_999e-6)
    count_P = torch.zeros(20)
    for chunk in range(30):
        seed_B22 = seeds(1000, key=chunk)
        logits_BV = logits_V.expand(1000, -1)
        token_B = sample_tokens(logits_BV, seed_B22, top_k=0, top_p=1.0, greedy=False, with_counts=False)[0]
        count_P += torch.bincount(token_B[token_B > 0] // 500, minlength=20)
    expected = 30_000 * 0.01 / 20
    assert abs(float(count_P.sum()) - 300) < 4 * math.sqrt(300)
    assert float(((count_P - expected) ** 2 / expected).sum()) < 45.3  # 1 in 1000 with 20 degrees of freedom


def test_slightly_different_logits_change_hardly_more_tokens_than_they_must() -> None:
    """The least possible share is the total variation between the two distributions; inverting the cumulative
    distribution changes two to three times as many (notes/design/noise_keys.md)."""
    generator = torch.Generator().manual_seed(0)
    logits_BV = torch.randn(4000, 300, generator=generator) * 4
    other_BV = logits_BV + torch.randn(4000, 300, generator=generator) * 0.1
    seed_B22 = seeds(4000)
    first_B, second_B = (
        sample_tokens(values, seed_B22, top_k=0, top_p=1.0, greedy=False)[0] for values in (logits_BV, other_BV)
    )
    least = float((logits_BV.softmax(-1) - other_BV.softmax(-1)).abs().sum(-1).mean()) / 2
    assert least < float((first_B != second_B).float().mean()) < 1.5 * least


@pytest.mark.parametrize("has_kernels", [True, False])
def test_a_token_does_not_depend_on_the_rows_it_is_sampled_with(
    monkeypatch: pytest.MonkeyPatch, has_kernels: bool
) -> None:
    logits_BV = torch.randn(50, 300, generator=torch.Generator().manual_seed(3)) * 3
    if not has_kernels:
        monkeypatch.setattr(sampling, "kernels_on", lambda device: None)
    together = sample_tokens(logits_BV, seeds(50), top_k=0, top_p=0.9, greedy=False)
    alone = sample_tokens(logits_BV[17:18], seeds(50)[17:18], top_k=0, top_p=0.9, greedy=False)
    assert all(left[17:18].equal(right) for left, right in zip(together, alone, strict=True))


def test_without_kernels_the_same_tokens_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    logits_BV = torch.randn(400, 300, generator=torch.Generator().manual_seed(4)) * 3
    sampled = [sample_tokens(logits_BV, seeds(400), top_k=0, top_p=1.0, greedy=False)]
    monkeypatch.setattr(sampling, "kernels_on", lambda device: None)
    sampled.append(sample_tokens(logits_BV, seeds(400), top_k=0, top_p=1.0, greedy=False))
    assert sampled[0][0].equal(sampled[1][0])
    assert sampled[0][2].equal(sampled[1][2])
    torch.testing.assert_close(sampled[0][1], sampled[1][1], rtol=0, atol=1e-5)


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
    token_B, logp_B, num_candidates_B = sample_tokens(logits_BV, seeds(20), top_k=0, top_p=1.0, greedy=True)
    assert torch.equal(token_B, logits_BV.argmax(-1))
    assert logp_B.dtype == torch.float32
    assert not logp_B.any()
    assert set(num_candidates_B.tolist()) == {1}
