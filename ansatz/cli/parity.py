"""`ansatz parity FILE`: our numbers against those of other projects."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def parity(
    file: Annotated[Path, typer.Argument(help="A file of parity cases (JSON), such as ../shared/parity/visible.json.")],
) -> None:
    """Compare our advantages, losses and gradients with those of other projects, family by family. Exit code 1 if one
    differs."""
    from ansatz.certify.parity import certify, render

    results = certify(file)
    for line in render(results):
        typer.echo(line)
    if any(not result.agrees and result.left_out is None for result in results):
        raise typer.Exit(1)
