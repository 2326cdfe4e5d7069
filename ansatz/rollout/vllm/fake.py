"""An engine without vLLM, for tests of what stands above: tokens are a function of the request's seed and place."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ansatz.rollout.vllm.engine import Engine, EngineLost, OnAnswer
from ansatz.rollout.vllm.response import Answer, Request


class FakeEngine:
    """Every log-prob is -1.0 and every support has 3 tokens. Stop strings are overrun, as an engine may.

    dies_after: answers until it is lost, for each start; it has no limit after the last. keeps: the tag that it says
    whatever is pushed, empty: the pushed one. clears: what `reset_prefix_cache` says.
    """

    def __init__(self, *, vocab_size: int, dies_after: tuple[int, ...] = (), keeps: str = "", clears: bool = True):
        self._vocab_size, self._dies_after, self._keeps, self._clears = vocab_size, list(dies_after), keeps, clears
        self._left: int | None = None
        self._tag = ""
        self.events: list[str] = []
        self.asked: list[Request] = []

    def start(self) -> None:
        self.events.append("start")
        self._tag = "of the folder"
        self._left = self._dies_after.pop(0) if self._dies_after else None

    def run(self, requests: Mapping[int, Request], on_answer: OnAnswer) -> None:
        waiting = dict(requests)
        while waiting:
            index, request = next(iter(waiting.items()))
            if self._left == 0:
                raise EngineLost("it was told to die")
            self._left = None if self._left is None else self._left - 1
            self.asked.append(request)
            follow = on_answer(index, self._answer(request))
            del waiting[index]
            if follow is not None:
                waiting[index] = follow

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None: ...

    def start_weight_update(self) -> None: ...

    def update_weights(self, update_info: Any) -> None: ...

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._tag = self._keeps or weight_version or self._tag
        self.events.append(f"weights {weight_version}")

    def reset_prefix_cache(self) -> bool:
        self.events.append("reset")
        return self._clears

    def weight_version(self) -> str:
        return self._tag

    def sleep(self) -> None:
        self.events.append("sleep")

    def wake(self) -> None: ...

    def kill(self) -> None:
        self.events.append("kill")

    def _answer(self, request: Request) -> Answer:
        how, drawn = request.params, list[int]()
        while len(drawn) < how["max_tokens"] and (not drawn or drawn[-1] not in how["stop_token_ids"]):
            drawn.append(self._token(request, drawn))
        return Answer(token_ids=drawn, logps=[-1.0] * len(drawn), possible=[3] * len(drawn))

    def _token(self, request: Request, drawn: list[int]) -> int:
        ends = request.params["stop_token_ids"] if len(drawn) < request.params["min_tokens"] else []
        possible = [token for token in range(self._vocab_size) if token not in ends]
        place = request.params["seed"] or request.token_ids
        digest = hashlib.blake2b(f"{place}/{len(drawn)}".encode(), digest_size=8).digest()
        return possible[int.from_bytes(digest, "little") % len(possible)]


class FakePublisher:
    """Keeps what it was given in `published`, by tag."""

    def __init__(self) -> None:
        self.published: dict[str, Mapping[str, Tensor]] = {}
        self.closed = False

    def publish(self, weights: Mapping[str, Tensor], *, tag: str) -> None:
        self.published[tag] = weights

    def push(self, engine: Engine) -> None:
        engine.finish_weight_update(list(self.published)[-1])

    def close(self) -> None:
        self.closed = True
