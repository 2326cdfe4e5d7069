"""Inspecting the batch of the native sampler while it decodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from ansatz.rollout.native.slots import Slots

Value = TypeVar("Value")


def at_each_step(
    monkeypatch: pytest.MonkeyPatch,
    *,
    before: Callable[[Slots], Value] | None = None,
    after: Callable[[Slots], Value] | None = None,
) -> list[Value]:
    """A list that collects the results of `before` and `after` at each decode step."""
    values: list[Value] = []
    decode = Slots.decode

    def observed_decode(batch: Slots) -> None:
        if before:
            values.append(before(batch))
        decode(batch)
        if after:
            values.append(after(batch))

    monkeypatch.setattr(Slots, "decode", observed_decode)
    return values
