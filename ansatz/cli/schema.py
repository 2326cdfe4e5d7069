"""`ansatz schema`: the JSON schema of recipes, for editors."""

from __future__ import annotations

from typing import Annotated

import typer


def schema(
    overlay: Annotated[
        bool, typer.Option("--overlay", help="The schema of overlays, in which no key is required.")
    ] = False,
) -> None:
    """Print the JSON schema of recipes, with which an editor completes and checks them.

    `ansatz schema > recipe.schema.json` writes it to a file.
    """
    import json

    from ansatz.certify.recipe_schema import recipe_schema
    from ansatz.visible import say

    say(json.dumps(recipe_schema(overlay=overlay), indent=1, ensure_ascii=False))
