"""A hash table from keys to row numbers for tens of millions of keys, in a few flat arrays.

Every row has the same number of keys, B. Entry e = row * B + b stands in a chain: `_head` has the newest entry of each
bucket, `_next` the one before it. A Python dict of lists takes some 250 bytes a key; this takes 8, and 64 MB in all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

BUCKETS = 2**24
_FIRST_ROWS = 1024


class Buckets:
    """keys_B: one 64-bit key for each of B bands. Two keys count as equal when 56 of their bits are: 24 choose the
    bucket and 32 are kept. Of two other keys that happens once in 10^17, and costs the caller one comparison."""

    def __init__(self, bands: int) -> None:
        self._bands, self._rows = bands, 0
        self._head = np.zeros(BUCKETS, np.uint32)  # an entry's number + 1, 0 for none; pages never touched cost nothing
        self._next = np.empty(_FIRST_ROWS * bands, np.uint32)
        self._kept = np.empty(_FIRST_ROWS * bands, np.uint32)

    def __len__(self) -> int:
        return self._rows

    def rows_with(self, keys_B: Any) -> list[int]:
        """The rows that share a key with these, in order."""
        at = self._head[keys_B % BUCKETS]
        kept = (keys_B >> np.uint64(32)).astype(np.uint32)
        found: set[int] = set()
        while (chained := at > 0).any():
            at, kept = at[chained] - 1, kept[chained]
            found.update((at[self._kept[at] == kept] // self._bands).tolist())
            at = self._next[at]
        return sorted(found)

    def add(self, keys_B: Any) -> None:
        """The next row."""
        start, end = self._rows * self._bands, (self._rows + 1) * self._bands
        if end > len(self._next):
            self._next, self._kept = (_grown(column, 2 * len(column)) for column in (self._next, self._kept))
        bucket = keys_B % BUCKETS
        self._kept[start:end] = keys_B >> np.uint64(32)
        for entry, place in enumerate(bucket.tolist(), start=start):  # in turn: two bands may fall into one bucket
            self._next[entry] = self._head[place]
            self._head[place] = entry + 1
        self._rows += 1


def _grown(column: Any, size: int) -> Any:
    grown = np.empty(size, column.dtype)
    grown[: len(column)] = column
    return grown


def mixed(keys_B: Any, context: int) -> Any:
    """The keys with the context in them, every bit of either felt in all (the finaliser of MurmurHash3)."""
    keys_B = keys_B ^ np.uint64(context)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        keys_B = (keys_B ^ (keys_B >> np.uint64(33))) * np.uint64(factor)
    return keys_B ^ (keys_B >> np.uint64(33))
