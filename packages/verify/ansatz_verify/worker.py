"""The program of a worker process of `pool.WorkerPool`: reads one JSON object per line and writes one per line."""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys


def main() -> None:
    """Answer jobs. argv: [sys.path as JSON, target, address space in MB, most CPU seconds of a job]."""
    target, memory_mb, lifetime_s = sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # keeps the output of libraries out of the replies
    resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    module, _, name = target.partition(":")
    function = getattr(importlib.import_module(module), name)
    replies.write("{}\n")
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, lifetime_s)  # ends this process if the parent died before it could kill it
        try:
            reply = json.dumps(function(json.loads(line)))
        except MemoryError:
            return
        except RecursionError:
            reply = json.dumps({"crashed": "recursion too deep"})
        except Exception as error:
            reply = json.dumps({"crashed": f"{type(error).__name__}: {error}"[:200]})
        signal.setitimer(signal.ITIMER_PROF, 0)
        replies.write(reply + "\n")
