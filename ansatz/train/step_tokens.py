"""Where reasoning steps end among the tokens of a response. Rewards know steps by characters, training by tokens."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate

from ansatz.types import Rollout

Decode = Callable[[Sequence[int]], str]
"""The text of tokens, without special ones: the same function that made `Rollout.text`."""


class StepTokens:
    """Turns (end in characters, reward) into (index of the token that ends the step, reward).

    The lengths of single tokens are kept, because most texts are their tokens' texts one after the other. For others,
    such as those with a character of several tokens, prefixes are decoded.
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._length: dict[int, int] = {}

    def __call__(self, rollout: Rollout, steps: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
        """A step ends at the first token with which the text reaches its end. The last step ends at the last token of
        the response, so that an end token belongs to it. Rewards of steps that end at the same token are added."""
        if not steps:
            return []
        rewards = dict[int, float]()
        for (end, reward), index in zip(steps, self._indices(rollout, [end for end, _ in steps]), strict=True):
            index = rollout.num_tokens - 1 if end >= len(rollout.text) else index
            rewards[index] = rewards.get(index, 0.0) + reward
        return sorted(rewards.items())

    def _indices(self, rollout: Rollout, ends: Sequence[int]) -> list[int]:
        for token in rollout.token_ids:
            if token not in self._length:
                self._length[token] = len(self._decode([token]))
        upto = list(accumulate(self._length[token] for token in rollout.token_ids))
        if upto[-1] != len(rollout.text):
            upto = [len(self._decode(rollout.token_ids[: count + 1])) for count in range(rollout.num_tokens)]
            upto = list(accumulate(upto, max))
        return [min(bisect_left(upto, end), rollout.num_tokens - 1) for end in ends]
