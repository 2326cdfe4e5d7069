"""Splits problems by a hash, so that a problem stays on its side when other rows are added or removed."""

from __future__ import annotations

import hashlib

from ansatz.data.hygiene.normalize import signature
from ansatz.errors import ConfigError
from ansatz.types import Problem

BY = ("question", "id")


def held_out(problem: Problem, *, heldout_frac: float, seed: int = 0, by: str = "question") -> bool:
    """Return whether the problem is held out.

    heldout_frac: expected fraction of the problems that are held out, between 0 and 1 (exclusive). A problem that is
    held out at one fraction is held out at every larger one. by: "question" (questions that are equal except for
    typesetting fall on the same side) or "id". Raise ConfigError for a setting outside its range.
    """
    if not 0 < heldout_frac < 1:
        raise ConfigError(f"heldout_frac = {heldout_frac}, expected a number above 0 and below 1.")
    if by not in BY:
        raise ConfigError(f"by = {by!r}, expected {' or '.join(map(repr, BY))}.")
    key = problem.id if by == "id" else signature(problem.question)
    digest = hashlib.blake2b(f"{seed}/{key}".encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < heldout_frac * 2**64
