"""Checkpoints: folders that appear whole or not at all, each of them an ordinary Hugging Face folder too.

    checkpoints/step-000025/    config.json, model.safetensors (float32 masters), tokenizer files
                                optimizer.safetensors, state.json (step, data cursor, random states)

A checkpoint is written beside its place, flushed to disk, and renamed; a kill at any moment leaves the last one whole.
"""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from ansatz.errors import CheckpointError
from ansatz.models.load import Policy, save_model
from ansatz.train.optim import MasterAdamW

OPTIMIZER_FILE, STATE_FILE = "optimizer.safetensors", "state.json"


def save(folder: Path, *, step: int, policy: Policy, optimizer: MasterAdamW, state: dict[str, Any], keep: int) -> Path:
    """Write checkpoints/step-NNNNNN of `folder` and drop all but the newest `keep`. state: the loop's own, as JSON."""
    root = folder / "checkpoints"
    final, draft = root / f"step-{step:06d}", root / f".step-{step:06d}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    save_model(policy, draft, state=optimizer.weights())
    save_file({name: value.contiguous() for name, value in optimizer.state().items()}, draft / OPTIMIZER_FILE)
    whole = {"step": step, **state, "random": random_states()}
    (draft / STATE_FILE).write_text(json.dumps(whole), encoding="utf-8")
    for path in (*draft.iterdir(), draft):
        _flush(path)
    shutil.rmtree(final, ignore_errors=True)
    draft.rename(final)
    _flush(root)
    for old in list_checkpoints(folder)[:-keep]:
        shutil.rmtree(old)
    return final


def list_checkpoints(folder: Path) -> list[Path]:
    """The whole checkpoints of a stage folder, oldest first."""
    return sorted((folder / "checkpoints").glob("step-*"))


def latest(folder: Path) -> Path | None:
    found = list_checkpoints(folder)
    return found[-1] if found else None


def restore(checkpoint: Path, *, optimizer: MasterAdamW) -> dict[str, Any]:
    """Put weights, optimiser and random states back; returns the loop's state with its "step"."""
    try:
        state: dict[str, Any] = json.loads((checkpoint / STATE_FILE).read_text(encoding="utf-8"))
        weights = load_file(checkpoint / "model.safetensors")
        moments = load_file(checkpoint / OPTIMIZER_FILE)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{checkpoint} is no whole checkpoint ({error}). Resume from another one.") from error
    optimizer.load(weights, moments)
    set_random_states(state["random"])
    return state


def random_states() -> dict[str, Any]:
    """Python's, NumPy's and torch's global generators as JSON. Ansatz draws from none of them; a user's reward may."""
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    torch_states = [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [])]
    return {
        "python": random.getstate(),
        "numpy": [name, keys.tolist(), position, has_gauss, cached],  # pyright: ignore[reportAttributeAccessIssue]
        "torch": [base64.b64encode(state.numpy().tobytes()).decode() for state in torch_states],
    }


def set_random_states(states: dict[str, Any]) -> None:
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    np.random.set_state(tuple(states["numpy"]))
    decoded = [torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8) for text in states["torch"]]
    torch.set_rng_state(decoded[0])
    if torch.cuda.is_available() and len(decoded) > 1:
        torch.cuda.set_rng_state_all(decoded[1:])


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
