from __future__ import annotations

import pytest

from ansatz.ngrams import repeated_frac


def test_repetition_is_zero_for_distinct_and_short_and_high_for_loops():
    assert repeated_frac(range(100)) == 0
    assert repeated_frac([1] * 7) == 0
    assert repeated_frac([1, 2] * 50) == pytest.approx(1 - 2 / 93)  # 93 windows of 8, two distinct
