"""Updates that are stored so that they can be made again: those that were skipped because their loss or gradient was
nan or inf, and those that `ansatz train --bundle` names.

skipped/step-000012-0/    the policy before the update, an ordinary Hugging Face folder of float32 weights
                          bundle.json, arrays.safetensors (a step bundle, see `audit.bundle`)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError

from ansatz.audit.bundle import bundle_of, write_bundle
from ansatz.errors import NonFiniteError
from ansatz.links import make_new_folder, remove, rename
from ansatz.train.batch import TrainBatch
from ansatz.train.step import UpdateSettings

MAX_IN_A_ROW = 3
"""This number of skipped updates in a row stops a run, because further updates would fail as well."""

Trained = Literal["policy", "critic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUpdate:
    """An update, and the policy before it.

    cause: why it was not made, so that the policy is unchanged; empty for an update that was made. of: the model whose
    loss or gradient was not finite. The weights of a critic are not stored. updates_per_step: the minibatches of its
    step. expected: the metrics of the update. logp_T, entropy_T: of the policy before it, if they are known.
    """

    step: int
    cause: str
    of: Trained
    minibatch: TrainBatch
    objective: Any
    settings: UpdateSettings
    dtype: str
    updates_per_step: int
    save_policy: Callable[[Path], None]
    expected: Mapping[str, float] = field(default_factory=dict[str, float])
    logp_T: torch.Tensor | None = None
    entropy_T: torch.Tensor | None = None

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


def write_skipped(folder: Path, skipped: StoredUpdate) -> None:
    """Store the update in a folder of its own. An older folder with its name is replaced as a whole.

    Raise OSError if the disk is full; an older folder is then untouched.
    """
    draft = folder.with_name(f".{folder.name}.draft")
    try:
        make_new_folder(draft)
        skipped.save_policy(draft)
        write_bundle(draft, bundle_of(skipped))
    except (OSError, SafetensorError, RuntimeError) as error:  # the last two are how libraries report a full disk
        remove(draft, ignore_errors=True)
        raise OSError(f"{draft}: {error}") from error
    remove(folder, ignore_errors=True)
    rename(draft, folder)
