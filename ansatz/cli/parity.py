"""`ansatz parity FILE`: certificates against other projects' own numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def parity(
    file: Annotated[Path, typer.Argument(help="A file of parity cases (JSON), such as ../shared/parity/visible.json.")],
) -> None:
    """Compare our advantages, losses and gradients with other projects' own, family by family; exit 1 when one
    differs."""
    from ansatz.certify.parity import certify, render

    results = certify(file)
    for line in render(results):
        typer.echo(line)
    if any(not result.agrees and result.left_out is None for result in results):
        raise typer.Exit(1)
