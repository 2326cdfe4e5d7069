"""The chain of digests of a training stage: what each step sampled, and the weights that it led to.

    STAGE/chain.jsonl   {"step": 0, "arithmetic": {...}, "weights": "..."}   where a process begins
                        {"step": 1, "rollouts": "...", "logps": "...", "weights": "...", "trace": {...}}

rollouts: of problems, prompts, tokens and endings of all responses of the step; logps: of their log-probs, bit for bit.
Both are left out for stages that sample nothing. weights: `models.weights.fingerprint` of the trained parameters after
the step, and of the first row before it. trace: a mark of one byte for each response and each token, which depends on
all tokens up to there, so that the first one that differs can be found, and log-probs of the first steps.

A resumed process drops the rows of steps that it makes again, so a run that was killed has the rows of one that was
not. Rows that a full disk refuses are written with the next one. A run needs none of them, and `repeat` counts the
steps whose digests a card lacks.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from ansatz.files import append_text
from ansatz.models.arithmetic import arithmetic_class
from ansatz.models.weights import fingerprint
from ansatz.track.jsonl import Row, keep_rows, to_line
from ansatz.train.trainer import Checkpointed, trains_policy
from ansatz.types import Group, Rollout

CHAIN_FILE = "chain.jsonl"
DIGEST_BYTES = 2**30
"""Bytes of weights that a step may take a digest of, on average: larger weights have one after every n-th step."""
TRACED_BYTES, TRACED_TOKENS, TRACED_SAMPLES = 2**20, 2**14, 2**16
"""How many marks of tokens the traces of a stage hold, and each step, and how many marks of responses a step."""
LOGPS_STEPS, LOGPS_TOKENS = 4, 2**12
"""The first steps whose traces hold log-probs too, and of how many tokens."""

Listener = Callable[[str, Row], object]
"""Is called with the name of the stage's folder and each new row."""
_WAITING: dict[Path, list[str]] = {}
"""Rows that a full disk has refused, by the folder of their stage."""
_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call the listener with every row that a run in this thread writes within the block. It may raise."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def begin_chain(folder: Path, step: int, trainer: Checkpointed, *, dtype: str) -> None:
    """Begin or continue the chain of a stage whose last complete step is `step`. dtype: the value of `model.dtype`."""
    _WAITING.pop(folder, None)
    kept = keep_rows(folder / CHAIN_FILE, lambda row: type(row.get("step")) is int and row["step"] <= step)
    if not trains_policy(trainer):  # a reward model's has no policy
        return
    arithmetic = arithmetic_class(trainer.device, dtype)
    known = [row["arithmetic"] for row in kept if "arithmetic" in row]
    row: Row = {"step": step, "arithmetic": arithmetic}
    if step == 0:
        row["weights"] = fingerprint(trainer.weights().trained())
    _add(folder, row, is_written=known[-1:] == [arithmetic])


def extend_chain(folder: Path, step: int, trainer: Checkpointed, groups: Sequence[Group], *, num_steps: int) -> None:
    """Add the digests of a step. groups: all that it sampled. num_steps: of the stage."""
    row: Row = {"step": step}
    rollouts = [member.rollout for group in groups for member in group.members]
    if rollouts:
        row |= {"rollouts": _digest(map(_identity, rollouts)), "logps": _digest(map(_logps, rollouts))}
    if trains_policy(trainer) and (step == num_steps or step % (1 + trainer.weights_bytes // DIGEST_BYTES) == 0):
        row["weights"] = fingerprint(trainer.weights().trained())
    if rollouts:
        row["trace"] = _trace(rollouts, step=step, num_steps=num_steps)
    _add(folder, row)


def _add(folder: Path, row: Row, *, is_written: bool = False) -> None:
    waiting = _WAITING.setdefault(folder, [])
    waiting += [] if is_written else [to_line(row)]
    if waiting:
        with suppress(OSError):
            append_text(folder / CHAIN_FILE, "".join(waiting))
            waiting.clear()
    if (listener := _LISTENER.get()) is not None:
        listener(folder.name, row)


def _digest(parts: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:16]


def _identity(rollout: Rollout) -> bytes:
    names = f"{rollout.prompt.problem.id}\0{rollout.sample}\0{rollout.finish.value}\0{len(rollout.prompt.token_ids)}\0"
    return names.encode() + np.array([*rollout.prompt.token_ids, *rollout.token_ids], dtype="<i8").tobytes()


def _logps(rollout: Rollout) -> bytes:
    return np.array(rollout.behavior_logps, dtype="<f8").tobytes()


def _trace(rollouts: Sequence[Rollout], *, step: int, num_steps: int) -> dict[str, Any]:
    limit = max(TRACED_TOKENS // 16, min(TRACED_TOKENS, TRACED_BYTES // num_steps))
    traced = rollouts[: sum(end <= limit for end in accumulate(rollout.num_tokens for rollout in rollouts))]
    trace: dict[str, Any] = {
        "samples": _pack(bytes(_marks(rollout)[-1] for rollout in rollouts[:TRACED_SAMPLES])),
        "lengths": [rollout.num_tokens for rollout in traced],
        "tokens": _pack(b"".join(_marks(rollout)[1:] for rollout in traced)),
    }
    if step <= LOGPS_STEPS:
        logps = [logp for rollout in traced for logp in rollout.behavior_logps]
        trace["logps"] = _pack(np.array(logps[:LOGPS_TOKENS], dtype="<f4").tobytes())
    return trace


def _marks(rollout: Rollout) -> bytes:
    """Return a mark of the first 0, 1, 2 ... tokens."""
    tokens = (token.to_bytes(4, "little") for token in rollout.token_ids)
    return bytes(crc & 255 for crc in accumulate(tokens, lambda before, token: zlib.crc32(token, before), initial=0))


def _pack(data: bytes) -> str:
    return base64.b64encode(data).decode()
