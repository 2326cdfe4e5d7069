"""A user's own environment, in a file that recipes of tests name."""

from ansatz.environments import Environment
from ansatz.types import Problem


class Echo(Environment):
    """Repeats the last three characters of a turn, as long as there are enough turns. Plain, so it runs in threads.

    Rewards an even number of characters in all turns together.
    """

    turn_ends = ("e", "o", "1")

    def __init__(self, *, repeats: int = 9) -> None:
        self.left = repeats
        self.num_characters = 0

    def step(self, response: str) -> str | None:
        self.left -= 1
        self.num_characters += len(response)
        return f"<{response[-3:]}>" if response and self.left >= 0 else None

    def reward(self) -> float:
        return float((self.num_characters + len(self.open_turn)) % 2 == 0)


class Greeting(Echo):
    """Opens the conversation with a rule."""

    def reset(self, problem: Problem) -> str:
        return f"Rule {problem.id}: be brief."
