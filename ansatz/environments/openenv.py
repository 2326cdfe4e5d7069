"""Episodes of a server of OpenEnv: every turn of the policy is an action, and the server's observation answers it."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

from ansatz.data.keyed_random import KeyedRandom
from ansatz.environments.base import Environment
from ansatz.environments.tool_calls import without_end
from ansatz.errors import ConfigError, MissingExtraError, install_command
from ansatz.trust import refuse_found
from ansatz.types import Problem

_NOT_SHOWN = ("reward", "done", "metadata")
_SEEDS = 2**31


class OpenEnv(Environment):
    """One episode. make: connects a client of the package; it is called when the response begins.

    See `openenv` for the other arguments.
    """

    def __init__(self, make: Any, *, action: str, shown: str | None) -> None:
        self._make, self._action, self._shown = make, action, shown
        self._client: Any = None
        self._rewards: list[float] = []

    def reset(self, problem: Problem) -> str | None:
        self._client, self._rewards = self._make(), []
        seed = int(KeyedRandom("openenv", 0, problem.id).uniform() * _SEEDS)
        return self._read(self._client.reset(seed=seed)) or None

    def step(self, response: str) -> str | None:
        result = self._client.step({self._action: without_end(response)})
        text = self._read(result)
        return None if result.done else text or "(no observation)"

    def _read(self, result: Any) -> str:
        """Return the text of an observation, and keep the reward that came with it."""
        if result.reward is not None:
            self._rewards.append(float(result.reward))
        fields = {name: value for name, value in result.observation.items() if name not in _NOT_SHOWN}
        if self._shown is None:
            return json.dumps(fields, ensure_ascii=False) if fields else ""
        if self._shown not in fields:
            raise ConfigError(
                f"environment.observation = {self._shown!r} is not a field of the server's observation. Its "
                f"fields: {', '.join(map(repr, fields)) or 'none'}. Name one of these, or none to show all."
            )
        return str(fields[self._shown])

    def reward(self) -> float:
        return sum(self._rewards)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def openenv(*, url: str, action: str = "message", observation: str | None = None, timeout_s: float = 5.0) -> OpenEnv:
    """Play episodes of a running server of OpenEnv, with the package openenv (extra `openenv`).

    Every response has a session of its own, which `reset` starts with a seed of its problem, so all responses to a
    problem begin alike if the server heeds the seed. The text of a turn is the action. The reward of a response is the
    sum of the server's rewards, which must be in [0, 1].

    url: of the server, such as http://127.0.0.1:8000; the server is started by you.
    action: field of the action that holds the text of a turn, such as "code" of a coding environment.
    observation: field of the observation that the policy is shown. None: all of them, as JSON.
    timeout_s: time of a call, which is also the client's.

    Raise MissingExtraError without the package. Raise ConfigError for an address that is not http, https, ws or wss.

    Example: `environment: {name: openenv, url: "http://127.0.0.1:8000", action: message, turns: 4}`.
    """
    refuse_found(url, kind="environment.url")
    if url.partition("://")[0] not in ("http", "https", "ws", "wss"):
        raise ConfigError(f"environment.url = {url!r}, expected an address such as http://127.0.0.1:8000.")
    try:
        client = import_module("openenv.core.generic_client").GenericEnvClient
    except ImportError as error:
        raise MissingExtraError(
            f"environment.name = openenv needs the package openenv ({error}): {install_command('openenv')}"
        ) from error
    return OpenEnv(
        lambda: client(base_url=url, connect_timeout_s=timeout_s, message_timeout_s=timeout_s).sync(),
        action=action,
        shown=observation,
    )
