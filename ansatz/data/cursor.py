"""A resumable stream over a sized source: epoch after epoch, each in an order of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansatz.data.curriculum import Curriculum, CurriculumSettings, ProblemOutcome
from ansatz.data.keyed_random import KeyedRandom
from ansatz.errors import CheckpointError, DataError
from ansatz.types import Problem


class ProblemStream:
    """Endless problems, `take(n)` at a time. Every problem comes once an epoch; epoch e is ordered by (seed, e).

    With a curriculum this decides what comes instead, from what `observe` was told of each step.
    `state()` is a small JSON object for the checkpoint; after `restore(state)` a stream over the same problems goes on
    with the very problems that the first one would have given.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        *,
        seed: int,
        curriculum: CurriculumSettings | None = None,
    ) -> None:
        if not problems:
            raise DataError(
                "a problem stream needs at least one problem, got none. Check the source's path, split and limit."
            )
        self._problems, self._seed = problems, seed
        self._epoch, self._position = 0, 0
        self._order = self._order_of(0)
        self._curriculum = Curriculum(problems, curriculum, seed=seed) if curriculum else None

    @property
    def dynamic_sampling(self) -> int:
        """Rounds of further sampling, at most, that a step may take to replace groups without a signal."""
        return self._curriculum.settings.dynamic_sampling if self._curriculum else 0

    def take(self, n: int) -> list[Problem]:
        """The next n problems; they may run over the end of an epoch into the next.

        With a curriculum none comes twice in a step, so there may be fewer.
        """
        if self._curriculum is not None:
            return [self._problems[i] for i in self._curriculum.take(n)]
        taken: list[Problem] = []
        while len(taken) < n:
            if self._position == len(self._order):
                self._epoch, self._position = self._epoch + 1, 0
                self._order = self._order_of(self._epoch)
            chosen = self._order[self._position : self._position + n - len(taken)]
            taken += [self._problems[i] for i in chosen]
            self._position += len(chosen)
        return taken

    def observe(self, tried: Iterable[ProblemOutcome], *, on_their_way: Iterable[str] = ()) -> None:
        """What came of a step's problems; it ends the step of a curriculum, and means nothing without one.

        on_their_way: ids of those of which a later step will tell.
        """
        if self._curriculum is not None:
            self._curriculum.observe(tried, on_their_way=on_their_way)

    def metrics(self) -> dict[str, float]:
        """Those of the curriculum; none without one."""
        return self._curriculum.metrics() if self._curriculum else {}

    def state(self) -> dict[str, Any]:
        own = {} if self._curriculum is None else {"curriculum": self._curriculum.state()}
        return {**self._identity(), "epoch": self._epoch, "position": self._position, **own}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Raises CheckpointError when the state is of other problems or another order: going on would repeat some."""
        for key, own in self._identity().items():
            if state.get(key) != own:
                raise CheckpointError(
                    f"the checkpoint's data cursor has {key} = {state.get(key)!r}, this run has {own!r}. "
                    "Resume with the data settings and the seed of the run that wrote the checkpoint."
                )
        if ("curriculum" in state) != (self._curriculum is not None):
            raise CheckpointError(
                "of checkpoint and run one has a data.curriculum and the other has none. "
                "Resume with the data settings of the run that wrote the checkpoint."
            )
        if self._curriculum is not None:
            self._curriculum.restore(state["curriculum"])
        self._epoch, self._position = int(state["epoch"]), int(state["position"])
        self._order = self._order_of(self._epoch)

    def _identity(self) -> dict[str, Any]:
        return {
            "size": len(self._problems),
            "first_id": self._problems[0].id,
            "last_id": self._problems[-1].id,
            "seed": self._seed,
        }

    def _order_of(self, epoch: int) -> Sequence[int]:
        return KeyedRandom(self._seed, "epoch", epoch).shuffled(range(len(self._problems)))
