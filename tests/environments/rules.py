"""An environment of a user that opens the conversation, in a file that recipes of tests name."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from ansatz.environments import Environment
from ansatz.types import Problem

CALLS = [0]
"""How often `reset` has been called in this process."""


class Rules(Environment):
    """Opens with `says`: text, messages (as YAML), or a fault by its name. Answers two turns with their lengths."""

    turn_ends = (";", "e", "1")

    def __init__(self, *, says: Any = "Only even answers count.") -> None:
        self.says = says
        self.left = 2

    def reset(self, problem: Problem) -> Any:
        CALLS[0] += 1
        self.problem = problem
        faults = {
            "raise": lambda: 1 / 0,
            "exit": lambda: exit(3),
            "hang": lambda: time.sleep(5),
            "odd": lambda: 5,
            "no role": lambda: [{"content": "x"}],
            "nothing": lambda: None,
            "empty": list,
            "impure": lambda: f"You have {CALLS[0]} points.",
            "id": lambda: f"This is {problem.id}: {problem.question}",
        }
        return faults[self.says]() if isinstance(self.says, str) and self.says in faults else self.says

    def step(self, response: str) -> str | None:
        self.left -= 1
        return f"<{len(response)}>" if self.left >= 0 else None

    def reward(self) -> float:
        return 1.0


class AsyncRules(Rules):
    async def reset(self, problem: Problem) -> Any:
        return super().reset(problem)


class InstantRules(Rules):
    instant = True


class AsyncSleeper(Rules):
    async def reset(self, problem: Problem) -> Any:
        await asyncio.sleep(5)
