"""`ansatz recipes`: the recipes that are installed with Ansatz."""

from __future__ import annotations

from typing import Annotated

import typer


def recipes(
    name: Annotated[str | None, typer.Argument(help="Print this recipe or overlay, to be saved and changed.")] = None,
) -> None:
    """List the installed recipes and overlays, or print one of them.

    `ansatz recipes NAME > mine.yaml` makes a copy to change. `ansatz explain NAME` resolves and explains it.
    """
    import shutil
    import sys

    from ansatz.config.packaged import OVERLAYS, packaged_recipes, recipe_path, recipe_text
    from ansatz.visible import say

    if name is not None:
        say(recipe_text(recipe_path(name)), end="")
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for option, listed in (("", packaged_recipes()), ("--overlay ", packaged_recipes(OVERLAYS))):
        for recipe in sorted(listed, key=lambda each: each.hardware != ""):
            hardware = recipe.hardware.partition(" ")[0] or "CPU"
            say(f"{hardware:<9} {option}{recipe.name}  {recipe.summary}"[:width])
