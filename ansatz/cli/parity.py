"""`ansatz parity`: our numbers against other projects' numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ansatz.visible import say


def parity(
    file: Annotated[
        Path | None, typer.Argument(help="A file of parity cases (JSON, plain or .gz). Default: the installed one.")
    ] = None,
) -> None:
    """Compare our advantages, losses and gradients with other projects' values, family by family. Exit code 1 if one
    differs.

    The installed cases were computed with the code of those projects; docs/parity.md names their versions.
    """
    from ansatz.certify.parity import GOLDEN, certify, render

    results = certify(GOLDEN if file is None else file)
    for line in render(results):
        say(line)
    if any(not result.agrees and result.left_out is None for result in results):
        raise typer.Exit(1)
