"""Chat completions from any server with OpenAI's HTTP interface (vLLM, SGLang, llama.cpp, a provider).

Standard library only. Calls block, and any number of threads can make them. One connection per request, no proxies.
"""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import BoundedSemaphore
from typing import Any
from urllib.parse import urlsplit

from ansatz.errors import ConfigError

_MAX_REPLY_BYTES = 4 << 20
_MAX_WAIT_S = 30.0  # between two attempts, even if the server asks for more
_RETRY_STATUS = (408, 409, 425, 429, 500, 502, 503, 504, 529)


class ChatFailed(Exception):
    """No usable reply after the last attempt. The message says why that one failed."""


class ChatTimeout(ChatFailed):
    """The last attempt missed its deadline."""


class _Retry(Exception):
    """This attempt failed; another one can succeed. wait_s: as the server asks, None if it does not."""

    def __init__(self, failure: ChatFailed, wait_s: float | None = None) -> None:
        super().__init__(str(failure))
        self.failure, self.wait_s = failure, wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatClient:
    """url: including the version, such as http://localhost:8000/v1. timeout_s: wall time of one attempt.

    retries: further attempts after a temporary failure (connection, timeout, status 408, 429, 5xx). The n-th starts
    after backoff_s x 2^n plus up to half of that at random, or after the server's Retry-After.
    concurrent: most requests in flight. Others wait for their turn; waiting does not count towards the timeout.
    """

    url: str
    model: str
    api_key: str | None = None
    timeout_s: float = 60.0
    retries: int = 3
    backoff_s: float = 0.5
    concurrent: int = 16
    _turn: BoundedSemaphore = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"judge: url = {self.url!r}: expected a URL such as http://localhost:8000/v1.")
        if self.timeout_s <= 0:
            raise ConfigError(f"judge: timeout_s = {self.timeout_s}: expected more than 0.")
        object.__setattr__(self, "_turn", BoundedSemaphore(self.concurrent))

    def ask(self, messages: Sequence[Mapping[str, str]], *, max_tokens: int) -> str:
        """The text of the reply, sampled at temperature 0. Raises ChatFailed or ChatTimeout after the last attempt."""
        body = {"model": self.model, "messages": list(messages), "temperature": 0, "max_tokens": max_tokens}
        for attempt in range(self.retries + 1):
            try:
                with self._turn:
                    return _content(self._post(json.dumps(body).encode()))
            except _Retry as retry:
                if attempt == self.retries:
                    raise retry.failure from retry
                backoff = self.backoff_s * 2**attempt * random.uniform(1, 1.5)
                time.sleep(min(backoff if retry.wait_s is None else retry.wait_s, _MAX_WAIT_S))
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _post(self, body: bytes) -> bytes:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        deadline = time.monotonic() + self.timeout_s
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname, parts.port, timeout=self.timeout_s)
        try:
            connection.request("POST", f"{parts.path.rstrip('/')}/chat/completions", body, self._headers())
            with connection.getresponse() as response:
                data = _read(response, deadline)
        except TimeoutError as error:
            raise _Retry(ChatTimeout(f"no reply in {self.timeout_s} s")) from error
        except (OSError, http.client.HTTPException) as error:
            raise _Retry(ChatFailed(f"{type(error).__name__}: {error}")) from error
        finally:
            connection.close()
        if response.status == 200:
            return data
        failure = ChatFailed(f"status {response.status}: {data[:200].decode(errors='replace')}")
        if response.status in _RETRY_STATUS:
            raise _Retry(failure, _seconds(response.headers.get("Retry-After")))
        raise failure

    def _headers(self) -> dict[str, str]:
        authorization = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return {"Content-Type": "application/json", **authorization}


def _read(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """The body. A server that sends it in a trickle misses the deadline too."""
    data = bytearray()
    while part := response.read1(65536):
        data += part
        if len(data) > _MAX_REPLY_BYTES:
            raise http.client.HTTPException(f"a reply of more than {_MAX_REPLY_BYTES} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError
    if response.length:  # announced bytes that did not arrive
        raise http.client.IncompleteRead(bytes(data), response.length)
    return bytes(data)


def _content(data: bytes) -> str:
    try:
        reply: Any = json.loads(data)
        content = reply["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise _Retry(ChatFailed(f"no chat completion: {data[:200].decode(errors='replace')}")) from error
    if not isinstance(content, str):
        raise _Retry(ChatFailed(f"the reply has no text: {data[:200].decode(errors='replace')}"))
    return content


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After if it is a number of seconds. Its other form, a date, is ignored."""
    return float(retry_after) if retry_after and retry_after.isdecimal() else None
