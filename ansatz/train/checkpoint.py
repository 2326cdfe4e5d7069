"""Checkpoints: folders that appear complete or not at all, and that are ordinary Hugging Face folders.

    checkpoints/step-000025/    config.json, generation_config.json, model.safetensors, tokenizer, chat template
                                adapter/ (with model.lora: the trained weights; model.safetensors has them merged)
                                SHA256SUMS (of all other files; `sha256sum --check SHA256SUMS` verifies them too)
        training/               optimizer.safetensors (also critic and reference, if the objective uses them)
                                weights.safetensors (float32 master weights, if model.safetensors is rounded)
                                rollout_weights/ (with rollout.lag: older weights that open tickets are sampled with)
                                state.json (format, step, state of trainer, loop and random generators)
                                REMOVED (if `keep_weights` has removed all but the state and the weights)

The folder itself holds only the model, because vLLM loads every safetensors file that it finds in a folder.

A checkpoint is written to a draft folder, flushed to disk, and renamed. A kill at any moment leaves the previous
checkpoint complete. Its digests are verified before it is loaded. Without this, a run would silently resume from a
damaged file.
"""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ansatz.errors import CheckpointError
from ansatz.files import file_digest, storage_errors, sync, write_text
from ansatz.json_text import parse_json
from ansatz.links import check_no_links, list_folder, make_folder, make_new_folder, read_bytes, read_text, rename
from ansatz.links import remove as remove_path
from ansatz.train.placement import EXACT_WEIGHTS
from ansatz.train.trainer import TRAINING, Checkpointed, incomplete

STATE_FILE, DIGESTS_FILE = f"{TRAINING}/state.json", "SHA256SUMS"
_REMOVED_FILE = f"{TRAINING}/REMOVED"
_NAME = re.compile(r"step-[0-9]{6,}")
FORMAT = 4
"""Version of checkpoints. Format 3 chose tokens by another rule (`rollout.sampling`), and a resumed run would mix both
rules. Earlier formats are from before the first release."""


def capture(trainer: Checkpointed) -> dict[str, Any]:
    """Return the small part of a training state, as JSON: counters and random generators, but no weights."""
    return {"trainer": trainer.state(), "random": random_states()}


def name_of(step: int) -> str:
    """Return the name of the folder that holds the checkpoint of a step."""
    return f"step-{step:06d}"


def path_of(folder: Path, step: int) -> Path:
    """Return the checkpoint folder of a step. folder: of the stage."""
    return folder / "checkpoints" / name_of(step)


def save(
    folder: Path,
    *,
    step: int,
    trainer: Checkpointed,
    state: Mapping[str, Any],
    keep: int,
    also_keep: Callable[[Sequence[int]], Collection[int]] = lambda steps: (),
    captured: Mapping[str, Any] | None = None,
    write_more: Callable[[Path], None] | None = None,
) -> Path:
    """Write checkpoints/step-NNNNNN of `folder` and remove all but the newest `keep`. state: the loop's, as JSON.

    also_keep: gets the steps of all checkpoints, in rising order, and returns the ones to keep besides.

    captured: the result of `capture` at the end of the step; None if the step has just ended.
    write_more: writes the loop's own files into the folder of the checkpoint that only training needs.
    Also removes leftovers of killed saves. Raises CheckpointError if the step already has a checkpoint, because a kill
    during its replacement could lose it. Raises OSError if the disk is full; older checkpoints are then untouched.
    """
    root = folder / "checkpoints"
    final, draft = root / name_of(step), root / f".{name_of(step)}.draft"
    if final.exists():
        raise CheckpointError(
            f"{final} already exists, and a step is saved only once. Remove it, or start the run under another name."
        )
    for leftover in list_folder(root, ".step-*.draft"):
        remove_path(leftover)
    make_folder(make_new_folder(draft) / TRAINING)
    try:
        with storage_errors(draft):
            if write_more is not None:
                write_more(draft / TRAINING)
            trainer.save(draft)
            small = capture(trainer) if captured is None else captured
            whole = {"format": FORMAT, "step": step, "trainer": small["trainer"], "loop": state}
            write_text(draft / STATE_FILE, json.dumps({**whole, "random": small["random"]}))
            write_digests(draft)
            for path in (*draft.rglob("*"), draft):
                sync(path)
    except OSError:
        remove_path(draft, ignore_errors=True)
        raise
    rename(draft, final)
    sync(root)
    paths = {step_of(path): path for path in list_checkpoints(folder)}
    kept = also_keep(list(paths))
    for old, path in list(paths.items())[:-keep]:
        if old not in kept:
            remove(path)
    return final


