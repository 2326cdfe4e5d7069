"""`ansatz sweep FILE`: run the missing parts of an experiment, block by block, and add their rows."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer

from ansatz.cli.recipe import TrustCode
from ansatz.track.sweep_rows import FOLDER
from ansatz.visible import say


def sweep(
    file: Annotated[Path, typer.Argument(help="A sweep file; docs/how-to/sweep_a_key.md shows one.")],
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Check every arm on the first block and the recipes of the others, print the table and the expected "
            "time, run nothing.",
        ),
    ] = False,
    processes: Annotated[int, typer.Option(help="Cells that run at the same time.", min=1, max=1024)] = 2,
    rows: Annotated[Path | None, typer.Option(help="Folder of the files of rows. Default: that of the runs.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs.")] = FOLDER,
    trust_code: TrustCode = False,
    track: Annotated[
        list[str] | None, typer.Option(help="Send the runs to wandb, trackio or mlflow, as a group; can be repeated.")
    ] = None,
) -> None:
    """Run every cell of a sweep file that has no row yet, and print the mean of each arm and the verdict on each rule.

    A cell is an arm on a block: one run. All arms are checked on the first block before a cell starts. A sweep that was
    killed goes on when it is started again, and ends with the same rows.
    """
    from ansatz.cli.train import following
    from ansatz.findings.cells import Cells, check_cells
    from ansatz.findings.rows import RowFile
    from ansatz.findings.run import run_sweep
    from ansatz.findings.sweep_file import read_sweep

    read = read_sweep(file)
    cells = Cells(read, out, trust_code=trust_code or None)
    planned = check_cells(cells)
    stored = RowFile(rows or out, read, file)
    missing = [cell for cell in planned if not stored.has(cell)]
    say(f"{read.name}: {len(planned)} cells, {len(missing)} without a row")
    done, of = (Counter(arms) for arms in ((row["arm"] for row in stored.rows), (cell.arm for cell in planned)))
    for arm, keys in read.all_arms.items():
        say(f"  {arm:32} {done[arm]:3} of {of[arm]}  {keys or 'nothing differs'}")
    costs = stored.costs()
    if costs and missing:
        minutes = len(missing) * fmean(costs) / processes / 60
        say(f"expected time: {minutes:.0f} minutes with {processes} processes, from {len(costs)} finished cells")
    if not dry_run:
        with following(cells.out, track or [], group=read.name):
            run_sweep(cells, stored, processes=processes, say=partial(say, flush=True))
        pages = f"pages: ansatz view {out}" if rows is None else f"pages: ansatz view {rows} {out}"
        say(*stored.summarise(), *stored.judge(), pages, sep="\n")
