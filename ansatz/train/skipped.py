"""Updates that were skipped because their loss or gradient was nan or inf: stored so that they can be repeated.

skipped/step-000012-0/    the policy before the update, an ordinary Hugging Face folder of float32 weights
                          batch.pt (the minibatch: tensors and numbers only)
                          update.json (cause, policy or critic, step, settings, compute type)
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError

from ansatz.errors import CheckpointError, NonFiniteError
from ansatz.files import write_text
from ansatz.json_text import read_object
from ansatz.links import check_no_links, hold, make_new_folder, remove, rename
from ansatz.models.load import cast, load_policy
from ansatz.objectives.objective import Objective
from ansatz.train.batch import LossBatch, TrainBatch
from ansatz.train.optim import MasterAdamW
from ansatz.train.packed import PackedRollouts
from ansatz.train.step import UpdateReport, UpdateSettings, train_step

MAX_IN_A_ROW = 3
"""This number of skipped updates in a row stops a run, because further updates would fail as well."""

Trained = Literal["policy", "critic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedUpdate:
    """An update that was not made. The policy is unchanged.

    of: the model whose loss or gradient was not finite. The weights of a critic are not stored.
    """

    step: int
    cause: str
    of: Trained
    minibatch: TrainBatch
    settings: UpdateSettings
    dtype: str
    save_policy: Callable[[Path], None]

    def write(self, folder: Path) -> None:
        """Store the update; see `write_skipped`."""
        write_skipped(folder, self)


def stop_if_too_many(in_a_row: int, cause: str) -> None:
    """Raise NonFiniteError for the last of MAX_IN_A_ROW skipped updates in a row."""
    if in_a_row >= MAX_IN_A_ROW:
        raise NonFiniteError(
            f"{cause} It is the update number {in_a_row} in a row that is not finite, so the run stops. The last "
            "checkpoint is intact. Lower train.lr or look at the samples of the step, then continue with --resume "
            "and --allow-changes."
        )


def write_skipped(folder: Path, skipped: SkippedUpdate) -> None:
    """Store the update in a folder of its own. An older folder with its name is replaced as a whole.

    Raise OSError if the disk is full; an older folder is then untouched.
    """
    draft = folder.with_name(f".{folder.name}.draft")
    try:
        make_new_folder(draft)
        _write(draft, skipped)
    except (OSError, SafetensorError, RuntimeError) as error:  # the last two are how libraries report a full disk
        remove(draft, ignore_errors=True)
        raise OSError(f"{draft}: {error}") from error
    remove(folder, ignore_errors=True)
    rename(draft, folder)


def _write(folder: Path, skipped: SkippedUpdate) -> None:
    skipped.save_policy(folder)
    batch = skipped.minibatch
    fields = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}
    packed = {field.name: getattr(batch.packed, field.name) for field in dataclasses.fields(PackedRollouts)}
    packed["mask_T"] = packed.pop("sampled_mask_T")  # the name in files, also in those of earlier versions
    torch.save({**fields, "packed": packed}, folder / "batch.pt")
    settings = {**dataclasses.asdict(skipped.settings), "max_logprob_gap": None}
    about = {"step": skipped.step, "cause": skipped.cause, "of": skipped.of, "dtype": skipped.dtype}
    write_text(folder / "update.json", json.dumps({**about, "settings": settings}, indent=2))


def repeat_update(folder: Path, objective: Objective) -> UpdateReport:
    """Make the stored update on the stored policy, in memory. Raise NonFiniteError if it is still not finite.

    Raise CheckpointError if the critic's loss or gradient was not finite, because its weights are not stored.
    """
    about = read_object(folder / "update.json", error=CheckpointError, advice="Repeat another skipped update.")
    if about.get("of") == "critic":
        raise CheckpointError(
            f"{folder}: the critic's update was not finite, and its weights are not stored, so this update cannot be "
            "repeated. Look at the values and returns of its minibatch in batch.pt, or repeat the update of a policy."
        )
    check_no_links(hold(folder))
    policy = load_policy(str(folder))
    optimizer = MasterAdamW(policy.model, dtype=getattr(torch, about["dtype"]), betas=(0.9, 0.999), weight_decay=0.0)
    cast(policy, getattr(torch, about["dtype"]))
    fields = torch.load(folder / "batch.pt", map_location=policy.device, weights_only=True)
    stored = fields.pop("packed")
    stored.setdefault("sample_N", torch.arange(len(stored["reward_N"])))  # earlier versions did not store it
    packed = PackedRollouts(sampled_mask_T=stored.pop("mask_T"), **stored)
    batch = (LossBatch if "old_logp_T" in fields else TrainBatch)(**fields, packed=packed)
    settings = {name: value for name, value in about["settings"].items() if name != "max_logprob_gap"}
    return train_step(policy, optimizer, batch, objective, UpdateSettings(**settings), step=about["step"])