def remove(path: Path) -> None:
    """Remove a checkpoint. A half-removed one must not look complete, so it becomes a draft first."""
    remove_path(rename(path, path.with_name(f".{path.name}.draft")))


def keep_weights(path: Path, *, exact: bool = True) -> None:
    """Remove the files of a checkpoint that only a resumed stage needs (`save.optimizer`), such as the optimizer state.

    exact: False removes float32 master weights too. If a kill interrupts this, the checkpoint is either still whole, or
    its digests no longer list the files that are still to be removed. The next call removes them.
    """
    kept = {"state", *([EXACT_WEIGHTS] if exact else []), Path(_REMOVED_FILE).name}
    others = [each for each in list_folder(path / TRAINING) if each.name.partition(".")[0] not in kept]
    if not others or not (path / DIGESTS_FILE).is_file():
        return
    with storage_errors(path):
        write_text(path / _REMOVED_FILE, "save.optimizer has removed what only a resumed stage needs.\n")
        names = {f"{TRAINING}/{each.name}" for each in others} | {_REMOVED_FILE}
        lines = [f"{file_digest(path / _REMOVED_FILE)}  {_REMOVED_FILE}"]
        for line in read_text(path / DIGESTS_FILE).splitlines():
            if "/".join(_listed_name(line).split("/")[:2]) not in names:
                lines.append(line)
        write_text(path / DIGESTS_FILE, "".join(f"{line}\n" for line in lines))
    for other in others:
        remove_path(other)


def is_resumable(path: Path) -> bool:
    """Tell whether a stage could be resumed from a checkpoint: `keep_weights` has not removed its optimizer state."""
    try:
        return _REMOVED_FILE not in map(_listed_name, read_text(path / DIGESTS_FILE).splitlines())
    except (OSError, ValueError):
        return True  # not a checkpoint, or a damaged one, which `restore` refuses


def check_resumable(path: Path) -> None:
    """Raise CheckpointError unless `is_resumable`."""
    if not is_resumable(path):
        raise CheckpointError(
            f"{path} holds only its weights, because save.optimizer has removed its optimizer state, so no stage can "
            f"be resumed from it. Start a new run from its weights with --name NAME --model.path {path}"
        )


def _listed_name(line: str) -> str:
    """Return the file name in a line of SHA256SUMS."""
    return line.partition("  ")[2]


def list_checkpoints(folder: Path) -> list[Path]:
    """List the complete checkpoints of a stage folder, oldest first."""
    paths = list_folder(folder / "checkpoints", "step-*")
    whole = [path for path in paths if _NAME.fullmatch(path.name) and path.is_dir()]  # `restore` refuses links by name
    return sorted(whole, key=step_of)


def step_of(path: Path) -> int:
    """Return the step of a checkpoint, by the name of its folder."""
    return int(path.name.removeprefix("step-"))


def latest(folder: Path) -> Path | None:
    """Return the newest complete checkpoint; None if there is none."""
    paths = list_checkpoints(folder)
    return paths[-1] if paths else None


def restore(checkpoint: Path, *, trainer: Checkpointed) -> tuple[int, dict[str, Any]]:
    """Restore trainer and random generators, bit for bit. Return the step and the loop's state.

    Raise CheckpointError, before anything has changed, for a damaged folder, another format or another model.
    """
    verify_digests(checkpoint)
    check_resumable(checkpoint)
    try:
        whole: dict[str, Any] = parse_json(read_bytes(checkpoint / STATE_FILE))
        if whole["format"] != FORMAT:
            raise CheckpointError(
                f"{checkpoint} has checkpoint format {whole['format']}, but this version of Ansatz reads format "
                f"{FORMAT}. Finish the run with the version that began it, or start a new run from these weights with "
                "model.path."
            )
        step, trainer_state, loop_state, randoms = (whole[key] for key in ("step", "trainer", "loop", "random"))
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise incomplete(checkpoint, error) from error
    if _NAME.fullmatch(checkpoint.name) and checkpoint.name != name_of(step):
        raise CheckpointError(
            f"{checkpoint} holds the checkpoint of step {step}: the folder was renamed or copied. Give it its own "
            f"name, {name_of(step)}, or remove it."
        )
    trainer.restore(checkpoint, trainer_state)
    set_random_states(randoms)
    return step, loop_state


