"""Makes a stored update again (`train.skipped`), to look for the cause."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ansatz.audit.bundle import read_bundle
from ansatz.errors import CheckpointError
from ansatz.links import check_no_links, hold
from ansatz.models.load import cast, load_policy
from ansatz.objectives.objective import Objective
from ansatz.train.batch import LossBatch, TrainBatch
from ansatz.train.optim import MasterAdamW
from ansatz.train.packed import PackedRollouts
from ansatz.train.step import UpdateReport, UpdateSettings, train_step


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
