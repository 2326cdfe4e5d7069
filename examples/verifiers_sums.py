"""Tasksets of the package verifiers for `ansatz train`: sums in one turn, a guessing game, and sums with a tool.

    pip install ./packages/verify '.[verifiers]'  # in a clone
    ansatz train tiny_verifiers_cpu

`environment: {name: verifiers, environment: examples/verifiers_sums.py:Guessing}` plays another one.
"""

from __future__ import annotations

from collections.abc import Iterator

import verifiers.v1 as vf
from ansatz_verify.adapters import verifiers_reward

from ansatz.data.base import load_problems


class Gold(vf.TaskData):
    answer: str


class SumTask(vf.Task[Gold]):
    """Its reward is the verifier of Ansatz."""

    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return await verifiers_reward(self.data, trace)


class SumsConfig(vf.TasksetConfig):
    split: str = "train"
    count: int = 4000
    max_level: int = 1


class Sums(vf.Taskset[SumTask, SumsConfig]):
    """Arithmetic with up to max_level operations in one turn."""

    def load(self) -> Iterator[SumTask]:
        settings = {"count": self.config.count, "max_level": self.config.max_level, "seed": 2}
        for problem in load_problems("arithmetic", split=self.config.split, settings=settings):
            yield SumTask(Gold(prompt=problem.question, answer=problem.answer), self.config.task)


class Guesses(vf.State):
    number: int = 0
    guesses: int = 0
    found: bool = False


class Game(vf.Toolset[vf.ToolsetConfig, Guesses]):
    TOOL_PREFIX = None

    async def setup_task(self, task: Gold) -> None:
        self.number = int(task.answer)

    @vf.tool
    def guess(self, number: int) -> str:
        """Say whether my number is higher or lower.

        Args:
            number: the guess
        """
        self.state.guesses += 1
        self.state.found = number == self.number
        return "Right." if self.state.found else "Higher." if number < self.number else "Lower."


class GuessingTask(vf.Task[Gold, Guesses]):
    """A game of several turns: 1 for the number, less for every further guess."""

    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset]:
        return [Game(vf.ToolsetConfig())]

    @vf.stop
    async def found(self, trace: vf.Trace) -> bool:
        return trace.state.found

    @vf.reward
    async def quick(self, trace: vf.Trace) -> float:
        return 1.0 / trace.state.guesses if trace.state.found else 0.0


class GuessingConfig(vf.TasksetConfig):
    count: int = 100


class Guessing(vf.Taskset[GuessingTask, GuessingConfig]):
    def load(self) -> Iterator[GuessingTask]:
        for n in range(self.config.count):
            data = Gold(prompt="Guess my number from 1 to 100.", answer=str(1 + 37 * n % 100))
            yield GuessingTask(data, self.config.task)


class Calculator(vf.Toolset[vf.ToolsetConfig]):
    @vf.tool
    def add(self, a: int, b: int) -> int:
        """Add two whole numbers.

        Args:
            a: the first number
            b: the second number
        """
        return a + b


class ToolSumTask(SumTask):
    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset]:
        return [Calculator(vf.ToolsetConfig())]


class ToolSums(vf.Taskset[ToolSumTask, GuessingConfig]):
    """Sums with a tool that adds."""

    def load(self) -> Iterator[ToolSumTask]:
        for n in range(self.config.count):
            data = Gold(prompt=f"What is {1000 + n} + {7 * n}?", answer=str(1000 + 8 * n))
            yield ToolSumTask(data, self.config.task)
