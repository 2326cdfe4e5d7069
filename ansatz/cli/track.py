"""`ansatz track RUN --to TRACKER`: send the output of runs to a tracker such as W&B."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ansatz.errors import DataError
from ansatz.trust import TrustedText
from ansatz.visible import say


def track(
    folder: Annotated[Path, typer.Argument(help="A run folder, or a folder of runs such as runs/sweeps.")],
    to: Annotated[str, typer.Option(help="wandb, trackio or mlflow; or path/to/file.py:function of your own.")],
    group: Annotated[str, typer.Option(help="Name under which the tracker shows the runs together.")] = "",
) -> None:
    """Send metrics, evaluations, samples and the report of runs to a tracker. Nothing is sent twice.

    `ansatz train --track wandb` does so while the run is on.
    """
    from ansatz.track.follow import Job, follow, runs_in

    found = runs_in(folder)
    if not found:
        raise DataError(f"{folder} has no run folder. Give one that `ansatz train` wrote, such as runs/NAME.")
    job = Job(folder=str(folder), tracker=TrustedText(to), group=group, known={})
    if not follow(job, is_over=lambda: True, say=partial(say, file=sys.stderr)):
        raise DataError(f"{to} lacks a part of what {folder} holds, as said above. Give the command again.")
    say(f"{to} has {len(found)} run(s) of {folder}.")
