"""Which weights sample which step: pure functions of the lag. No clock and no files.

W_s denotes the weights after step s. The rollouts of step s are sampled with W_v, v = max(0, s - 1 - lag). Example with
lag 2: steps 1, 2 and 3 are sampled with W_0, step 4 with W_1. With lag 0 a step is sampled with the weights that it
updates.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSchedule:
    """lag: steps between the newest weights that a step could be sampled with and those that it is sampled with.

    publish_every: weights are published after every N steps only; versions are rounded down to a multiple of it.
    """

    lag: int = 0
    publish_every: int = 1

    @property
    def live(self) -> bool:
        """Whether every step is sampled with the weights that it updates, so that no old weights are needed."""
        return self.lag == 0 and self.publish_every == 1

    @property
    def max_staleness(self) -> int:
        """The largest number of steps by which the weights that sample a step are older than those it updates."""
        return self.lag + self.publish_every - 1

    def weights_version_for(self, step: int) -> int:
        """The version that samples a step, counted from 1: the step after which its weights were published."""
        return self._published(max(0, step - 1 - self.lag))

    def newest_version_for(self, step: int) -> int:
        """The newest version while a step collects its rollouts: it samples what the step asks for in addition."""
        return self._published(step - 1)

    def open_through(self, done: int) -> int:
        """The last step whose tickets can be issued once `done` steps are complete."""
        return done + 1 + self.lag

    def publishes(self, version: int) -> bool:
        return version == self._published(version)

    def needed_versions(self, done: int) -> tuple[int, ...]:
        """The versions that steps after `done` are sampled with, of those that exist by then. Ascending."""
        steps = range(done + 1, self.open_through(done) + 1)
        return tuple(sorted({self.weights_version_for(step) for step in steps}))

    def _published(self, version: int) -> int:
        return version - version % self.publish_every
