"""Random draws that are the same in every process and every Python version.

Only `random.Random(str).random()` is used: its sequence for a seed is guaranteed by the language, that of `randrange`,
`choice` or `shuffle` is not, and `hash()` differs between processes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class KeyedRandom:
    """A stream of draws that depends on its key alone, such as KeyedRandom(seed, "train", 17)."""

    def __init__(self, *key: object) -> None:
        self.uniform = random.Random("/".join(map(str, key))).random

    def between(self, low: int, high: int) -> int:
        """A whole number, low <= n <= high."""
        return low + int(self.uniform() * (high - low + 1))

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.uniform() * len(options))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        keys = [self.uniform() for _ in items]
        return [items[i] for i in sorted(range(len(items)), key=keys.__getitem__)]
