"""A user's environment that writes half characters wherever it can, in text or in messages."""

from typing import Any

from ansatz.environments import Environment
from ansatz.rewards.base import RewardResult
from ansatz.types import Problem, Reason, Verdict

HALF = "\ud83d"


class Boxes(Environment):
    """Answers every turn with a right answer and a whole response."""

    turn_ends = ("e", "o", "1", "a")

    def step(self, response: str) -> str:
        return "<think>So.</think><answer>97531</answer> \\boxed{97531} the answer is 97531\n#### 97531\n"


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError(HALF)


class Halves(Environment):
    """One kind of answer after the other. in_messages: as messages of the chat template, not as text."""

    turn_ends = ("e", "o", "1", "a")

    def __init__(self, *, in_messages: bool = False) -> None:
        self._in_messages, self._turn = in_messages, 0

    def reset(self, problem: Problem) -> Any:
        self._turn = len(problem.question) % 2
        return [{"role": "user", "content": f"{problem.question} {HALF}"}] if self._in_messages else f"Rule {HALF}"

    def step(self, response: str) -> Any:
        self._turn += 1
        if self._turn % 3 == 1:
            raise ValueError(f"no {HALF}")
        if self._turn % 3 == 2:
            raise Unreadable
        if self._in_messages:
            names = {"name": HALF, "tool_call_id": HALF, HALF: [HALF]}
            return [{"role": "user", "content": f"{HALF}{len(response)}", **names}]
        return f"{HALF}{len(response)}"

    def reward(self) -> RewardResult:
        if self._turn % 2:
            raise ValueError(HALF)
        return RewardResult(value=0.5, verdict=Verdict(correct=False, reason=Reason.DIFFERENT, extracted=HALF))
