"""Tools that are called in tags: `<code>print(1)</code>` is answered by `<interpreter>1</interpreter>`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from ansatz.environments.base import Environment
from ansatz.errors import ConfigError

CallForm = Literal["tags", "chat"]
"""How a tool is called: in tags, or in the form of the model's chat template (see `tools`)."""


def check_tags(form: CallForm, **changed: bool) -> None:
    """Raise ConfigError if names of tags were changed and there are none. changed: which, by the name of the
    setting."""
    for name in changed:
        if form == "chat" and changed[name]:
            raise ConfigError(
                f"environment.{name} is the name of a tag, which environment.form = 'chat' does not have. Remove it, "
                "or set environment.form to 'tags'."
            )


class TagEnvironment(Environment):
    """tool: answers the text of a call. call, result: the tags around calls and observations.

    A turn without a complete call is the last one.
    """

    def __init__(self, tool: Callable[[str], Any], *, call: str, result: str, instant: bool = False) -> None:
        self.tool, self._call, self._result = tool, call, result
        self.turn_ends, self.instant = (f"</{call}>",), instant

    def step(self, response: str) -> Any:
        text = self.call_in(response)
        return None if text is None else self.tool(text)

    def call_in(self, turn: str) -> str | None:
        """Return the text of the last call that the turn completes; None if there is no call."""
        before, closed, _ = turn.rpartition(f"</{self._call}>")
        _, opened, text = before.rpartition(f"<{self._call}>")
        return text if opened and closed else None

    def show(self, observation: str) -> str:
        return f"<{self._result}>{observation}</{self._result}>\n"


class AsyncTagEnvironment(TagEnvironment):
    """The same with an `async` tool. close: called when the response has ended."""

    def __init__(
        self, tool: Callable[[str], Awaitable[str]], *, call: str, result: str, close: Callable[[], None]
    ) -> None:
        super().__init__(tool, call=call, result=result)
        self.close = close

    async def step(self, response: str) -> str | None:
        text = self.call_in(response)
        return None if text is None else await self.tool(text)
