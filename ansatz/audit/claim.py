"""A claim of a training run, and whether the numbers of the run support it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

Status = Literal["certified", "consistent", "contradicts", "cannot tell"]


@dataclass(frozen=True, slots=True)
class Claim:
    """says: one sentence or more. example: the smallest counterexample. others: explanations that fit as well.

    "certified": the numbers are the promised ones, and no other known explanation gives them. "consistent": they are
    the promised ones, but others would look the same here. "contradicts": they are not. "cannot tell": something that
    is needed is not known.
    """

    status: Status
    name: str
    says: str
    example: str = ""
    others: Sequence[str] = ()

    @property
    def line(self) -> str:
        more = f" Smallest counterexample: {self.example}" if self.example else ""
        also = f" Also fits: {'; '.join(self.others[:6])}." if self.others else ""
        return f"{self.name}: {self.status}. {self.says}{more}{also}"


certified, consistent = partial(Claim, "certified"), partial(Claim, "consistent")
contradicts, unknown = partial(Claim, "contradicts"), partial(Claim, "cannot tell")
