"""Where rows wait while their environments answer: outside the slots, so that other rows decode in the meantime.

A row takes its keys and values along and gets them back, and the tokens of an observation are forced in one by one. A
response is therefore the same, bit for bit, however long its environment takes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ansatz.environments.calls import EnvironmentCalls
from ansatz.rollout.native.requests import FinishedResponse
from ansatz.rollout.native.slots import ParkedRow, Slots
from ansatz.rollout.response_rules import ResponseState


class ParkingLot:
    """The rows of `slots` whose turn has ended. calls: what asks their environments."""

    def __init__(self, slots: Slots, calls: EnvironmentCalls) -> None:
        self._slots, self._calls = slots, calls
        self._answered: list[ParkedRow] = []

    @property
    def full(self) -> bool:
        """Whether as many rows are parked as there are slots. New requests then wait, which bounds the memory."""
        return len(self._slots.parked) >= self._slots.num_slots

    def answer_turns(self) -> None:
        """Ask the environment of every row whose turn has just ended. Those that are not instant are parked."""
        slots, calls = self._slots, self._calls
        waiting = [slot for slot, state in enumerate(slots.states) if state.waiting]
        if not waiting:
            return
        if calls.spec.sample.instant:
            for slot in waiting:
                state = slots.states[slot]
                assert state.episode is not None
                state.observe(calls.answer(state.episode, state.turn_text))
                if slots.sampling.max_call_tokens:
                    slots.column["max_tokens"][slot] = self._limit(state, int(slots.column["max_tokens"][slot]))
            return
        for row in slots.park(waiting):
            assert row.state.episode is not None
            calls.submit(row, row.state.episode, row.state.turn_text)

    def return_rows(self, *, wait: bool) -> Iterator[FinishedResponse]:
        """Rows whose environment has answered go back into free slots. Yields those that have ended instead.

        wait: until an environment has answered, if no row can go back before that.
        """
        slots = self._slots
        for row, answer in self._calls.finished(wait=wait and not self._answered):
            row.state.observe(answer)
            row.values["max_tokens"] = self._limit(row.state, row.values["max_tokens"])
            is_full = row.values["num_tokens"] >= slots.sampling.max_response_tokens
            if row.state.ended or is_full:
                slots.parked.remove(row)
                yield row.finished(row.state.finish)
            else:
                self._answered.append(row)
        if returning := self._answered[: slots.free]:
            del self._answered[: slots.free]
            slots.unpark(returning)

    def _limit(self, state: ResponseState, max_tokens: int) -> int:
        """`max_tokens` of a row after an observation, which a call of `generate` never leaves incomplete."""
        return min(max(max_tokens, state.num_tokens_with_forced), self._slots.sampling.max_response_tokens)
