"""What a chat template writes after a response when the conversation goes on: the messages of a tool or a user.

A sampled response is not rendered again, because a template may write it differently. Only the text between the end of
the response and the beginning of the next one is taken from the template. Where the template renders a conversation
turn by turn, prompt, responses and these texts together are what it renders for the whole conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansatz.config.chat import ChatTemplate
from ansatz.end_of_turn import end_of_turn
from ansatz.errors import ModelError
from ansatz.prompts.chat import ChatRenderer
from ansatz.prompts.tokenizer import Tokenizer
from ansatz.special_tokens import special_tokens
from ansatz.types import Problem

Message = Mapping[str, Any]
_PROBE = "RESULT"
_PROBLEM = Problem(id="probe", question="QUESTION", source="probe", split="probe")


class TurnRenderer:
    """Prepare for messages. roles: of those that will come, such as "tool". Raise ModelError if the template does not
    show one of them."""

    def __init__(self, tokenizer: Tokenizer, chat: ChatTemplate, *, roles: Sequence[str] = ()) -> None:
        self._renderer = ChatRenderer(tokenizer, chat)
        self._end_id, self._end_text = end_of_turn(tokenizer), end_text(tokenizer)
        for role in roles:
            message = {"role": role, "name": "probe", "tool_call_id": "call00000", "content": _PROBE}
            if not self._shows(message):
                raise ModelError(
                    f"the tokenizer's chat template does not show messages of the role {role!r}, with which the "
                    "environment answers. Use a model whose template does, or an environment whose tools are called "
                    "in tags (environment.form: tags)."
                )

    def _shows(self, message: Message) -> bool:
        try:
            return _PROBE in self.text_after(_PROBLEM, [message])
        except ModelError:  # the template refuses the role
            return False

    def text_after(self, problem: Problem, messages: Sequence[Message]) -> str:
        """Return the text from the end of a response to the beginning of the next one, with the messages between them,
        as hidden text.

        Raise ModelError if the template refuses the messages.
        """
        hide = special_tokens(self._renderer.tokenizer).hide_turn
        before, turns = self._renderer.turns(problem), list(map(hide, messages))
        error: ModelError | None = None
        for response in _responses_before(turns):
            try:
                so_far = self._renderer.apply([*before, response], problem, for_response=False)
                whole = self._renderer.apply([*before, response, *turns], problem, for_response=True)
            except ModelError as refused:
                error = error or refused
                continue
            return whole[self._end_of_response(so_far, whole) :]
        assert error is not None
        raise error

    def ids_after(self, problem: Problem, messages: Sequence[Message]) -> list[int]:
        """Return the tokens of `text_after`, as they are in the text of the whole conversation."""
        special, text = special_tokens(self._renderer.tokenizer), self.text_after(problem, messages)
        if self._end_id is None:
            return special.encode(text)
        ids = special.encode(self._end_text + text)
        return ids[ids.index(self._end_id) + 1 :]

    def _end_of_response(self, so_far: str, whole: str) -> int:
        """Return where the response ends in the text of the whole conversation: after as many ends of turns as `so_far`
        has.

        A template can write earlier turns differently in the two texts, but each has its end.
        """
        end = self._end_text
        if not end or end not in so_far:
            return len(so_far) if whole.startswith(so_far) else 0
        position = 0
        for _ in range(so_far.count(end)):
            found = whole.find(end, position)
            position = position if found < 0 else found + len(end)
        return position


def end_text(tokenizer: Any) -> str:
    """Return the text of the token that ends a turn; empty if the template has none."""
    token = end_of_turn(tokenizer)
    return "" if token is None else tokenizer.added_tokens_decoder[token].content


def _responses_before(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return responses that such messages can follow, the most fitting first. Some templates take only a single
    call."""
    calls = [
        {
            "id": message.get("tool_call_id") or f"call{index:05d}",
            "type": "function",
            "function": {"name": message.get("name") or "tool", "arguments": {}},
        }
        for index, message in enumerate(messages)
        if message.get("role") == "tool"
    ]
    plain: dict[str, Any] = {"role": "assistant", "content": "RESPONSE"}
    with_calls = [{**plain, "content": "", "tool_calls": some} for some in (calls, calls[:1]) if some]
    return [*with_calls, plain]
