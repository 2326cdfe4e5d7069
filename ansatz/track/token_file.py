"""The tokens of some groups of a step, in samples/step-000012.tokens.npy: how the update changed each of them.

One record of 21 bytes per token. Differences are stored instead of pairs of log-probs: two float16 near -8 differ by
0.004 from rounding alone, which is more than the effect of an update or a mismatch.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ansatz.errors import DataError
from ansatz.files import open_draft
from ansatz.links import open_file

RECORD = [
    ("id", "<i4"),
    ("end", "<i4"),
    ("behavior_logp", "<f4"),
    ("d_behavior", "<f2"),
    ("d_after", "<f2"),
    ("sampled", "u1"),
    ("d_ref", "<f2"),
    ("entropy", "<f2"),
]
"""The fields of a token. `end` is the number of characters of the response up to its end. `behavior_logp` is its
log-prob when it was sampled. `d_behavior` is the trainer's log-prob before the update minus `behavior_logp`, `d_after`
the log-prob after the update minus the log-prob before it, and `d_ref` the log-prob before the update minus the
reference's. `entropy` is taken before the update. `sampled` is 0 for a forced token, whose differences are 0 too. An
unknown number is nan."""
RECORD_BYTES = 21
_EARLIER = RECORD[:6]
"""A record before `d_ref` and `entropy` were added."""


class TokenFacts(NamedTuple):
    """The known facts about the tokens of one response. before, after: log-probs of the policy, around the update.
    entropies: of the policy before it. reference: log-probs of the reference of the KL; empty without one. sampled:
    empty if the policy sampled every token."""

    ids: Sequence[int]
    ends: Sequence[int]
    behavior: Sequence[float]
    before: Sequence[float]
    after: Sequence[float]
    entropies: Sequence[float]
    reference: Sequence[float] = ()
    sampled: Sequence[bool] = ()


def write_tokens(path: Path, responses: Sequence[TokenFacts]) -> None:
    """Replace the file by the tokens of these responses, one after the other. Raise OSError if the disk is full."""
    import numpy as np  # here, as a viewer starts without it

    records = np.zeros(sum(len(each.ids) for each in responses), RECORD)
    at = 0
    for each in responses:
        token = records[at : at + len(each.ids)]
        behavior, before, after, reference = (
            np.asarray(values, np.float64)
            for values in (each.behavior, each.before, each.after, each.reference or math.nan)
        )
        token["id"], token["end"], token["behavior_logp"] = each.ids, each.ends, behavior
        token["sampled"], token["entropy"] = each.sampled or True, each.entropies
        for name, change in (("behavior", before - behavior), ("after", after - before), ("ref", before - reference)):
            token[f"d_{name}"] = np.where(token["sampled"], change, 0)
        at += len(each.ids)
    with open_draft(path) as file:
        np.save(file, records, allow_pickle=False)


def read_tokens(path: Path, start: int, stop: int) -> Any:
    """Return the records of one response, read without the rest of the file. Raise DataError if it was changed."""
    import numpy as np

    try:
        with open_file(path) as file:
            layout: Any = np.lib.format
            is_first = layout.read_magic(file)[0] == 1
            shape, _, kind = (layout.read_array_header_1_0 if is_first else layout.read_array_header_2_0)(file)
            begin = file.tell() + start * kind.itemsize
            is_whole = kind in (np.dtype(RECORD), np.dtype(_EARLIER)) and 0 <= start <= stop <= math.prod(shape)
            is_whole = is_whole and begin + (stop - start) * kind.itemsize <= os.fstat(file.fileno()).st_size
            content = os.pread(file.fileno(), (stop - start) * kind.itemsize, begin) if is_whole else b""
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}). The responses themselves are whole.") from error
    if not is_whole:
        raise DataError(f"{path} does not hold the tokens {start} to {stop}. The responses themselves are whole.")
    records: Any = np.frombuffer(content, kind)
    found = np.zeros(stop - start, RECORD)
    found["d_ref"] = found["entropy"] = math.nan
    for name in records.dtype.names or ():
        found[name] = records[name]
    return found
