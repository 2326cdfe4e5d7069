"""A peer's side of the benchmark: it works one round each time it is asked, and says what the round took.

Standard library alone, since it runs in each peer's own environment. Lines of JSON on standard input and output; what
libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Any


class Rounds:
    """`begin` waits to be asked, `end` answers. settings: the peer's, from the command line."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = json.loads(sys.argv[1])
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._started = 0.0
        self._memory_before = 0

    def begin(self) -> bool:
        """Whether another round is wanted; the clock starts."""
        self._say({"ready": True})
        asked = sys.stdin.readline().strip() == "go"
        self._started, self._memory_before = time.perf_counter(), peak_memory()
        return asked

    def end(self, **found: Any) -> None:
        """Answers with the round's seconds, how far the process's peak memory rose in it, and what was found."""
        seconds = time.perf_counter() - self._started
        self._say({"seconds": seconds, "peak_rise_bytes": peak_memory() - self._memory_before, **found})

    def _say(self, what: dict[str, Any]) -> None:
        print(json.dumps(what), file=self._answers, flush=True)


def peak_memory() -> int:
    """Bytes: the highest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
