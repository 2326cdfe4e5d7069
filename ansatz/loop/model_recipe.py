"""The recipe that a model folder comes from: that of its run, or the one that was exported with it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ansatz.config.load import load_recipe, load_run
from ansatz.config.schema import Config
from ansatz.errors import ConfigError
from ansatz.loop.run_record import RECIPE_FILE, is_run_folder


class ModelRecipe(NamedTuple):
    """where: the place of the recipe, to be put after "as in"."""

    config: Config
    where: str


def recipe_of(model: Path, *, option: str) -> ModelRecipe | None:
    """The recipe of the run that the folder is a checkpoint of, or the one that was exported with the model.

    None without either, and if the exported file is another program's. option: what to give on the command line if the
    recipe of the run cannot be read, for the ConfigError.
    """
    for folder in model.resolve().parents:
        if is_run_folder(folder) and (folder / "config.yaml").is_file():
            try:
                return ModelRecipe(load_run(folder), f"the run {folder.name}")
            except ConfigError as error:
                raise ConfigError(
                    f"{model} belongs to the run {folder}, whose {option.removeprefix('--')} cannot be read: {error} "
                    f"Give {option}."
                ) from error
    file = model / RECIPE_FILE
    if not file.is_file():
        return None
    try:
        return ModelRecipe(load_recipe(file), f"the recipe that {RECIPE_FILE} of the model holds")
    except ConfigError:
        return None
