"""The tokens of some groups of a step, in samples/step-000012.tokens.npy: what the update did to each of them.

One record of 17 bytes per token. Differences are stored instead of pairs of log-probs: two float16 near -8 differ by
0.004 from rounding alone, which is more than what an update or a mismatch amounts to.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ansatz.errors import DataError
from ansatz.files import sync

RECORD = [
    ("id", "<i4"),
    ("end", "<i4"),
    ("behavior_logp", "<f4"),
    ("d_behavior", "<f2"),
    ("d_after", "<f2"),
    ("sampled", "u1"),
]
"""id of the token; end: characters of the response up to its end; log-prob when it was sampled; log-prob of the trainer
before the update minus that; log-prob after the update minus that before; 0 for a forced token."""
RECORD_BYTES = 17


class TokenFacts(NamedTuple):
    """What is known of the tokens of one response. before, after: log-probs of the policy, around the update. sampled:
    empty if the policy sampled every token."""

    ids: Sequence[int]
    ends: Sequence[int]
    behavior: Sequence[float]
    before: Sequence[float]
    after: Sequence[float]
    sampled: Sequence[bool]


def write_tokens(path: Path, responses: Sequence[TokenFacts]) -> None:
    """Replace the file by the tokens of these responses, one after the other. Raise OSError if the disk is full."""
    import numpy as np  # here, as a viewer starts without it

    records = np.zeros(sum(len(each.ids) for each in responses), RECORD)
    at = 0
    for each in responses:
        token = records[at : at + len(each.ids)]
        behavior, before, after = (
            np.asarray(values, np.float64) for values in (each.behavior, each.before, each.after)
        )
        token["id"], token["end"], token["behavior_logp"] = each.ids, each.ends, behavior
        token["sampled"] = each.sampled or True
        token["d_behavior"] = np.where(token["sampled"], before - behavior, 0)
        token["d_after"] = np.where(token["sampled"], after - before, 0)
        at += len(each.ids)
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("wb") as file:
        np.save(file, records, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync(path.parent)


def read_tokens(path: Path, start: int, stop: int) -> Any:
    """Return the records of one response, read without the rest of the file. Raise DataError if it was changed."""
    import numpy as np

    try:
        records = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}). The responses themselves are whole.") from error
    if records.dtype != np.dtype(RECORD) or not 0 <= start <= stop <= len(records):
        raise DataError(f"{path} does not hold the tokens {start} to {stop}. The responses themselves are whole.")
    return np.array(records[start:stop])
