"""Responses that have ended: each is reported once its environment has given its reward."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ansatz.environments.calls import EnvironmentCalls
from ansatz.environments.episode import Episode
from ansatz.types import Finish, Rollout


class Endings:
    """The end of every rollout of one call of a sampler. While one waits for its reward, others are sampled.

    calls: None without an environment. on_finished: called with each rollout, in the thread that samples.
    """

    def __init__(self, calls: EnvironmentCalls | None, on_finished: Callable[[Rollout], None] | None) -> None:
        self._calls, self._on_finished = calls, on_finished
        self._reported: dict[Any, Rollout] = {}
        self._waiting: dict[Any, tuple[Rollout, Episode]] = {}

    def add(self, key: Any, rollout: Rollout, *, episode: Episode | None, open_turn: str) -> None:
        """Add a rollout that has ended, or that this call leaves unfinished. episode, open_turn: of its environment."""
        calls = self._calls
        if calls is None or episode is None:
            self._report(key, rollout)
        elif rollout.finish is Finish.ABORT or not calls.spec.rewards:
            calls.end(episode)
            self._report(key, rollout)
        else:
            self._waiting[key] = rollout, episode
            calls.submit_reward(key, episode, open_turn)
        self._report_rewarded(wait=False)

    def wait(self) -> dict[Any, Rollout]:
        """Report the rollouts that still wait for their reward. Return all of them by their keys."""
        while self._waiting:
            self._report_rewarded(wait=True)
        return self._reported

    def _report(self, key: Any, rollout: Rollout) -> None:
        self._reported[key] = rollout
        if self._on_finished:
            self._on_finished(rollout)

    def _report_rewarded(self, *, wait: bool) -> None:
        if self._calls is None or not self._waiting:
            return
        for key, reward in self._calls.rewards.finished(wait=wait):
            rollout, episode = self._waiting.pop(key)
            self._calls.end(episode)
            self._report(key, rollout if reward is None else dataclasses.replace(rollout, environment_reward=reward))
