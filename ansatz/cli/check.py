"""`ansatz check RECIPE`: does the mathematics hold on this very model, objective and data?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from ansatz.config import load_recipe


def check(
    context: typer.Context,
    recipe: Annotated[Path, typer.Argument(help="A recipe file, or the name of an installed recipe.")],
    overlay: Annotated[
        list[Path] | None, typer.Option(help="A YAML file laid over the recipe; may be repeated.")
    ] = None,
    prompts: Annotated[int, typer.Option(min=1, help="How many training prompts to sample.")] = 4,
) -> None:
    """Print a table of what must hold whatever the recipe; exit code 1 when a row fails.

    The step's gradient does not depend on slices, order, packing, padding or ranks; equal policies give ratio 1 and
    REINFORCE's gradient; sampler and trainer agree on log-probs. In float32, in a minute for a small model.
    """
    config = load_recipe(recipe, overlays=overlay or [], overrides=context.obj)

    from rich.console import Console
    from rich.table import Table

    from ansatz.certify.check import check_recipe

    table = Table(title=f"{config.name}: {config.algorithm.get('preset', 'grpo')}", title_justify="left")
    for column in ("", "what must hold", "measured", "at most", "how"):
        table.add_column(column)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for row in check_recipe(config, Path(folder), num_prompts=prompts):
            failed += not row.passed
            mark = "-" if row.measured is None else "ok" if row.passed else "FAILS"
            measured = "by design" if row.measured is None else f"{row.measured:.1e}"
            table.add_row(mark, row.what, measured, f"{row.tolerance:.0e}", row.note)
    Console().print(table)
    raise typer.Exit(code=1 if failed else 0)
