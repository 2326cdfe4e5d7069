"""Checkpoints: folders that appear whole or not at all, each of them an ordinary Hugging Face folder too.

    checkpoints/step-000025/    config.json, model.safetensors (float32 masters), tokenizer files
                                optimizer.safetensors (and critic, reference where there are), state.json
                                adapter/ (with model.lora: the trained weights; model.safetensors has them merged)

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
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ansatz.errors import CheckpointError, ModelError
from ansatz.models import lora
from ansatz.models.load import load_model, save_model
from ansatz.train.trainer import Trainer

STATE_FILE = "state.json"


def save(folder: Path, *, step: int, trainer: Trainer, state: dict[str, Any], keep: int) -> Path:
    """Write checkpoints/step-NNNNNN of `folder` and drop all but the newest `keep`. state: the loop's own, as JSON.

    Clears away what killed saves left. CheckpointError when the step has a checkpoint: replacing it could lose it.
    """
    root = folder / "checkpoints"
    final, draft = root / f"step-{step:06d}", root / f".step-{step:06d}.draft"
    if final.exists():
        raise CheckpointError(f"{final} exists; a step is saved once. Remove it, or start the run under another name.")
    for leftover in root.glob(".step-*.draft"):
        shutil.rmtree(leftover)
    draft.mkdir(parents=True)
    save_model(trainer.policy, draft, state=trainer.weights())
    if trainer.policy.base is not None:
        lora.save_adapters(trainer.policy, draft / lora.FOLDER, weights=trainer.optimizer.weights())
    for name, tensors in trainer.tensors().items():
        save_file({key: value.contiguous() for key, value in tensors.items()}, draft / f"{name}.safetensors")
    whole = {"step": step, "trainer": trainer.state(), "loop": state, "random": random_states()}
    (draft / STATE_FILE).write_text(json.dumps(whole), encoding="utf-8")
    for path in (*draft.rglob("*"), draft):
        _flush(path)
    draft.rename(final)
    _flush(root)
    for old in list_checkpoints(folder)[:-keep]:
        shutil.rmtree(old.rename(root / f".{old.name}.draft"))  # a half removed one must not look whole
    return final


def list_checkpoints(folder: Path) -> list[Path]:
    """The whole checkpoints of a stage folder, oldest first."""
    found = (folder / "checkpoints").glob("step-*")
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def latest(folder: Path) -> Path | None:
    found = list_checkpoints(folder)
    return found[-1] if found else None


def restore(checkpoint: Path, *, trainer: Trainer) -> tuple[int, dict[str, Any]]:
    """Put trainer and random states back, bit for bit; returns the step and the loop's own state.

    Raises CheckpointError for a folder that is not whole or is another model's.
    """
    try:
        whole: dict[str, Any] = json.loads((checkpoint / STATE_FILE).read_text(encoding="utf-8"))
        step, learners, own, randoms = (whole[key] for key in ("step", "trainer", "loop", "random"))
        weights = _trained_weights(checkpoint, trainer)
        tensors = {name: load_file(checkpoint / f"{name}.safetensors") for name in trainer.tensors()}
    except (OSError, ValueError, KeyError, SafetensorError, ModelError) as error:
        raise CheckpointError(f"{checkpoint} is no whole checkpoint ({error}). Resume from another one.") from error
    trainer.restore(weights, tensors, learners)
    set_random_states(randoms)
    return step, own


def _trained_weights(checkpoint: Path, trainer: Trainer) -> dict[str, Tensor]:
    if trainer.policy.base is not None:
        return lora.read_adapters(checkpoint / lora.FOLDER)
    return dict(load_model(checkpoint).named_parameters())  # transformers may store them under other names


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
