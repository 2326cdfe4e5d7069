"""`ansatz init DIR`: a first project, ready to train and to change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ansatz.config.packaged import STARTER
from ansatz.errors import ConfigError
from ansatz.visible import say


def init(
    folder: Annotated[Path, typer.Argument(help="The folder to create. It may exist if it is empty.")],
) -> None:
    """Create a small project: a recipe with comments, ten problems, a reward and a README.

    It trains at once, in about a minute on a CPU: ansatz train DIR/recipe.yaml.
    """
    import shutil

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        problem = "is not empty" if folder.is_dir() else "is a file"
        raise ConfigError(f"{str(folder)!r} {problem}. Give a new or empty folder.")
    folder.mkdir(parents=True, exist_ok=True)
    files = sorted(path for path in STARTER.iterdir() if path.is_file())
    for file in files:
        shutil.copyfile(file, folder / file.name)
    say(f"Created {', '.join(file.name for file in files)} in {folder}.")
    say(f"Now run: ansatz train {folder / 'recipe.yaml'}")
