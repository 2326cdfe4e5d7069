"""The disk space that checkpoints need: of a run, before its model is loaded, and of a stage, before its first step."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

from ansatz.config.schema import Config, SaveSection
from ansatz.errors import ModelError, NoSpaceError
from ansatz.links import make_folder
from ansatz.models.tiny import recipe_shape
from ansatz.train.checkpoint import list_checkpoints
from ansatz.train.trainer import Checkpointed

GB = 10**9


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def check_run_space(config: Config, *, free: Callable[[Path], int] = free_bytes) -> None:
    """Raise NoSpaceError, with the sum, if a new run cannot fit on the disk in any precision of the weights.

    Needs no weights, and counts only files that the RL stage is sure to keep. A model of unknown shape passes.
    """
    try:
        parameters = recipe_shape(config).num_parameters
    except ModelError:
        return
    moment_bytes = 2 if config.train.optimizer.get("name") == "adamw_8bit" else 8
    per_weight = 2 + (0 if config.model.lora is not None else moment_bytes)
    num_checkpoints = min(config.save.keep, -(-config.train.steps // config.save.every))
    folder = next(each for each in (config.run_dir, *config.run_dir.absolute().parents) if each.is_dir())
    published = (0, 0)
    if config.model.lora is None and (config.rollout.lag or config.cluster.workers or config.cluster.trainers):
        published = published_weights(config, 2 * parameters)
    num_light = 0 if config.save.optimizer == "all" else num_checkpoints - 1
    total = num_checkpoints * per_weight - num_light * (per_weight - 2)
    needed, available = parameters * total + math.prod(published), free(folder)
    if needed > available:
        light = f" in the newest and 2 in the other{'s' if num_light > 1 else ''}" if num_light else ""
        raise NoSpaceError(
            f"{config.run_dir}: {num_checkpoints} checkpoints (save.keep = {config.save.keep}) of {parameters:,} "
            f"weights, each with at least {per_weight} bytes per weight{light}, {_and_published(published)}need "
            f"{needed / GB:.3g} GB, but only {available / GB:.3g} GB are free on this disk. {_advice(config.save)}"
        )


def _advice(save: SaveSection) -> str:
    optimizer = ", set save.optimizer to last" if save.optimizer == "all" else ""
    return f"Free some space, lower save.keep{optimizer}, or write the run elsewhere with --out."


def published_weights(config: Config, version_bytes: int) -> tuple[int, int]:
    """Return the number of versions of the weights that samplers need on the disk at once, and the bytes of one."""
    return config.rollout.lag + 2, version_bytes


def check_space(
    folder: Path,
    trainer: Checkpointed,
    save: SaveSection,
    *,
    for_rollback: int = 0,
    held_bytes: int = 0,
    published: tuple[int, int] = (0, 0),
    free: Callable[[Path], int] = free_bytes,
) -> None:
    """Raise NoSpaceError, with the sum, if the checkpoints that the stage will add do not fit on the disk.

    for_rollback: checkpoints that are kept besides the newest and the best. One more exists while a checkpoint is
    written, because the oldest is removed after that. held_bytes: of the files of the stage in each checkpoint.
    published: see `published_weights`.
    """
    make_folder(folder)
    checkpoint_bytes, weights_bytes = trainer.checkpoint_bytes + held_bytes, trainer.weights_bytes
    others, num_old = for_rollback + bool(save.best), len(list_checkpoints(folder))
    num_new = max(save.keep + others + 1 - num_old, 1)
    num_light = 0 if save.optimizer == "all" else min(max(save.keep - 1 + bool(save.best) - num_old, 0), num_new - 1)
    needed = num_new * checkpoint_bytes - num_light * (checkpoint_bytes - weights_bytes) + math.prod(published)
    available = free(folder)
    more = f"{others} for save.best and rollbacks, " if others else ""
    light = f", {num_light} of them without optimizer state ({weights_bytes / GB:.3g} GB)" if num_light else ""
    if needed > available:
        raise NoSpaceError(
            f"{folder}: {num_new} checkpoints (save.keep = {save.keep}, {more}and one while it is written) of "
            f"{checkpoint_bytes / GB:.3g} GB each{light} {_and_published(published)}need {needed / GB:.3g} GB, but "
            f"only {available / GB:.3g} GB are free on this disk. {_advice(save)}"
        )


def _and_published(published: tuple[int, int]) -> str:
    versions, version_bytes = published
    size = f"{version_bytes / GB:.3g} GB each"
    return f"and {versions} versions of the weights for samplers of {size} " if math.prod(published) else ""
