"""A host for tests of clusters."""

from __future__ import annotations

import os
import time

from ansatz.cluster.base import Emit
from ansatz.errors import ModelError, RolloutError


class Host:
    """Doubles numbers, fails, and starts processes of its own."""

    def double(self, values: list[int], emit: Emit) -> int:
        for value in values:
            emit(2 * value)
        return len(values)

    def fail(self, kind: str, emit: Emit) -> None:
        kinds = {"bug": ValueError, "exit": SystemExit, "user": ModelError, "engine": RolloutError}
        raise kinds[kind]("as requested")

    def pids(self, emit: Emit) -> int:
        """Its own process, after the start of a child process that would live for ten minutes."""
        if (child := os.fork()) == 0:
            time.sleep(600)
            os._exit(0)
        emit(child)
        return os.getpid()
