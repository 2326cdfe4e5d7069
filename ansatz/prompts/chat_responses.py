"""The responses of a conversation as SFT teaches them, in the tokenizer's own chat template.

After a prompt, SFT teaches the text that the policy should sample there: the rest of the text that the template renders
for the whole conversation, up to the token that ends the turn. Some templates render a response differently than it was
sampled. DeepSeek-R1's opens the thought in the prompt and leaves the thought out of the response; the response is then
the text as it is, without the part that the prompt already has.

A sampled response is not rendered again, because a template may write it differently. When a tool or a user answers,
only the text between the end of the response and the beginning of the next one is taken from the template
(`ChatTurns`). Where the template renders a conversation turn by turn, prompt, responses and these texts together equal
its rendering of the whole conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any, NamedTuple

from ansatz.config.chat import ChatTemplate
from ansatz.errors import ModelError
from ansatz.prompts.templates import EMPTY_THOUGHT, THOUGHT, THOUGHT_END, ChatRenderer, Tokenizer, shows, shows_calls
from ansatz.special_tokens import end_of_turn, special_tokens
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


_LONGEST_OPENING = 100  # characters with which a template begins a response


class Part(NamedTuple):
    """A part of a conversation: its token ids, and whether the assistant says it."""

    ids: list[int]
    is_response: bool


def last_response(renderer: ChatRenderer, problem: Problem, prompt: str, solution: str) -> list[Part]:
    """Return the prompt, and the problem's solution as the response to it: one turn of the assistant, or the turns in
    `Problem.response_turns`, with the answers of tools between them as a sampled response gets them.

    Raise ModelError if the prompt begins a thought and the solution has none, or the other way round, and if the
    template does not show a call.
    """
    end, between = end_text(renderer.tokenizer), TurnRenderer(renderer.tokenizer, renderer.chat)
    before, texts, asked = renderer.turns(problem), [prompt], prompt
    solution_turns = _solution_turns(renderer, problem, solution)
    for is_tool, group in groupby(solution_turns, key=lambda turn: turn["role"] == "tool"):
        turns = list(group)
        if is_tool:
            texts.append(between.text_after(problem, turns))
            asked = renderer.apply([*before, *turns], problem, for_response=True)
        else:
            texts.append(_response(renderer, problem, before, turns[0], asked, end))
        before += turns
    return _parts(renderer.tokenizer, texts)


def _response(
    renderer: ChatRenderer, problem: Problem, before: Sequence[Message], turn: Message, asked: str, end: str
) -> str:
    """Return a turn of the assistant up to its end, after the turns `before`, whose text is `asked`."""
    whole = renderer.apply([*before, turn], problem, for_response=False)
    response = _up_to(end, whole[len(asked) :]) if end and whole.startswith(asked) else ""
    if renderer.asks_for_thought(problem) and THOUGHT not in turn["content"]:
        response = EMPTY_THOUGHT.sub("", response, count=1) if EMPTY_THOUGHT.match(response) else response
    if shows(response, turn["content"]) and shows_calls(response, turn):
        return response
    if "tool_calls" in turn:
        raise ModelError(
            f"the tokenizer's chat template does not show the tool calls in the solution of problem {problem.id!r}. "
            "Use a model whose template does, or remove the row."
        )
    return _continue(asked, turn["content"], problem) + end


def _solution_turns(renderer: ChatRenderer, problem: Problem, solution: str) -> Sequence[Message]:
    turns = problem.response_turns or [{"role": "assistant", "content": solution}]
    return [special_tokens(renderer.tokenizer).hide_turn(turn) for turn in turns]


def response_tokens(problem: Problem, parts: Sequence[Part]) -> int:
    """Return how many of the tokens belong to the last response, with the answers of its tools."""
    num_said = sum(turn["role"] == "assistant" for turn in problem.response_turns) or 1
    return sum(len(part.ids) for part in parts[-(2 * num_said - 1) :])


def all_responses(renderer: ChatRenderer, problem: Problem, prompt: str, solution: str) -> list[Part]:
    """Return the conversation with every response to a user or a tool, in one text. Turns of the assistant in the
    opening of an environment are not responses.

    Raise ModelError if the template renders a response in another way once the conversation goes on, so that one text
    does not have every response after the prompt that sampling would give it.
    """
    asking = renderer.turns(problem)
    turns = [*asking, *_solution_turns(renderer, problem, solution)]
    whole, end = renderer.apply(turns, problem, for_response=False), end_text(renderer.tokenizer)
    texts, start = list[str](), 0
    opening = range(len(asking) - 1 - problem.num_opening_turns, len(asking) - 1)
    for index, turn in enumerate(turns):
        if turn["role"] != "assistant" or index == 0 or turns[index - 1]["role"] not in ("user", "tool"):
            continue
        if index in opening:
            continue
        asked = prompt if index == len(asking) else renderer.apply(turns[:index], problem, for_response=True)
        said = _up_to(end, whole[len(asked) :]) if end and whole.startswith(asked) else ""
        if (
            start > len(asked)
            or not said.endswith(end or " ")
            or not shows(said, turn["content"])
            or not shows_calls(said, turn)
        ):
            raise ModelError(
                f"the tokenizer's chat template renders the response {turn['content'][:40]!r} of problem "
                f"{problem.id!r} differently when the conversation goes on (for example without its thought), so that "
                "not all responses can be taught in one text. Set sft.responses: last, and each_response: true in "
                "data.sft, which teaches each of them after a prompt of its own."
            )
        texts += [whole[start : len(asked)], said]
        start = len(asked) + len(said)
    return _parts(renderer.tokenizer, texts)


def _parts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Part]:
    """Return texts of the conversation and of responses in turn. The last response gets an end token if it has none."""
    ids = ids_of_parts(tokenizer, texts)
    if end_of_turn(tokenizer) is None:
        ids[-1].append(int(tokenizer.eos_token_id))
    return [Part(part, bool(index % 2)) for index, part in enumerate(ids)]


def ids_of_parts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of the parts of one hidden text (see `special_tokens`), without special tokens at its ends.

    They are the ids of the whole text, cut where a part ends. If a token of the whole text spans the end of a part, or
    the beginning of the text has other tokens when it stands alone, each part is tokenised by itself: the policy gets
    the prompt alone, so the prompt must have the tokens that it has alone.
    """
    encode = special_tokens(tokenizer).encode
    whole = encode("".join(texts))
    ends = [0]
    for beginning in accumulate(texts):
        ids = encode(beginning)
        if whole[: len(ids)] != ids:
            return [encode(text) for text in texts]
        ends.append(len(ids))
    return [whole[start:end] for start, end in pairwise(ends)]


