"""The rules that shape a response while it grows: stop strings, turns with an environment and the thinking budget.

All samplers share these rules. They know the tokenizer only by two functions, and they need no torch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ansatz.environments.base import EnvironmentSpec, Message, Observation
from ansatz.environments.episode import Episode
from ansatz.errors import ConfigError
from ansatz.prompts.chat_responses import TurnRenderer
from ansatz.prompts.templates import Tokenizer
from ansatz.rollout.base import Sampling
from ansatz.special_tokens import special_tokens
from ansatz.types import Finish, Problem, Rollout

EncodeMessages = Callable[[Problem, Sequence[Message]], Sequence[int]]

_SPARE_TOKENS = 8  # in addition to one token per byte of the longest stop string: a cut text may decode differently


class ResponseRules:
    """The rules of one call of `generate`.

    encode, decode: text to token ids and back, special tokens included.
    encode_text: the same for the text of an environment (see `text_encoder`); None: encode.
    encode_messages: encodes the messages of an environment as the chat template writes them after a response.
    environment: answers the turns of a response. None: a response is one turn.
    Raises ConfigError if the thinking budget and the closing sentence leave no room for an answer.
    """

    def __init__(
        self,
        sampling: Sampling,
        *,
        end_ids: Collection[int],
        encode: Callable[[str], Sequence[int]],
        decode: Callable[[Sequence[int]], str],
        environment: EnvironmentSpec | None = None,
        encode_text: Callable[[str], Sequence[int]] | None = None,
        encode_messages: EncodeMessages | None = None,
    ) -> None:
        self.end_ids = frozenset(end_ids)
        self.thinking_budget, self.environment = sampling.thinking_budget, environment
        self.stop, self._thought_end = sampling.stop, sampling.thought_end
        self.turn_ends = () if environment is None else tuple(environment.sample.turn_ends)
        self._decode, self._encode_text, self._encode_messages = decode, encode_text or encode, encode_messages
        self._window = max((len(stop.encode()) for stop in self.stop + self.turn_ends), default=0) + _SPARE_TOKENS
        self._last_characters = frozenset(stop[-1] for stop in self.stop + self.turn_ends)
        self._may_complete: dict[int, bool] = {}  # by token
        self._closing = tuple(encode(sampling.closing)) if self.thinking_budget else ()
        if self.thinking_budget and self.thinking_budget + len(self._closing) >= sampling.max_response_tokens:
            raise ConfigError(
                f"rollout.thinking_budget = {self.thinking_budget} and the {len(self._closing)} tokens of the closing "
                f"sentence leave no room for an answer within rollout.max_response_tokens = "
                f"{sampling.max_response_tokens}. Lower rollout.thinking_budget or raise rollout.max_response_tokens."
            )

    def text_to_check(self, token_ids: Sequence[int], *, from_index: int) -> str:
        """Return the end of the text of the tokens from `from_index` on. It contains a stop string or the end of a turn
        if the last token has completed one. Empty if the token cannot complete one. Call this after every token."""
        if not self._last_characters or not self._completes(token_ids[-1]):
            return ""
        return self._decode(token_ids[max(from_index, len(token_ids) - self._window) :])

    def _completes(self, token: int) -> bool:
        """Tell whether the token may be the last one of a stop string. Few are, and decoding the text takes time."""
        if token not in self._may_complete:
            text = self._decode([token])
            odd = "\ufffd" in text or any(not last.isascii() or last.isspace() for last in self._last_characters)
            self._may_complete[token] = odd or any(last in text for last in self._last_characters)
        return self._may_complete[token]

    def text(self, token_ids: Sequence[int]) -> str:
        return self._decode(token_ids)

    def observation_ids(self, observation: Observation, problem: Problem) -> Sequence[int]:
        """Return the tokens that an observation adds to a response."""
        if isinstance(observation, str):
            return self._encode_text(observation)
        assert self._encode_messages is not None, "the environment answers in messages"
        return self._encode_messages(problem, observation)

    def closing_of(self, token_ids: Sequence[int]) -> Sequence[int]:
        """Return the closing sentence if the thought is still open; no tokens if the response has closed it itself."""
        return () if self._thought_end in self._decode(token_ids) else self._closing


def text_encoder(tokenizer: Tokenizer) -> Callable[[str], Sequence[int]]:
    """Return `encode_text` for a tokenizer: special tokens in the output of a tool are plain text (see
    `special_tokens`)."""
    special = special_tokens(tokenizer)

    def encode(text: str) -> Sequence[int]:
        before, after = getattr(text, "frame", (0, 0))
        end = len(text) - after
        return special.encode(text[:before] + special.hide(text[before:end]) + text[end:])

    return encode


def message_encoder(tokenizer: Tokenizer, environment: EnvironmentSpec | None) -> EncodeMessages | None:
    """Return `encode_messages` for a tokenizer; None if no messages can come.

    Raise ModelError if its chat template does not show the messages of the environment.
    """
    if environment is None or environment.chat is None or not tokenizer.chat_template:
        return None
    return TurnRenderer(tokenizer, environment.chat, roles=environment.sample.roles).ids_after


def build_rules(
    sampling: Sampling, tokenizer: Any, *, end_ids: Collection[int], environment: EnvironmentSpec | None
) -> ResponseRules:
    """Return the rules of a call for responses in the tokens of a tokenizer."""
    return ResponseRules(
        sampling,
        end_ids=end_ids,
        encode=lambda text: tokenizer.encode(text, add_special_tokens=False),
        decode=tokenizer.decode,
        environment=environment,
        encode_text=text_encoder(tokenizer),
        encode_messages=message_encoder(tokenizer, environment),
    )


class ResponseState:
    """One growing response: its tokens, which of them the policy sampled, and which tokens are forced in next.

    When a turn ends, the response is `waiting` until `observe` is called with the environment's answer to `turn_text`.
    Until then there is no next token.

    problem: of the response. partial: the earlier part of a resumed response, answers of its environment included.
    """

    def __init__(self, rules: ResponseRules, problem: Problem, partial: Rollout | None = None) -> None:
        self._rules, self._problem = rules, problem
        self.token_ids: list[int] = []
        self.is_sampled: list[bool] = []
        self.ended = self.waiting = False
        self.episode = None if rules.environment is None else Episode(rules.environment, problem)
        self.turn_text = ""
        self._observed: list[tuple[int, int]] = []
        self._num_turns = self._turn_start = 0
        self._turn_is_open = True
        self._forced_queue: deque[int] = deque()
        self._from_index = 0  # stop strings count from here, which is after the last forced token
        self._budget_checked = rules.thinking_budget == 0
        self._thought_closed_by_force = False
        if partial is not None:
            self._resume(partial.token_ids, partial.sampled_mask or (True,) * partial.num_tokens)

    @property
    def forced_token(self) -> int:
        """The next token if it is forced, -1 if the policy samples it."""
        return self._forced_queue[0] if self._forced_queue else -1

    @property
    def num_tokens_with_forced(self) -> int:
        """Number of tokens of the response, including the tokens that are forced in next."""
        return len(self.token_ids) + len(self._forced_queue)

    @property
    def sampled_mask(self) -> tuple[bool, ...]:
        """`Rollout.sampled_mask`: empty when the policy sampled every token so far."""
        return () if all(self.is_sampled) else tuple(self.is_sampled)

    def observations(self, text: Callable[[Sequence[int]], str]) -> tuple[tuple[int, int], ...]:
        """Return `Rollout.observations`. text: gives the text of tokens, as for `Rollout.text`."""
        places = ((text(self.token_ids[:start]), text(self.token_ids[:end])) for start, end in self._observed)
        return tuple((len(before), len(through)) for before, through in places if len(before) < len(through))

    @property
    def open_turn(self) -> str:
        """The text of the last turn if the environment has not been given it (`Environment.open_turn`)."""
        return self._rules.text(self.token_ids[self._turn_start :]) if self.episode and self._turn_is_open else ""

    @property
    def finish(self) -> Finish:
        if not self.ended:
            return Finish.LENGTH
        return Finish.BUDGET if self._thought_closed_by_force else Finish.STOP

    def append(self, token: int) -> None:
        """Add one token: `forced_token` if there is one, otherwise a token that the policy sampled."""
        self.token_ids.append(token)
        self.is_sampled.append(not self._forced_queue)
        if self._forced_queue:
            self._forced_queue.popleft()
            self._from_index = len(self.token_ids)
        else:
            self._apply_stops(token)
        if self.ended or self.waiting or self._forced_queue or self._budget_checked:
            return
        if len(self.token_ids) >= self._rules.thinking_budget:
            self._forced_queue.extend(self._rules.closing_of(self.token_ids))
            self._budget_checked, self._thought_closed_by_force = True, bool(self._forced_queue)

    def observe(self, observation: Observation | None) -> None:
        """Continue after the end of a turn with the answer of the environment. None: the response is done."""
        self._continue(None if observation is None else self._rules.observation_ids(observation, self._problem))

    def _continue(self, observation_ids: Sequence[int] | None) -> None:
        self.waiting, self._num_turns = False, self._num_turns + 1
        environment = self._rules.environment
        assert environment is not None
        self.ended = not observation_ids or self._num_turns == environment.settings.turns
        self._turn_is_open = not self.ended
        if not self.ended:
            self._forced_queue.extend(observation_ids or ())
            self._from_index = len(self.token_ids)
            self._turn_start = len(self.token_ids) + len(self._forced_queue)
            self._observed.append((len(self.token_ids), self._turn_start))

    def _resume(self, prefix_ids: Sequence[int], prefix_mask: Sequence[bool]) -> None:
        for index, token in enumerate(prefix_ids):
            self.append(token)
            if self.waiting and index + 1 < len(prefix_ids):
                self._recall(prefix_ids[index + 1 :], prefix_mask[index + 1 :])

    def _recall(self, following_ids: Sequence[int], following_mask: Sequence[bool]) -> None:
        """Continue after a turn whose observation is among the tokens that follow it."""
        assert self.episode is not None
        self.episode.replay(self.turn_text)
        num_forced = following_mask.index(True) if True in following_mask else len(following_mask)
        self._continue(following_ids[:num_forced])

    def _apply_stops(self, sampled_token: int) -> None:
        rules = self._rules
        text = rules.text_to_check(self.token_ids, from_index=self._from_index)
        turn_ended = sampled_token in rules.end_ids or (text and any(end in text for end in rules.turn_ends))
        self.ended = bool(text) and any(stop in text for stop in rules.stop)
        if turn_ended and not self.ended:
            self.ended, self.waiting = self.episode is None, self.episode is not None
            if self.waiting:
                self.turn_text = rules.text(self.token_ids[self._turn_start :])
