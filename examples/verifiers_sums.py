"""Environments of the package verifiers for `ansatz train`: sums in one turn, a guessing game, and sums with a tool.

    pip install 'ansatz-rl[verifiers]'
    ansatz train tiny_verifiers_cpu

`environment: {name: verifiers, environment: examples/verifiers_sums.py:guessing}` plays another one.
"""

from __future__ import annotations

from typing import Any

import verifiers as vf
from datasets import Dataset

from ansatz.adapters import verifiers_rubric
from ansatz.data.base import load_problems


def sums(*, count: int = 4000, max_level: int = 1) -> vf.Environment:
    """Arithmetic with up to max_level operations in one turn. The rubric is the verifier of Ansatz."""

    def rows(split: str, count: int) -> Dataset:
        settings = {"count": count, "max_level": max_level, "seed": 2}
        problems = load_problems("arithmetic", split=split, settings=settings)
        return Dataset.from_list([{"question": each.question, "answer": each.answer} for each in problems])

    return vf.SingleTurnEnv(dataset=rows("train", count), eval_dataset=rows("heldout", 200), rubric=verifiers_rubric())


class Guessing(vf.MultiTurnEnv):
    """The policy guesses a number, and hears whether it is higher or lower."""

    async def env_response(self, messages: Any, state: Any, **kwargs: Any) -> Any:
        guess = str(messages[-1].content).strip()
        if not guess.isdigit():
            return [{"role": "user", "content": "Write a number."}]
        if guess == state["answer"]:
            state["final_env_response"] = [{"role": "user", "content": "Right."}]
            return state["final_env_response"]
        return [{"role": "user", "content": "Higher." if int(guess) < int(state["answer"]) else "Lower."}]


def guessing(*, count: int = 100, max_turns: int = 7) -> vf.Environment:
    """A game of several turns: 1 for the number, less for every further guess."""

    def found(completion: Any, answer: str) -> float:
        guesses = [str(message.content).strip() for message in completion if message.role == "assistant"]
        return 1.0 / len(guesses) if guesses and guesses[-1] == answer else 0.0

    rows = [{"question": "Guess my number from 1 to 100.", "answer": str(1 + 37 * n % 100)} for n in range(count)]
    return Guessing(dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[found]), max_turns=max_turns)


def tool_sums(*, count: int = 100, max_turns: int = 4) -> vf.Environment:
    """Sums with a tool that adds."""

    def add(a: int, b: int) -> int:
        """Adds two whole numbers.

        Args:
            a: the first number
            b: the second number
        """
        return a + b

    rows = [{"question": f"What is {1000 + n} + {7 * n}?", "answer": str(1000 + 8 * n)} for n in range(count)]
    return vf.ToolEnv(tools=[add], dataset=Dataset.from_list(rows), rubric=verifiers_rubric(), max_turns=max_turns)
