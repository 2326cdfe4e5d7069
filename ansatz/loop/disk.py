"""The disk space that a training stage needs for its checkpoints, checked before its first step."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from ansatz.errors import ConfigError
from ansatz.train.checkpoint import list_checkpoints

GB = 10**9


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def check_space(folder: Path, *, checkpoint_bytes: int, keep: int, free: Callable[[Path], int] = free_bytes) -> None:
    """ConfigError, showing the sum, if the checkpoints that the stage will add to its folder do not fit on the disk.

    One more than `keep` exists while a checkpoint is written, because the oldest is removed after that.
    """
    folder.mkdir(parents=True, exist_ok=True)
    num_new = max(keep + 1 - len(list_checkpoints(folder)), 1)
    needed, available = num_new * checkpoint_bytes, free(folder)
    if needed > available:
        raise ConfigError(
            f"{folder}: {num_new} checkpoints (save.keep = {keep}, and one while it is written) of "
            f"{checkpoint_bytes / GB:.3g} GB each need {needed / GB:.3g} GB, but only {available / GB:.3g} GB are free "
            "on this disk. Free some space, lower save.keep, or write the run elsewhere with --out."
        )
