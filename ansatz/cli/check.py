"""`ansatz check RECIPE`: does the mathematics hold for this model, objective and data?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from ansatz.cli.recipe import Overlays, TrustCode, note
from ansatz.config import load_recipe


def check(
    context: typer.Context,
    recipe: Annotated[
        Path, typer.Argument(help="A recipe file, the folder that holds it, a run, or an installed recipe.")
    ],
    overlay: Overlays = None,
    trust_code: TrustCode = False,
    prompts: Annotated[int, typer.Option(min=1, help="Number of training prompts to sample.")] = 4,
) -> None:
    """Print a table of properties that must hold for every recipe. Exit code 1 if one of them fails.

    The gradient of a step does not depend on microbatches, order, packing, padding or ranks. Equal policies give ratio
    1 and REINFORCE's gradient. Sampler and trainer agree on log-probs. Runs in float32; a small model takes a minute.
    Refuses every recipe that `ansatz train` refuses before it starts.
    """
    trusts = trust_code or None
    config = load_recipe(recipe, overlays=overlay or [], overrides=context.obj, note=note, trust_code=trusts)

    from rich.table import Table

    from ansatz.certify.check import check_recipe
    from ansatz.objectives.build import build_objective
    from ansatz.track.console import SafeConsole

    objective = build_objective(config.algorithm, max_response_tokens=config.rollout.max_response_tokens)
    table = Table(title=f"{config.name}: {objective.preset}", title_justify="left")
    for column in ("", "property", "measured", "limit", "how"):
        table.add_column(column)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for row in check_recipe(config, Path(folder), num_prompts=prompts):
            failed += not row.passed
            mark = "-" if row.measured is None else "ok" if row.passed else "FAILS"
            measured = "by design" if row.measured is None else f"{row.measured:.1e}"
            table.add_row(mark, row.what, measured, f"{row.tolerance:.0e}", row.note)
    console = SafeConsole()
    console.print(table)
    console.print(f"{table.row_count - failed} of {table.row_count} hold", highlight=False)
    raise typer.Exit(code=1 if failed else 0)
