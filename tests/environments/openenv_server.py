"""A server of OpenEnv for the tests: it repeats a guess, and ends at "done". Run as a process with its port."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    guess: str


class Hint(Observation):
    hint: str
    turn: int


class Guessing(Environment[Guess, Hint, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._turn = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Hint:
        self._turn = 0
        return Hint(hint=f"seed {seed}", turn=0)

    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Hint:
        self._turn += 1
        return Hint(hint=f"you said {action.guess}", turn=self._turn, reward=0.25, done=action.guess == "done")

    @property
    def state(self) -> State:
        return State(step_count=self._turn)


if __name__ == "__main__":
    uvicorn.run(create_fastapi_app(Guessing, Guess, Hint), port=int(sys.argv[1]), log_level="warning")
