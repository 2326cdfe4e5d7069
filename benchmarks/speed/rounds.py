"""The process of one side of the benchmark: it works one round per request and reports what the round took.

It only uses the standard library, because it runs in the environment of each peer. Requests and reports are lines on
standard input and output; what libraries print is redirected to standard error.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Any


class Rounds:
    """`begin` waits for a request, `end` reports. settings: those of the side, from the command line."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = json.loads(sys.argv[1])
        self._reports = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._started = 0.0
        self._memory_before = 0

    def begin(self) -> bool:
        """Wait for a request and start the clock. Returns whether another round is wanted."""
        self._report({"ready": True})
        wanted = sys.stdin.readline().strip() == "go"
        self._started, self._memory_before = time.perf_counter(), peak_memory()
        return wanted

    def end(self, **results: Any) -> None:
        """Report the round's seconds, the rise of the process's peak memory during it, and the results."""
        seconds = time.perf_counter() - self._started
        self._report({"seconds": seconds, "peak_rise_bytes": peak_memory() - self._memory_before, **results})

    def _report(self, results: dict[str, Any]) -> None:
        print(json.dumps(results), file=self._reports, flush=True)


def peak_memory() -> int:
    """Bytes: the highest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def share_of_letters(completions: list[str], **_: Any) -> list[float]:
    """Reward the share of letters. It differs between the responses of a model with random weights, so that each group
    has something to learn from: neither side may leave out a backward pass that a real step needs."""
    return [sum(map(str.isalpha, text)) / max(len(text), 1) for text in completions]
