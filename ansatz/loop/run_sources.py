"""What a run starts from: its recipe and the problems that it names, read once. Nothing is written here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ansatz.config.schema import Config
from ansatz.data.generated import LazyProblems
from ansatz.data.given_rows import GivenRows
from ansatz.data.unfit import collect_unfit
from ansatz.errors import DataError
from ansatz.loop.builders import source_problems
from ansatz.loop.unfit import Check, UnfitProblems
from ansatz.rewards.grader import check_golds
from ansatz.types import Problem

GENERATED = 1000
"""Problems of a generator whose gold answers are checked: they are all of one form, and 490,000 would take a minute."""


class RunSources:
    """The recipe of a run and the problems of its sections of `data`. unfit: those that were left out.

    config: the recipe; while a stage runs or is checked, the one of its entry in the list of stages.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.unfit = UnfitProblems(config.data.unfit)
        self._sources: dict[str, Sequence[Problem]] = {}

    @contextmanager
    def using(self, config: Config) -> Iterator[None]:
        """Within it, `config` is the recipe of an entry of the list of stages."""
        before, self.config = self.config, config
        try:
            yield
        finally:
            self.config = before

    @property
    def splits(self) -> tuple[str, ...]:
        """The sections of `data` that the stages of the recipe use."""
        return ("sft", "train", "heldout") if "sft" in self.config.stage_names else ("train", "heldout")

    def source(self, split: str) -> Sequence[Problem]:
        """The problems that a section of `data` names, before the stage `problems` has stored them."""
        if split not in self._sources:
            with collect_unfit() as unread:
                problems = source_problems(getattr(self.config.data, split), key=f"data.{split}")
            graded = split != "sft"  # demonstrations are imitated, never graded
            check = self._check_golds if graded else accept
            self._sources[split] = self.unfit.usable(split, problems, check, unread=unread)
        return self._sources[split]

    def usable_rows(
        self, read: Callable[[GivenRows], list[Problem]], given: GivenRows, *, key: str, check: Check
    ) -> list[Problem]:
        """What a stage learns from as it is, read from the rows that a recipe names.

        key: of the recipe. DataError if `read` or `check` refuses a row, unless data.unfit leaves it out, and if there
        is none.
        """
        with collect_unfit() as unread:
            problems = read(given)
        if not problems and not unread:
            raise DataError(
                f"{key}: {given.place} has no row that can be used. Lower {key}.min_gap, or use other rows."
            )
        return list(self.unfit.usable(key, problems, check, unread=unread))

    def _check_golds(self, problems: Sequence[Problem]) -> None:
        check_golds(self.config.rewards, problems[:GENERATED] if isinstance(problems, LazyProblems) else problems)


def accept(problems: Sequence[Problem]) -> None:
    """The check of problems that are not graded, before the model's tokenizer is known."""
