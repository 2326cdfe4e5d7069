"""An engine without vLLM, for tests of the sampler: tokens depend only on the request's seed and the position."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ansatz.rollout.vllm.engine import Engine, EngineLost
from ansatz.rollout.vllm.response import EngineOutput, EngineRequest
from ansatz.rollout.vllm.work import EngineWork


class FakeEngine:
    """Every log-prob is -1.0 and every token has 3 candidates. It can sample beyond stop strings, as vLLM can.

    dies_after: the number of outputs after which the engine is lost, for each start. Later starts have no limit.
    fixed_tag: the tag that it reports whatever is pushed. Empty: the pushed one.
    clears: what `reset_prefix_cache` returns.
    """

    def __init__(
        self, *, vocab_size: int, dies_after: tuple[int, ...] = (), fixed_tag: str = "", clears: bool = True
    ) -> None:
        self._vocab_size, self._dies_after = vocab_size, list(dies_after)
        self._fixed_tag, self._clears = fixed_tag, clears
        self._left: int | None = None
        self._tag = ""
        self.events: list[str] = []
        self.requests: list[EngineRequest] = []

    def start(self) -> None:
        self.events.append("start")
        self._tag = "folder"
        self._left = self._dies_after.pop(0) if self._dies_after else None

    def run(self, work: EngineWork) -> None:
        waiting: dict[int, EngineRequest] = {}
        while waiting := {**waiting, **work.take(wait=not waiting)}:
            index, request = next(iter(waiting.items()))
            if self._left == 0:
                raise EngineLost("the fake engine was set to die here")
            self._left = None if self._left is None else self._left - 1
            self.requests.append(request)
            del waiting[index]
            work.add_output(index, self._output(request))

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None: ...

    def start_weight_update(self) -> None: ...

    def update_weights(self, update_info: Any) -> None: ...

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._tag = self._fixed_tag or weight_version or self._tag
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

    def _output(self, request: EngineRequest) -> EngineOutput:
        params, token_ids = request.params, list[int]()
        while len(token_ids) < params["max_tokens"] and not (token_ids and token_ids[-1] in params["stop_token_ids"]):
            token_ids.append(self._token(request, position=len(token_ids)))
        num_tokens = len(token_ids)
        return EngineOutput(token_ids=token_ids, behavior_logps=[-1.0] * num_tokens, num_candidates=[3] * num_tokens)

    def _token(self, request: EngineRequest, *, position: int) -> int:
        masked = request.params["stop_token_ids"] if position < request.params["min_tokens"] else []
        candidates = [token for token in range(self._vocab_size) if token not in masked]
        key = request.params["seed"] or request.token_ids
        digest = hashlib.blake2b(f"{key}/{position}".encode(), digest_size=8).digest()
        return candidates[int.from_bytes(digest, "little") % len(candidates)]


class FakePublisher:
    """Keeps what was published in `published`, by tag."""

    def __init__(self) -> None:
        self.published: dict[str, Mapping[str, Tensor]] = {}
        self.closed = False

    def publish(self, weights: Mapping[str, Tensor], *, tag: str) -> None:
        self.published[tag] = weights

    def push(self, engine: Engine) -> None:
        engine.finish_weight_update(list(self.published)[-1])

    def close(self) -> None:
        self.closed = True
