"""Tools that are called in tags: `<code>print(1)</code>` is answered by `<interpreter>1</interpreter>`."""

from __future__ import annotations

from collections.abc import Callable

from ansatz.environments.base import Environment


class TagEnvironment(Environment):
    """answer: what the tool says about the text of a call. call, result: the tags around calls and observations.

    A turn without a complete call is the last one.
    """

    def __init__(self, answer: Callable[[str], str], *, call: str, result: str, instant: bool = False) -> None:
        self._answer, self._call, self._result = answer, call, result
        self.turn_ends, self.instant = (f"</{call}>",), instant

    def step(self, response: str) -> str | None:
        before, closed, _ = response.rpartition(f"</{self._call}>")
        _, opened, text = before.rpartition(f"<{self._call}>")
        return self._answer(text) if opened and closed else None

    def show(self, observation: str) -> str:
        return f"<{self._result}>{observation}</{self._result}>\n"
