from __future__ import annotations

from collections import Counter

from ansatz.data.keyed_random import KeyedRandom


def test_a_key_gives_the_same_draws_everywhere() -> None:
    # CPython seeds from text by its SHA-512 (version 2, since 3.2); random.Random("3/train/17").random() = 0.66838...
    assert KeyedRandom(3, "train", 17).between(0, 999) == 668
    assert KeyedRandom(1).uniform() == KeyedRandom(1).uniform() != KeyedRandom(2).uniform()


def test_between_takes_both_ends_evenly() -> None:
    draw = KeyedRandom("ends")
    counts = Counter(draw.between(2, 5) for _ in range(8000))
    assert set(counts) == {2, 3, 4, 5}
    assert all(abs(n - 2000) < 200 for n in counts.values())  # 5 standard deviations: 5 * sqrt(8000 * 3/16) = 194


def test_shuffled_keeps_all_and_favours_no_order() -> None:
    draw = KeyedRandom("orders")
    orders = Counter(tuple(draw.shuffled("abc")) for _ in range(6000))
    assert len(orders) == 6
    assert all(abs(n - 1000) < 150 for n in orders.values())  # 5 * sqrt(6000 * 5/36) = 144
