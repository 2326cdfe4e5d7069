from __future__ import annotations

import numpy as np
import pytest

from ansatz.data.hygiene import buckets as module
from ansatz.data.hygiene.buckets import Buckets


@pytest.mark.parametrize("buckets", [4, 64, 2**24])
def test_rows_are_found_as_a_dict_finds_them(monkeypatch: pytest.MonkeyPatch, buckets: int) -> None:
    monkeypatch.setattr(module, "BUCKETS", buckets)
    monkeypatch.setattr(module, "_FIRST_ROWS", 8)  # grows several times
    rng = np.random.default_rng(0)
    table, twin = Buckets(3), dict[int, list[int]]()
    pool = rng.integers(2**64, size=40, dtype=np.uint64)
    for row in range(200):
        keys_B = rng.choice(pool, 3)
        expected = sorted({place for key in keys_B.tolist() for place in twin.get(key, [])})
        assert table.rows_with(keys_B) == expected
        table.add(keys_B)
        for key in keys_B.tolist():
            twin.setdefault(key, []).append(row)


def test_keys_of_one_bucket_are_distinguished_by_their_upper_half() -> None:
    table = Buckets(1)
    table.add(np.array([7], np.uint64))
    assert table.rows_with(np.array([7], np.uint64)) == [0]
    assert table.rows_with(np.array([7 + 2**32], np.uint64)) == []
    assert table.rows_with(np.array([8], np.uint64)) == []
