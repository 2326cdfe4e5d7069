"""What is done to a response while it grows: stop strings, the observations of a tool, the thinking budget.

One set of rules for every sampler; it knows the tokenizer by two functions alone, and no torch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence

from ansatz.errors import ConfigError
from ansatz.rollout.base import Sampling, Tool
from ansatz.types import Finish

_SPARE_TOKENS = 8  # beyond one a byte of the longest stop string: the first ones of a cut text may decode differently


class ResponseRules:
    """The rules of one call of `generate`.

    encode, decode: text to token ids and back, special tokens included. Raises ConfigError where the budget and the
    closing sentence leave no room for an answer.
    """

    def __init__(
        self,
        sampling: Sampling,
        *,
        end_ids: Collection[int],
        encode: Callable[[str], Sequence[int]],
        decode: Callable[[Sequence[int]], str],
        observe: Tool | None,
    ) -> None:
        self.end_ids = frozenset(end_ids)
        self.budget = sampling.thinking_budget
        self._stop, self._thought_end = sampling.stop, sampling.thought_end
        self._encode, self._decode, self._observe = encode, decode, observe
        self._window = max((len(stop.encode()) for stop in self._stop), default=0) + _SPARE_TOKENS
        self._closing = tuple(encode(sampling.closing)) if self.budget else ()
        if self.budget and self.budget + len(self._closing) >= sampling.max_response_tokens:
            raise ConfigError(
                f"rollout.thinking_budget = {self.budget} and the {len(self._closing)} tokens of the closing sentence "
                f"leave no room for an answer within rollout.max_response_tokens = {sampling.max_response_tokens}. "
                "Lower the one or raise the other."
            )

    def at_stop(self, token_ids: Sequence[int], *, since: int) -> bool:
        """Whether the text from token `since` on has a stop string; looks at the last tokens alone, so call it after
        each."""
        if not self._stop:
            return False
        text = self._decode(token_ids[max(since, len(token_ids) - self._window) :])
        return any(stop in text for stop in self._stop)

    def observation(self, token_ids: Sequence[int]) -> Sequence[int] | None:
        """What the tool says to a response that has come to a stop string; None: the response ends."""
        said = None if self._observe is None else self._observe(self._decode(token_ids))
        return None if said is None else self._encode(said)

    def closing(self, token_ids: Sequence[int]) -> Sequence[int]:
        """The closing sentence where the thought is still open; no tokens where the response has closed it."""
        return () if self._thought_end in self._decode(token_ids) else self._closing


class ResponseState:
    """One response on its way: its tokens so far, which of them the policy chose, and what is to be forced in next.

    begun: the tokens that it already has.
    """

    def __init__(self, watch: ResponseRules, begun: Sequence[int] = ()) -> None:
        self._watch = watch
        self.token_ids: list[int] = []
        self.sampled: list[bool] = []
        self.ended = False
        self._coming: deque[int] = deque()
        self._own_since = 0
        self._thought_settled = watch.budget == 0
        self._thought_closed_by_force = False
        for token in begun:
            self.take(token)

    @property
    def forced(self) -> int:
        """The next token where it is not the policy's to choose, else -1."""
        return self._coming[0] if self._coming else -1

    @property
    def sampled_mask(self) -> tuple[bool, ...]:
        """`Rollout.sampled_mask`: empty when the policy sampled every token so far."""
        return () if all(self.sampled) else tuple(self.sampled)

    @property
    def finish(self) -> Finish:
        if not self.ended:
            return Finish.LENGTH
        return Finish.BUDGET if self._thought_closed_by_force else Finish.STOP

    def take(self, token: int) -> None:
        """One more token: `forced` where there is one, else the policy's."""
        self.token_ids.append(token)
        self.sampled.append(not self._coming)
        if self._coming:
            self._coming.popleft()
            self._own_since = len(self.token_ids)
        else:
            self._after_own(token)
        if not (self.ended or self._coming or self._thought_settled) and len(self.token_ids) >= self._watch.budget:
            self._coming.extend(self._watch.closing(self.token_ids))
            self._thought_settled, self._thought_closed_by_force = True, bool(self._coming)

    def _after_own(self, token: int) -> None:
        self.ended = token in self._watch.end_ids
        if self.ended or not self._watch.at_stop(self.token_ids, since=self._own_since):
            return
        said = self._watch.observation(self.token_ids)
        self.ended = said is None
        self._coming.extend(said or ())
        self._own_since = len(self.token_ids)
