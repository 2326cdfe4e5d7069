"""Whether the Ray of a run is still there: its raylet on this machine, and the head. No Ray here.

Ray itself says nothing when its raylet is killed: new workers wait for ever. When its head is gone, calls wait for a
minute, and then Ray ends the whole process.
"""

from __future__ import annotations

import importlib
import math
import socket
from dataclasses import dataclass

from ansatz import own_clock
from ansatz.cluster.actor import ProcessId, this_machine

_CONNECT_S = 2.0


@dataclass(slots=True, kw_only=True)
class RayAlive:
    """raylet: of this machine; None if it cannot be found. head: where the head's server listens.

    patience_s: how long the head may be out of reach, because the network fails or the head is started again.
    """

    raylet: ProcessId | None
    head: tuple[str, int]
    patience_s: float
    _looked_at: float = -math.inf
    _failing_since: float | None = None
    _cause: str = ""

    def cause(self, *, max_age_s: float = 0.0) -> str:
        """Return why Ray is gone, as part of a sentence; empty while it is there. max_age_s: of the last look."""
        now = own_clock.now()
        if not self._cause and now - self._looked_at >= max_age_s:
            self._cause = self._look(now)
            self._looked_at = own_clock.now()
        return self._cause

    def _look(self, now: float) -> str:
        if self.raylet is not None and not self.raylet.is_alive():
            return f"the raylet of this machine (process {self.raylet.pid}) has ended"
        try:
            socket.create_connection(self.head, timeout=_CONNECT_S).close()
        except OSError as error:
            self._failing_since = now if self._failing_since is None else self._failing_since
            quiet_s = own_clock.now() - self._failing_since
            return f"its head at {self.head[0]}:{self.head[1]} is gone ({error})" if quiet_s >= self.patience_s else ""
        self._failing_since = None
        return ""


def find_raylet(socket_name: str) -> ProcessId | None:
    """Find the process on this machine that was started to listen on this socket."""
    psutil = importlib.import_module("psutil")
    for process in psutil.process_iter(["cmdline", "create_time", "name"]):
        if process.info["name"] == "raylet" and any(socket_name in word for word in process.info["cmdline"] or []):
            return ProcessId(this_machine(), process.pid, process.info["create_time"])
    return None
