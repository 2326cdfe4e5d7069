"""A look at the batch of the native sampler while it decodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from ansatz.rollout.native.slots import Slots

Seen = TypeVar("Seen")


def at_each_step(
    monkeypatch: pytest.MonkeyPatch,
    *,
    before: Callable[[Slots], Seen] | None = None,
    after: Callable[[Slots], Seen] | None = None,
) -> list[Seen]:
    """Fills up with what `before` or `after` says of the batch, at each decode step."""
    seen: list[Seen] = []
    decode = Slots.decode

    def looked_at(batch: Slots) -> None:
        if before:
            seen.append(before(batch))
        decode(batch)
        if after:
            seen.append(after(batch))

    monkeypatch.setattr(Slots, "decode", looked_at)
    return seen
