"""The recipe of a run, as frozen data. Imports no torch."""

from ansatz.config.load import load_recipe, load_run
from ansatz.config.schema import Config

__all__ = ["Config", "load_recipe", "load_run"]
