"""The health of one worker as a state machine, and its budget of restarts. Every method receives the time.

    STARTING -> PUSHING -> READY -> PUSHING ...      a push that the engine confirms is the only way to READY
    STARTING, PUSHING, READY -> SUSPECT              a deadline has passed without an answer
    SUSPECT -> READY                                 a probe was answered in time with the expected weights version
    any -> DEAD -> STARTING ...                      the worker is replaced after a delay
    DEAD -> RETIRED                                  the budget of restarts is spent

Liveness is not health: a probe generates one token with the expected version.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    STARTING = "starting"
    PUSHING = "pushing"
    READY = "ready"
    SUSPECT = "suspect"
    DEAD = "dead"
    RETIRED = "retired"


_NEXT: dict[State, frozenset[State]] = {
    State.STARTING: frozenset({State.PUSHING, State.SUSPECT, State.DEAD}),
    State.PUSHING: frozenset({State.PUSHING, State.READY, State.SUSPECT, State.DEAD}),
    State.READY: frozenset({State.PUSHING, State.SUSPECT, State.DEAD}),
    State.SUSPECT: frozenset({State.READY, State.DEAD}),
    State.DEAD: frozenset({State.STARTING, State.RETIRED}),
    State.RETIRED: frozenset(),
}


class Weights(NamedTuple):
    """Weights by version and fingerprint. A rollback can give one version to two different weights."""

    version: int
    fingerprint: str


@dataclass(slots=True)
class Health:
    """weights: those that the engine has confirmed; None before the first push and during a push.

    reason: why the worker is suspect or dead.
    """

    since: float
    state: State = State.STARTING
    weights: Weights | None = None
    reason: str = ""

    def pushing(self, now: float) -> None:
        """Note that a push has begun. Until it is confirmed, the engine may have old, new or half-updated weights."""
        self._enter(State.PUSHING, now)
        self.weights = None

    def confirmed(self, weights: Weights, now: float) -> None:
        """Note that the engine has confirmed the weights of the push."""
        self._enter(State.READY, now)
        self.weights = weights

    def suspect(self, reason: str, now: float) -> None:
        self._enter(State.SUSPECT, now)
        self.reason = reason

    def cleared(self, now: float) -> None:
        """Note that a probe was answered in time, with the weights that were confirmed last."""
        self._enter(State.READY, now)
        self.reason = ""

    def died(self, reason: str, now: float) -> None:
        self._enter(State.DEAD, now)
        self.weights, self.reason = None, reason

    def restarted(self, now: float) -> None:
        self._enter(State.STARTING, now)
        self.reason = ""

    def retired(self, now: float) -> None:
        self._enter(State.RETIRED, now)

    def _enter(self, state: State, now: float) -> None:
        if state not in _NEXT[self.state]:
            raise ValueError(f"a worker cannot change from {self.state} to {state}.")
        if state is State.READY and self.state is State.SUSPECT and self.weights is None:
            raise ValueError("a suspect worker without confirmed weights cannot be ready.")
        self.state, self.since = state, now


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """The report of an engine after a push or a probe.

    policy_version: number of optimizer steps, which it gives to every token that it samples. logps: log-probs of a
    fixed probe response; empty if they are not known.
    """

    policy_version: int
    logps: tuple[float, ...]


def contradiction(
    pushed: Confirmation, reported: Confirmation, *, exact: bool, previous: tuple[Confirmation, Confirmation] | None
) -> str | None:
    """Return why `reported` shows that the engine does not have the weights that were pushed; None if it may have them.

    pushed: the version, and the log-probs that the trainer itself computes with these weights. exact: the engine gives
    the same bits as the trainer. An engine that rounds differently is caught by repeating its old numbers: previous is
    the pair that was pushed and reported before, in this worker. If the trainer's log-probs have changed and the
    engine's have not, it still has the old weights.
    """
    wanted = f"policy version {pushed.policy_version}"
    if reported.policy_version != pushed.policy_version:
        return f"it was given {wanted}, and it reports policy version {reported.policy_version}"
    if not pushed.logps:
        return None
    if exact and reported.logps != pushed.logps:
        return f"its log-probs of the probe are not those of {wanted}{_gap(pushed.logps, reported.logps)}"
    if not exact and previous is not None:
        old_pushed, old_reported = previous
        if old_pushed.logps not in ((), pushed.logps) and old_reported.logps == reported.logps:
            return f"its log-probs of the probe are still those of policy version {old_pushed.policy_version}"
    return None


def _gap(expected: Sequence[float], actual: Sequence[float]) -> str:
    if len(expected) != len(actual):
        return f" ({len(actual)} instead of {len(expected)} tokens)"
    return f" (they differ by up to {max(abs(a - b) for a, b in zip(expected, actual, strict=True)):.3g})"


@dataclass(slots=True, kw_only=True)
class RestartBudget:
    """At most `restarts` restarts within `window_s` seconds. The delay doubles from min_delay_s to max_delay_s.

    Example with the defaults: five deaths within an hour are followed by restarts after 1, 2, 4, 8 and 16 s. The sixth
    death within that hour spends the budget. A worker that has lived for an hour starts again at 1 s.
    """

    restarts: int = 5
    window_s: float = 3600.0
    min_delay_s: float = 1.0
    max_delay_s: float = 30.0
    _deaths: deque[float] = field(default_factory=deque[float], repr=False)

    def delay_after_death(self, now: float) -> float | None:
        """Record a death. Seconds to wait before the restart; None if the budget is spent."""
        while self._deaths and self._deaths[0] <= now - self.window_s:
            self._deaths.popleft()
        if len(self._deaths) >= self.restarts:
            return None
        self._deaths.append(now)
        return min(self.max_delay_s, self.min_delay_s * 2 ** (len(self._deaths) - 1))
