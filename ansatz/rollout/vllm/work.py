"""The responses of one call while an engine samples them: its next requests, and the responses that wait for a tool.

A response whose environment takes its time is not requested from the engine until the answer has come, so the others
are sampled meanwhile. An environment that answers at once is asked in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ansatz.environments.calls import EnvironmentCalls
from ansatz.rollout.vllm.response import EngineOutput, EngineRequest, PendingResponse


class EngineWork:
    """calls: answers the turns of responses; None without an environment. finish: called with the index of each
    response that has ended, in the thread that calls `take` and `add_output`."""

    def __init__(
        self, responses: Sequence[PendingResponse], calls: EnvironmentCalls | None, finish: Callable[[int], None]
    ) -> None:
        self._responses, self._calls, self._finish = responses, calls, finish
        self._ready: dict[int, EngineRequest] = {}
        self._running: dict[int, EngineRequest] = {}
        self._num_asked = 0
        for index in range(len(responses)):
            self._advance(index)

    @property
    def waits_for_environments(self) -> bool:
        """Tell whether a response waits for its environment, so that `take` can give a request at any time."""
        return self._num_asked > 0

    def take(self, *, wait: bool) -> dict[int, EngineRequest]:
        """Take the requests that have become ready, by response.

        wait: until there is one, if an environment can still answer. Empty with wait: all responses have ended, except
        the ones whose requests are running.
        """
        self._take_answers(wait=False)
        while wait and not self._ready and self._num_asked:
            self._take_answers(wait=True)
        taken, self._ready = self._ready, {}
        self._running |= taken
        return taken

    def add_output(self, index: int, output: EngineOutput) -> None:
        """Add the answer to the request of a response."""
        del self._running[index]
        self._responses[index].take(output)
        self._advance(index)

    def start_over(self) -> None:
        """Make requests that were not answered ready again, for another engine."""
        self._ready, self._running = {**self._running, **self._ready}, {}

    def _advance(self, index: int) -> None:
        """Ask the environment if the turn of the response has ended; otherwise continue it."""
        response, calls = self._responses[index], self._calls
        if (asks := response.asks) is not None and calls is not None:
            if not calls.spec.sample.instant:
                self._num_asked += 1
                calls.submit([(index, *asks)])
                return
            response.observe(calls.answer(*asks))
        self._continue(index)

    def _take_answers(self, *, wait: bool) -> None:
        if self._calls is None or not self._num_asked:
            return
        for index, answer in self._calls.answers.finished(wait=wait):
            self._num_asked -= 1
            self._responses[index].observe(answer)
            self._continue(index)

    def _continue(self, index: int) -> None:
        if self._responses[index].done:
            self._finish(index)
        else:
            self._ready[index] = self._responses[index].request()