def _up_to(end: str, text: str) -> str:
    """Return the text through the first `end`."""
    before, found, _ = text.partition(end)
    return before + found


def _continue(prompt: str, solution: str, problem: Problem) -> str:
    """Return the solution without the beginning that the prompt already has, such as <think>."""
    longest = min(len(prompt), len(solution), _LONGEST_OPENING)
    overlap = next(size for size in range(longest, -1, -1) if prompt.endswith(solution[:size]))
    rest = solution[overlap:] if THOUGHT in solution[:overlap] else solution
    where = f"the solution of problem {problem.id!r} of {problem.source!r}"
    if prompt.rstrip().endswith(THOUGHT) and THOUGHT_END not in rest:
        raise ModelError(
            f"the chat template opens a thought ({THOUGHT}) at the end of the prompt, but {where} closes none, so its "
            f"answer would be taught as a part of the thought. Write {THOUGHT_END} between thought and answer, or use "
            "the data source fusion, which makes the solution the thought."
        )
    if prompt.rstrip().endswith((THOUGHT, THOUGHT_END)) and THOUGHT in rest:
        raise ModelError(
            f"the chat template ends the prompt with a thought of its own, but {where} has another one. Leave out "
            "enable_thinking: false in data.template.arguments, or remove the thought from the solution."
        )
    return rest