def loop_state(path: Path) -> dict[str, Any]:
    """Return the loop's state in a checkpoint, without verifying its digests; empty if it cannot be read."""
    try:
        return json.loads(read_text(path / STATE_FILE))["loop"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def trainer_state(path: Path) -> dict[str, Any]:
    """Return the trainer's state in a checkpoint, after its digests have been verified; see `restore`."""
    verify_digests(path)
    return json.loads(read_text(path / STATE_FILE))["trainer"]


def write_digests(folder: Path) -> None:
    """Write the SHA256SUMS of every file in the folder, in the format of the command sha256sum."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    write_text(folder / DIGESTS_FILE, "".join(f"{file_digest(path)}  {path.relative_to(folder)}\n" for path in files))


def verify_digests(checkpoint: Path) -> None:
    """Raise CheckpointError if a file was changed. It names the file and the newest undamaged checkpoint."""
    if (damage := _damage(checkpoint)) is None:
        return
    earlier = [path for path in list_checkpoints(checkpoint.parent.parent) if path.name < checkpoint.name]
    undamaged = [path for path in reversed(earlier) if _damage(path) is None]
    good = next(filter(is_resumable, undamaged), None)
    advice = "There is no earlier undamaged checkpoint; start the stage anew by removing its folder."
    if undamaged:
        advice = (
            f"{undamaged[0]} is undamaged and holds only its weights (save.optimizer): start a new run from them with "
            f"--name NAME --model.path {undamaged[0]}, or start the stage anew by removing its folder."
        )
    if good is not None:
        advice = f"{good} is undamaged: to resume from it, rename the damaged folder to {checkpoint.name}.damaged."
    raise CheckpointError(f"{checkpoint} is damaged: {damage}. {advice}")


def _damage(checkpoint: Path) -> str | None:
    """Return the first fault of a checkpoint's files; None if all are as they were written."""
    try:
        check_no_links(checkpoint)  # libraries would open the files behind them
        lines = read_text(checkpoint / DIGESTS_FILE).splitlines()
        expected = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
        left = TRAINING if _REMOVED_FILE in expected else None  # where `keep_weights` was killed before it removed all
        if "" in expected:
            return f"{DIGESTS_FILE} is cut"
        for name, digest in expected.items():
            if not (checkpoint / name).is_file():
                return f"{name} is missing"
            if file_digest(checkpoint / name) != digest:
                return f"{name} is not as it was written (its SHA-256 differs)"
        files = (path for path in sorted(checkpoint.rglob("*")) if path.suffix in (".json", ".safetensors"))
        for path in files:  # all of these are read: without a digest, damage to them would pass
            name = path.relative_to(checkpoint)
            if path.is_file() and str(name) not in expected and name.parts[0] != left:
                return f"{DIGESTS_FILE} does not list {name}"
    except (OSError, ValueError) as error:
        return f"{DIGESTS_FILE} cannot be read ({error})"
    return None if STATE_FILE in expected else f"{DIGESTS_FILE} does not list the training state"


def random_states() -> dict[str, Any]:
    """Return Python's, NumPy's and torch's global generators as JSON. Ansatz uses none of them; a user's reward may."""
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    torch_states = [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [])]
    return {
        "python": random.getstate(),
        "numpy": [name, keys.tolist(), position, has_gauss, cached],  # pyright: ignore[reportAttributeAccessIssue]
        "torch": [base64.b64encode(state.numpy().tobytes()).decode() for state in torch_states],
    }


def seed_random_states(key: str) -> None:
    """Start the global generators of Python, NumPy and torch from a key, so that two runs draw the same numbers."""
    random.seed(key)
    np.random.seed(random.getrandbits(32))
    torch.manual_seed(random.getrandbits(63))


def set_random_states(states: Mapping[str, Any]) -> None:
    """Restore the result of `random_states`."""
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    np.random.set_state(tuple(states["numpy"]))
    decoded = [torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8) for text in states["torch"]]
    torch.set_rng_state(decoded[0])
    if torch.cuda.is_available() and len(decoded) > 1:
        torch.cuda.set_rng_state_all(decoded[1:])
