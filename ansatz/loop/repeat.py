"""Repeats an update that a run has skipped, to look for the cause.

>>> from ansatz.loop.repeat import repeat_skipped_update
>>> repeat_skipped_update("runs/mine/rl/skipped/step-000012-0")
NonFiniteError: step 12: the gradient norm is inf; ...
"""

from __future__ import annotations

import re
from pathlib import Path

from ansatz.config.load import load_run
from ansatz.loop.stages.plan import find_stage
from ansatz.train.repeat import repeat_update
from ansatz.train.step import UpdateReport


def repeat_skipped_update(folder: str | Path) -> UpdateReport:
    """Make the update of a folder in `skipped/` again, in memory. Raise NonFiniteError as the run did.

    Objectives that compare whole distributions with the reference cannot be repeated, as it is not stored.
    """
    stage_folder = Path(folder).resolve().parents[1]
    config, name = load_run(stage_folder), re.sub(r"_\d+$", "", stage_folder.name)
    return repeat_update(Path(folder), find_stage(config.declaration(name)).objective(config))
