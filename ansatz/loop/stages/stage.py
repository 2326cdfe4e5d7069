"""The base of stages: its checks, the cheapest first, and its work. A stage overrides the methods that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ansatz.config.schema import Config
from ansatz.config.stage import StageDeclaration
from ansatz.loop.context import RunContext
from ansatz.loop.run_sources import RunSources
from ansatz.models.reader import Reader
from ansatz.track.rollbacks import seconds_logged


class Stage:
    """One stage of a run.

    declaration: the recipe's knowledge about it; a class in a user's file must define it. makes_policy: whether later
    stages start from the output as their policy.
    `config` is always the recipe of the stage's entry in the list of stages.
    Example: `examples/best_response.py` is a stage of a user's own.
    """

    declaration: StageDeclaration
    makes_policy: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.declaration.name

    def folders(self, config: Config, *, before: int = 0) -> Sequence[str]:
        """Return the names of the folders that an entry of the stage makes, in order. `run` is called once for each.

        before: folders of earlier entries of the same stage.
        """
        return (self.name if before == 0 else f"{self.name}_{before + 1}",)

    def steps(self, config: Config) -> int | None:
        """Return the number of steps in the recipe, if a finished stage may be extended; else None."""
        return None

    def num_steps(self, config: Config) -> int | None:
        """Return the number of steps in the recipe; None if it depends on the data."""
        section = getattr(config, self.name, None)
        return self.steps(config) or getattr(section, "steps", None) or None

    def explain(self, config: Config) -> str:
        """Describe the objective of the stage; empty if it trains nothing. Called for the stages of the recipe."""
        return ""

    def objective(self, config: Config) -> Any:
        """Return the objective of the stage's updates. `loop.repeat` makes a skipped update again with it."""
        raise NotImplementedError

    def policy_of(self, config: Config, output: str) -> str:
        """Return the model folder that later stages start from. output: the path that `run` returned."""
        return output

    def seconds_before(self, folder: Path) -> float:
        """Return the seconds that an interrupted run of the stage has recorded in its folder."""
        return seconds_logged(folder)

    def check(self, config: Config) -> None:
        """Raise for a recipe that this stage cannot run. Needs only the recipe: no data, no model, no GPU.

        Called for every stage with a section in the recipe, even if the list of stages leaves it out.
        """

    def input_checks(self, sources: RunSources) -> Iterable[Callable[[], object]]:
        """Return calls that raise if the stage needs a file, a model folder or a problem that is missing or wrong.

        Called for every stage of the recipe that is still to be done, before anything has been written.
        """
        return ()

    def check_problems(self, sources: RunSources, reader: Reader) -> None:
        """Raise for a problem that this stage cannot use with the recipe's model. Its tokenizer is now known.

        Called for every stage of the recipe before anything is written (of a generator with its first problems), and
        again with the stored problems before any training, so that no stage stops at such a problem hours later.
        """

    def run(self, context: RunContext, folder: Path) -> Path:
        """Do the work, or the rest of it if `folder` contains a part. Return the output: a path within `folder`."""
        raise NotImplementedError
