"""How often a worker may be restarted, and how long to wait before each restart. It has no clock of its own."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


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
