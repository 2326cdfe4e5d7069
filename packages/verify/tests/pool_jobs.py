"""Targets for the worker pool's tests: they stand in a module of their own, for workers import it by name."""

from __future__ import annotations

import os
import sys
import time
from typing import Any


def run(job: dict[str, Any]) -> dict[str, Any]:
    kind = job["kind"]
    if kind == "echo":
        return {"value": job["value"], "pid": os.getpid()}
    if kind == "sleep":
        time.sleep(job["seconds"])
    if kind == "spin":
        begin, wall = time.thread_time(), time.monotonic()
        while time.thread_time() - begin < job["seconds"]:
            pass
        return {"wall_s": time.monotonic() - wall}
    if kind == "hog":  # one call that holds the interpreter lock
        pow(7, 10**9)
    if kind == "memory":
        bytearray(4 << 30)
    if kind == "exit":
        os._exit(3)
    if kind == "raise":
        raise ValueError("no")
    if kind == "print":
        print("noise")
    if kind == "modules":
        return {"modules": sorted(sys.modules)}
    return {}
