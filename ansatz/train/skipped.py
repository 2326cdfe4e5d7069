"""Updates that are stored so that they can be made again: those that were skipped because their loss or gradient was
nan or inf, and those that `ansatz train --bundle` names.

skipped/step-000012-0/    the policy before the update, an ordinary Hugging Face folder of float32 weights
                          bundle.json, arrays.safetensors (a step bundle, see `audit.bundle`)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError

from ansatz.audit.bundle import bundle_of, read_bundle, write_bundle
from ansatz.errors import CheckpointError, NonFiniteError
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


def repeat_update(folder: Path, objective: Objective) -> UpdateReport:
    """Make the stored update on the stored policy, in memory. Raise NonFiniteError if it is still not finite.

    Raise CheckpointError if the critic's loss or gradient was not finite, or if the objective compares whole
    distributions with the reference, because the weights of neither are stored.
    """
    bundle = read_bundle(folder)
    about = bundle.notes
    if about.get("of") == "critic":
        raise CheckpointError(
            f"{folder}: the critic's update was not finite, and its weights are not stored, so this update cannot be "
            f"repeated. Look at the values and returns of its minibatch in {folder}, or repeat the update of a policy."
        )
    if objective.token_divergence is not None and objective.kl_in == "loss":
        raise CheckpointError(
            f"{folder}: algorithm.kl = {objective.kl.name!r} compares whole distributions with the reference, whose "
            "weights are not stored, so this update cannot be repeated. Repeat one with another kl, such as k3."
        )
    check_no_links(hold(folder))
    policy = load_policy(str(folder))
    optimizer = MasterAdamW(policy.model, dtype=getattr(torch, about["dtype"]), betas=(0.9, 0.999), weight_decay=0.0)
    cast(policy, getattr(torch, about["dtype"]))
    arrays = {name: torch.from_numpy(value).to(policy.device) for name, value in bundle.arrays.items()}
    packed = PackedRollouts(**_fields(PackedRollouts, arrays))
    numbers = {"stale_corrected": about["stale_corrected"], "num_rollouts": packed.num_rollouts, "packed": packed}
    kind = LossBatch if "old_logp_T" in arrays else TrainBatch
    batch = kind(**{**_fields(kind, arrays), **numbers})
    settings = {name: value for name, value in about["settings"].items() if name != "max_logprob_gap"}
    return train_step(policy, optimizer, batch, objective, UpdateSettings(**settings), step=bundle.step)


def _fields(kind: type[Any], arrays: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    return {name.name: arrays.get(name.name) for name in dataclasses.fields(kind)}
