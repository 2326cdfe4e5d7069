"""`ansatz recipes`: the recipes that are installed with Ansatz."""

from __future__ import annotations

from typing import Annotated

import typer


def recipes(
    name: Annotated[str | None, typer.Argument(help="Print this recipe or overlay, to be saved and changed.")] = None,
) -> None:
    """List the installed recipes and overlays, or print one of them.

    `ansatz recipes NAME > mine.yaml` makes a copy to change. `ansatz explain NAME` says what a recipe resolves to.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from ansatz.config.packaged import OVERLAYS, packaged_recipes, recipe_path, recipe_text
    from ansatz.visible import say

    if name is not None:
        say(recipe_text(recipe_path(name)), end="")
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    table.add_column("name", no_wrap=True)  # to be copied
    for head in ("hardware", "what it is"):
        table.add_column(head, overflow="fold")
    for recipe in packaged_recipes():
        table.add_row(recipe.name, recipe.hardware.partition(" ")[0] or "CPU", recipe.summary)
    table.add_section()
    for overlay in packaged_recipes(OVERLAYS):
        table.add_row(f"--overlay {overlay.name}", overlay.hardware.partition(" ")[0], overlay.summary)
    Console().print(table)
