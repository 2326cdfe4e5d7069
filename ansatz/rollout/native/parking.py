"""The waiting place of rows while their environments answer: outside the slots, so that other rows decode meanwhile.

A row takes its keys and values along and gets them back, and the tokens of an observation are forced in one by one. A
response is therefore the same, bit for bit, however long its environment takes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ansatz.environments.base import Observation
from ansatz.environments.calls import EnvironmentCalls
from ansatz.rollout.native.requests import FinishedResponse
from ansatz.rollout.native.slots import ParkedRow, Slots
from ansatz.rollout.response_rules import ResponseState

_PATIENCE_S, _PATIENCE_PER_CALL_S, _MAX_PATIENCE_S = 0.003, 0.0005, 0.02
"""Seconds to wait for answers before rows are parked: less than parking and returning them takes."""
_PATIENT_EVERY = 16
"""After environments were too slow, they are waited for again after this number of decode steps with calls."""


class ParkingLot:
    """The rows of `slots` whose turn has ended. calls: asks their environments."""

    def __init__(self, slots: Slots, calls: EnvironmentCalls) -> None:
        self._slots, self._calls = slots, calls
        self._row_of: dict[ResponseState, ParkedRow] = {}
        self._answers: list[tuple[ResponseState, Observation | None]] = []
        self._answered: list[ParkedRow] = []
        self._patience, self._num_asked = 1.0, 0  # of the full patience

    @property
    def full(self) -> bool:
        """Tell whether as many rows are parked as there are slots. New requests then wait, which bounds the memory."""
        return len(self._slots.parked) >= self._slots.num_slots

    def answer_turns(self) -> None:
        """Ask the environment of every row whose turn has just ended. Rows that are not answered soon are parked."""
        slots, calls = self._slots, self._calls
        waiting = [slot for slot, state in enumerate(slots.states) if state.waiting]
        if not waiting:
            return
        if calls.spec.sample.instant:
            for slot in waiting:
                state = slots.states[slot]
                assert state.episode is not None
                self._observe(slot, calls.answer(state.episode, state.turn_text))
            return
        slot_of = {slots.states[slot]: slot for slot in waiting}
        calls.submit((state, state.episode, state.turn_text) for state in slot_of if state.episode)
        patience_s = self._patience * min(_PATIENCE_S + _PATIENCE_PER_CALL_S * len(waiting), _MAX_PATIENCE_S)
        for state, answer in calls.answers.finished_soon(len(waiting), patience_s=patience_s):
            if state in slot_of:
                self._observe(slot_of.pop(state), answer)
            else:
                self._answers.append((state, answer))
        # Waiting a moment is cheaper than parking. Without the halving, slow tools would delay others.
        self._num_asked += 1
        is_patient = not slot_of or self._num_asked % _PATIENT_EVERY == 0
        self._patience = 1.0 if is_patient else self._patience / 2
        if slot_of:
            self._row_of |= {row.state: row for row in slots.park(list(slot_of.values()))}

    def _observe(self, slot: int, answer: Observation | None) -> None:
        """Give a row that is in its slot the answer of its environment."""
        slots = self._slots
        state = slots.states[slot]
        state.observe(answer)
        if slots.sampling.max_call_tokens:
            slots.column["max_tokens"][slot] = self._limit(state, int(slots.column["max_tokens"][slot]))

    def return_rows(self, *, wait: bool) -> Iterator[FinishedResponse]:
        """Put rows whose environment has answered back into free slots. Yield rows that have ended instead.

        wait: until an environment has answered, if no row can go back before that.
        """
        slots = self._slots
        answers, self._answers = self._answers, []
        answers += self._calls.answers.finished(wait=wait and not (self._answered or answers))
        for state, answer in answers:
            row = self._row_of.pop(state)
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
        """Return `max_tokens` of a row after an observation. A call of `generate` never leaves one incomplete."""
        return min(max(max_tokens, state.num_tokens_with_forced), self._slots.sampling.max_response_tokens)
