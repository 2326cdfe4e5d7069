"""The algebra stage, run in a worker process."""

from __future__ import annotations

from typing import Any


def decide(job: dict[str, Any]) -> dict[str, Any]:
    return {"reason": "different"}
