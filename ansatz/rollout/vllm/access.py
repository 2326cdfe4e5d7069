"""The key of a server: every route of it needs the key, also those that replace the weights.

vLLM's own key protects only the routes under /v1. The key is random, one per server, and reaches it in its environment:
a command line can be read by every user of the machine.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

KEY_VARIABLE = "ANSATZ_VLLM_KEY"

_Send = Callable[[dict[str, Any]], Awaitable[None]]
_App = Callable[[Mapping[str, Any], Any, _Send], Awaitable[None]]


class RequireKey:
    """ASGI middleware, which vLLM loads by name: answers requests without the key with status 401."""

    def __init__(self, app: _App) -> None:
        self._app, self._expected = app, f"Bearer {os.environ[KEY_VARIABLE]}".encode()

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: _Send) -> None:
        if scope["type"] == "lifespan" or hmac.compare_digest(_authorization(scope), self._expected):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b'{"error": "this server needs its key"}'})


def _authorization(scope: Mapping[str, Any]) -> bytes:
    return next((value for name, value in scope["headers"] if name.lower() == b"authorization"), b"")
