"""A resumable stream of problems: epoch after epoch, each in its own order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansatz.data.curriculum import Curriculum, CurriculumSettings, ProblemOutcome
from ansatz.data.keyed_random import KeyedRandom
from ansatz.errors import CheckpointError, DataError
from ansatz.types import Problem


class ProblemStream:
    """An endless stream of problems, `take(n)` at a time. Every problem comes once per epoch, in an order that depends
    on (seed, epoch). in_order: in their own order instead.

    With a curriculum, the curriculum selects the problems instead, by the outcomes that `observe` receives after each
    step. `state()` is a small JSON object for the checkpoint. After `restore(state)`, a stream over the same problems
    returns exactly the problems that the first stream would have returned.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        *,
        seed: int,
        curriculum: CurriculumSettings | None = None,
        in_order: bool = False,
    ) -> None:
        if not problems:
            raise DataError(
                "a problem stream needs at least one problem, got none. Check path, split and limit of the source."
            )
        self._problems, self._seed, self._in_order = problems, seed, in_order
        self._epoch, self._position = 0, 0
        self._order = self._order_of(0)
        self._curriculum = Curriculum(problems, curriculum, seed=seed) if curriculum else None

    @property
    def max_extra_rounds(self) -> int:
        """Return the maximum number of extra sampling rounds of a step, to replace groups without a signal: the
        recipe's `data.curriculum.dynamic_sampling`, 0 without a curriculum."""
        return self._curriculum.settings.dynamic_sampling if self._curriculum else 0

    def take(self, n: int) -> list[Problem]:
        """Return the next n problems; they can span two epochs.

        With a curriculum, no problem occurs twice in a step, so there can be fewer than n.
        """
        if self._curriculum is not None:
            return [self._problems[i] for i in self._curriculum.take(n)]
        taken: list[Problem] = []
        while len(taken) < n:
            if self._position == len(self._order):
                self._epoch, self._position = self._epoch + 1, 0
                self._order = self._order_of(self._epoch)
            indices = self._order[self._position : self._position + n - len(taken)]
            taken += [self._problems[i] for i in indices]
            self._position += len(indices)
        return taken

    def observe(self, outcomes: Iterable[ProblemOutcome], *, pending: Iterable[str] = ()) -> None:
        """Pass the outcomes of a step to the curriculum, which ends the curriculum's step. No effect without one.

        pending: ids of problems whose outcome a later step will observe. They are not taken again before that.
        """
        if self._curriculum is not None:
            self._curriculum.observe(outcomes, pending=pending)

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the curriculum; empty without one."""
        return self._curriculum.metrics() if self._curriculum else {}

    def state(self) -> dict[str, Any]:
        curriculum = {} if self._curriculum is None else {"curriculum": self._curriculum.state()}
        identity = {key: value for key, value in self._identity().items() if value is not None}
        return {**identity, "epoch": self._epoch, "position": self._position, **curriculum}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Raise CheckpointError if the state belongs to other problems or to another order: problems would be
        repeated."""
        for key, value in self._identity().items():
            if state.get(key) != value:
                raise CheckpointError(
                    f"the checkpoint's data cursor has {key} = {state.get(key)!r}, but this run has {value!r}. "
                    "Resume with the data settings and the seed of the run that wrote the checkpoint."
                )
        if ("curriculum" in state) != (self._curriculum is not None):
            raise CheckpointError(
                "the checkpoint and this run disagree about data.curriculum: one has it, the other does not. "
                "Resume with the data settings of the run that wrote the checkpoint."
            )
        if self._curriculum is not None:
            self._curriculum.restore(state["curriculum"])
        self._epoch, self._position = int(state["epoch"]), int(state["position"])
        self._order = self._order_of(self._epoch)

    def inherit(self, state: Mapping[str, Any]) -> None:
        """Begin with the knowledge of a finished stream's curriculum over the same problems. No effect if one of the
        two has no curriculum, or if the problems are others."""
        same = all(state.get(key) == self._identity()[key] for key in ("size", "first_id", "last_id"))
        if self._curriculum is not None and "curriculum" in state and same:
            self._curriculum.inherit(state["curriculum"])

    def _identity(self) -> dict[str, Any]:
        return {
            "size": len(self._problems),
            "first_id": self._problems[0].id,
            "last_id": self._problems[-1].id,
            "seed": self._seed,
            "in_order": True if self._in_order else None,  # older checkpoints do not say
        }

    def _order_of(self, epoch: int) -> Sequence[int]:
        if self._in_order:
            return range(len(self._problems))
        return KeyedRandom(self._seed, "epoch", epoch).shuffled(range(len(self._problems)))
