"""`ansatz report RUN`: write a run's report.html again, also while it is still running."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ansatz.errors import ConfigError
from ansatz.files import check_ordinary_files
from ansatz.track.report import write_report


def report(run: Annotated[Path, typer.Argument(help="A run folder, such as runs/NAME.")]) -> None:
    """Write the report of a run folder, finished or not, and print its path."""
    if not (run / "config.yaml").is_file():
        raise ConfigError(
            f"{str(run)!r} is not a run folder (config.yaml is missing). Give one that `ansatz train` wrote."
        )
    check_ordinary_files(run)
    print(write_report(run))
