"""Environments of the kinds of run. An untrained model writes the ends of their turns often."""

from __future__ import annotations

from ansatz.environments import Environment
from ansatz.environments.calculator import calculate
from ansatz.environments.python import python
from ansatz.types import Problem


class Counting(Environment):
    """Opens the conversation, and answers a turn with a number that depends on all turns so far."""

    turn_ends = ("e", "o", "1")

    def __init__(self) -> None:
        self._num_characters = 0

    def reset(self, problem: Problem) -> str:
        return f"Problem {problem.id}."

    def step(self, response: str) -> str:
        self._num_characters += len(response)
        return f" {calculate(f'{self._num_characters} * {len(response)} + 1')} "

    def reward(self) -> float:
        return float((self._num_characters + len(self.open_turn)) % 2 == 0)


class Programs(Environment):
    """Answers a turn with what a program in the sandbox prints, which has kept its variables since the turn before."""

    turn_ends = ("e", "o")

    def __init__(self) -> None:
        self._python = python(timeout_s=5.0)
        self.grace_s, self.parallel = self._python.grace_s, self._python.parallel

    async def step(self, response: str) -> str | None:
        return await self._python.step(f"<code>n = globals().get('n', 0) + {len(response)}\nn * n</code>")

    def close(self) -> None:
        self._python.close()
