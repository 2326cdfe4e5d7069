"""The rules that shape a response while it grows: stop strings, tools and the thinking budget.

All samplers share these rules. They know the tokenizer only by two functions, and they need no torch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence

from ansatz.errors import ConfigError
from ansatz.rollout.base import Sampling, Tool
from ansatz.types import Finish

_SPARE_TOKENS = 8  # in addition to one token per byte of the longest stop string: a cut text may decode differently


class ResponseRules:
    """The rules of one call of `generate`.

    encode, decode: text to token ids and back, special tokens included.
    tool: called when a response reaches a stop string. None: stop strings end a response.
    Raises ConfigError if the thinking budget and the closing sentence leave no room for an answer.
    """

    def __init__(
        self,
        sampling: Sampling,
        *,
        end_ids: Collection[int],
        encode: Callable[[str], Sequence[int]],
        decode: Callable[[Sequence[int]], str],
        tool: Tool | None,
    ) -> None:
        self.end_ids = frozenset(end_ids)
        self.thinking_budget = sampling.thinking_budget
        self._stop, self._thought_end = sampling.stop, sampling.thought_end
        self._encode, self._decode, self._tool = encode, decode, tool
        self._window = max((len(stop.encode()) for stop in self._stop), default=0) + _SPARE_TOKENS
        self._closing = tuple(encode(sampling.closing)) if self.thinking_budget else ()
        if self.thinking_budget and self.thinking_budget + len(self._closing) >= sampling.max_response_tokens:
            raise ConfigError(
                f"rollout.thinking_budget = {self.thinking_budget} and the {len(self._closing)} tokens of the closing "
                f"sentence leave no room for an answer within rollout.max_response_tokens = "
                f"{sampling.max_response_tokens}. Lower rollout.thinking_budget or raise rollout.max_response_tokens."
            )

    def has_stop_string(self, token_ids: Sequence[int], *, from_index: int) -> bool:
        """Whether the text of the tokens from `from_index` on contains a stop string.

        Only the last tokens are decoded, so call this after every token.
        """
        if not self._stop:
            return False
        text = self._decode(token_ids[max(from_index, len(token_ids) - self._window) :])
        return any(stop in text for stop in self._stop)

    def call_tool(self, token_ids: Sequence[int]) -> Sequence[int] | None:
        """The tokens that the tool appends to a response at a stop string. None: the response ends."""
        observation = None if self._tool is None else self._tool(self._decode(token_ids))
        return None if observation is None else self._encode(observation)

    def closing_of(self, token_ids: Sequence[int]) -> Sequence[int]:
        """The closing sentence if the thought is still open; no tokens if the response has closed it itself."""
        return () if self._thought_end in self._decode(token_ids) else self._closing


class ResponseState:
    """One growing response: its tokens, which of them the policy sampled, and which tokens are forced in next.

    prefix_ids: the tokens that a resumed response already has.
    """

    def __init__(self, rules: ResponseRules, prefix_ids: Sequence[int] = ()) -> None:
        self._rules = rules
        self.token_ids: list[int] = []
        self.is_sampled: list[bool] = []
        self.ended = False
        self._forced_queue: deque[int] = deque()
        self._from_index = 0  # stop strings count from here, which is after the last forced token
        self._budget_checked = rules.thinking_budget == 0
        self._thought_closed_by_force = False
        for token in prefix_ids:
            self.append(token)

    @property
    def forced_token(self) -> int:
        """The next token if it is forced, -1 if the policy samples it."""
        return self._forced_queue[0] if self._forced_queue else -1

    @property
    def sampled_mask(self) -> tuple[bool, ...]:
        """`Rollout.sampled_mask`: empty when the policy sampled every token so far."""
        return () if all(self.is_sampled) else tuple(self.is_sampled)

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
        if self.ended or self._forced_queue or self._budget_checked:
            return
        if len(self.token_ids) >= self._rules.thinking_budget:
            self._forced_queue.extend(self._rules.closing_of(self.token_ids))
            self._budget_checked, self._thought_closed_by_force = True, bool(self._forced_queue)

    def _apply_stops(self, sampled_token: int) -> None:
        self.ended = sampled_token in self._rules.end_ids
        if self.ended or not self._rules.has_stop_string(self.token_ids, from_index=self._from_index):
            return
        observation_ids = self._rules.call_tool(self.token_ids)
        self.ended = observation_ids is None
        self._forced_queue.extend(observation_ids or ())
        self._from_index = len(self.token_ids)
