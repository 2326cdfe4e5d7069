"""Which side of a split a problem falls on: told by a hash, so that it stays there when other rows come and go."""

from __future__ import annotations

import hashlib

from ansatz.data.hygiene.wording import signature
from ansatz.errors import ConfigError
from ansatz.types import Problem

BY = ("question", "id")


def held_out(problem: Problem, *, share: float, seed: int = 0, by: str = "question") -> bool:
    """Whether the problem is held out.

    share: expected part of all problems that is, over 0 and under 1. by: "question" (equal questions, typesetting
    aside, fall on one side) or "id". What is held out at some share is so at every larger one. ConfigError for a
    setting out of its range.
    """
    if not 0 < share < 1:
        raise ConfigError(f"share = {share}, expected a number over 0 and under 1.")
    if by not in BY:
        raise ConfigError(f"by = {by!r}, expected {' or '.join(map(repr, BY))}.")
    key = problem.id if by == "id" else signature(problem.question)
    digest = hashlib.blake2b(f"{seed}/{key}".encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64
