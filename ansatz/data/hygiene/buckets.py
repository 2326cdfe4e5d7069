"""A hash table from keys to row numbers for tens of millions of keys, stored in a few flat arrays.

Every row has the same number of keys, B. Entry e = row * B + b is part of a chain: `_head` holds the newest entry of
each bucket, `_next` the entry before it. A Python dict of lists takes about 250 bytes per key; this table takes 8 bytes
per key plus 64 MB.
"""

from __future__ import annotations

from typing import Any

import numpy as np

BUCKETS = 2**24
_FIRST_ROWS = 1024


class Buckets:
    """keys_B: one 64-bit key for each of B bands.

    Two keys count as equal if 56 of their bits are equal: 24 bits select the bucket and 32 bits are stored. For two
    different keys this happens once in 10^17 times, and costs the caller one comparison.
    """

    def __init__(self, bands: int) -> None:
        self._bands, self._rows = bands, 0
        self._head = np.zeros(BUCKETS, np.uint32)  # entry + 1, or 0 for none; pages never touched cost nothing
        self._next = np.empty(_FIRST_ROWS * bands, np.uint32)
        self._stored = np.empty(_FIRST_ROWS * bands, np.uint32)

    def rows_with(self, keys_B: Any) -> list[int]:
        """Return the rows that share at least one key with these, in order."""
        entry = self._head[keys_B % BUCKETS]
        stored = (keys_B >> np.uint64(32)).astype(np.uint32)
        rows: set[int] = set()
        while (chained := entry > 0).any():
            entry, stored = entry[chained] - 1, stored[chained]
            rows.update((entry[self._stored[entry] == stored] // self._bands).tolist())
            entry = self._next[entry]
        return sorted(rows)

    def add(self, keys_B: Any) -> None:
        """Add the keys of the next row."""
        start, end = self._rows * self._bands, (self._rows + 1) * self._bands
        if end > len(self._next):
            self._next, self._stored = (_grow(column, 2 * len(column)) for column in (self._next, self._stored))
        bucket = keys_B % BUCKETS
        self._stored[start:end] = keys_B >> np.uint64(32)
        for entry, index in enumerate(bucket.tolist(), start=start):  # one by one: two bands can share a bucket
            self._next[entry] = self._head[index]
            self._head[index] = entry + 1
        self._rows += 1


def _grow(column: Any, size: int) -> Any:
    grown = np.empty(size, column.dtype)
    grown[: len(column)] = column
    return grown


def mixed(keys_B: Any, context: int) -> Any:
    """Return the keys mixed with the context; every bit of both affects all bits (the finaliser of MurmurHash3)."""
    keys_B = keys_B ^ np.uint64(context)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        keys_B = (keys_B ^ (keys_B >> np.uint64(33))) * np.uint64(factor)
    return keys_B ^ (keys_B >> np.uint64(33))
