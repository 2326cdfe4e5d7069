"""Environments for tests that need no tool: a function answers the turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ansatz.environments.base import Environment, EnvironmentSpec, TurnSettings


class Scripted(Environment):
    """answer: from the text of a turn to the observation, None to end the response. delay_s: how long a step takes.

    turns: those that it has been given so far.
    """

    def __init__(
        self, answer: Callable[[str], str | None], *, turn_ends: Sequence[str] = (), delay_s: float | None = None
    ) -> None:
        self._answer, self.turn_ends, self._delay_s = answer, tuple(turn_ends), delay_s
        self.instant = delay_s is None
        self.turns: list[str] = []

    def step(self, response: str) -> str | None:
        if self._delay_s:
            time.sleep(self._delay_s)
        self.turns.append(response)
        return self._answer(response)


class Rewarding(Scripted):
    """The same with a reward. gives: the reward of an environment."""

    gives: Callable[[Scripted], Any]

    def reward(self) -> Any:
        return self.gives(self)


def scripted(
    answer: Callable[[str], str | None],
    *,
    turn_ends: Sequence[str] = (),
    delay_s: float | None = None,
    turns: int = 9,
    timeout_s: float = 5.0,
    gives: Callable[[Scripted], Any] | None = None,
) -> EnvironmentSpec:
    """An environment that answers every response in the same way. delay_s: None answers in the sampling thread.

    gives: its reward; None: it rewards nothing.
    """

    def make() -> Scripted:
        if gives is None:
            return Scripted(answer, turn_ends=turn_ends, delay_s=delay_s)
        environment = Rewarding(answer, turn_ends=turn_ends, delay_s=delay_s)
        environment.gives = gives
        return environment

    settings = TurnSettings(turns=turns, timeout_s=timeout_s)
    return EnvironmentSpec(name="scripted", make=make, settings=settings, sample=make())
