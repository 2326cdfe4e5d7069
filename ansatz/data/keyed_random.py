"""Random draws and a hash that are the same in every process and every Python version.

All draws are derived from `random.Random(str).random()`. The language guarantees its sequence for a given seed. It does
not guarantee the sequences of `randrange`, `choice` or `shuffle`, and `hash()` differs between processes.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def hash64(text: str) -> int:
    """Return a 64-bit hash. Among two million texts, a collision occurs about once in ten million runs."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "big")


class KeyedRandom:
    """A stream of random draws that depends only on its key, for example KeyedRandom(seed, "train", 17)."""

    def __init__(self, *key: object) -> None:
        self.uniform = random.Random("/".join(map(str, key))).random

    def between(self, low: int, high: int) -> int:
        """Return a uniformly distributed integer n with low <= n <= high."""
        return low + int(self.uniform() * (high - low + 1))

    def choice(self, options: Sequence[T]) -> T:
        return options[int(self.uniform() * len(options))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        keys = [self.uniform() for _ in items]
        return [items[i] for i in sorted(range(len(items)), key=keys.__getitem__)]
