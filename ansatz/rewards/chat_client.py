"""Chat completions from any server with OpenAI's HTTP interface (vLLM, SGLang, llama.cpp, a provider).

All requests of a process run in one event loop, in a daemon thread. A request is cancelled at its deadline wherever it
stands: a server cannot delay that by sending its reply or its headers in a trickle, as it could with the timeouts of
blocking sockets, which hold for one read each. Calls block, and any number of threads can make them. No proxies.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx2
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_never

from ansatz.errors import ConfigError
from ansatz.json_text import parse_json
from ansatz.own_clock import TimeLimit
from ansatz.rewards.guarded_calls import event_loop

_MAX_REPLY_BYTES = 4 << 20
_MAX_WAIT_S = 30.0  # between two attempts, even if the server asks for more
_JITTER = random.Random()  # not the global generator, which is part of a run's state
_RETRY_STATUS = (408, 409, 425, 429, 500, 502, 503, 504, 529)


class ChatFailed(Exception):
    """No usable reply. The message says why the last attempt failed."""


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

    patience_s: wall time from the first attempt of a request until it is given up. After a temporary failure
    (connection, timeout, status 408, 429 or 503, for example) there is another attempt: the n-th after backoff_s x 2^n
    plus up to half of that at random, or after the server's Retry-After, and never more than 30 s later.
    concurrent: most requests in flight. Others wait for their turn; waiting does not count towards the timeout.
    """

    url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    timeout_s: float = 60.0
    patience_s: float = 900.0
    backoff_s: float = 0.5
    concurrent: int = 16
    _requests: _Requests = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("timeout_s", "patience_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"judge: {name} = {getattr(self, name)}: expected more than 0.")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise ConfigError(
                "judge: the API key has a line break or another character that a header cannot hold. Set the variable "
                "to the key alone."
            )
        if self.api_key is not None and self.api_key != self.api_key.strip():
            raise ConfigError("judge: the API key begins or ends with a space. Set the variable to the key alone.")
        object.__setattr__(self, "_requests", _Requests(_completions_url(self.url)))

    def ask_all(
        self, conversations: Sequence[Sequence[Mapping[str, str]]], *, max_tokens: int, patience_s: float | None = None
    ) -> list[str | ChatFailed]:
        """Return the reply to each conversation, sampled at temperature 0, or why there is none. They are asked at the
        same time.

        patience_s: instead of the client's own.
        """
        patience_s = self.patience_s if patience_s is None else patience_s
        bodies = [
            {"model": self.model, "messages": list(messages), "temperature": 0, "max_tokens": max_tokens}
            for messages in conversations
        ]

        async def ask_all() -> list[str | ChatFailed]:
            return await asyncio.gather(*(self._ask(json.dumps(body).encode(), patience_s) for body in bodies))

        return asyncio.run_coroutine_threadsafe(ask_all(), event_loop("chat")).result()

    async def _ask(self, body: bytes, patience_s: float) -> str | ChatFailed:
        failures: list[ChatFailed] = [ChatTimeout("no reply")]

        async def attempt() -> str:
            async with self._requests.turn(self.concurrent):
                patience.start(patience_s)  # the wait for the first turn needs no patience
                try:
                    return self._content(await self._post(body))
                except _Retry as retry:
                    failures.append(retry.failure)
                    raise

        retrying = AsyncRetrying(stop=stop_never, wait=self._wait, retry=retry_if_exception_type(_Retry))
        try:
            async with TimeLimit() as patience:
                return await retrying(attempt)
        except ChatFailed as failure:
            return failure
        except TimeoutError:
            kind = ChatTimeout if isinstance(failures[-1], ChatTimeout) else ChatFailed
            return kind(f"given up after {patience_s:g} s; the last attempt: {failures[-1]}")

    def _wait(self, state: RetryCallState) -> float:
        retry: Any = state.outcome.exception() if state.outcome is not None else None
        doubled = self.backoff_s * 2 ** min(state.attempt_number - 1, 20) * _JITTER.uniform(1, 1.5)
        return min(doubled if retry is None or retry.wait_s is None else retry.wait_s, _MAX_WAIT_S)

    async def _post(self, body: bytes) -> bytes:
        try:
            async with TimeLimit(self.timeout_s):
                status, headers, data = await self._requests.post(body, self._headers())
        except TimeoutError as error:
            raise _Retry(ChatTimeout(f"no reply in {self.timeout_s} s")) from error
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise _Retry(ChatFailed(f"{type(error).__name__}: {self._without_key(str(error))}")) from error
        if status == 200:
            return data
        failure = ChatFailed(f"status {status}: {self._beginning(data)}")
        if status in _RETRY_STATUS:
            raise _Retry(failure, _seconds(headers.get("Retry-After")))
        raise failure

    def _headers(self) -> dict[str, str]:
        authorization = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return {"Content-Type": "application/json", "Accept-Encoding": "identity", **authorization}

    def _content(self, data: bytes) -> str:
        try:
            reply: Any = parse_json(data)
            choice = reply["choices"][0]
            content = choice["message"]["content"]
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise _Retry(ChatFailed(f"no chat completion: {self._beginning(data)}")) from error
        if content is None and choice.get("finish_reason") == "length":
            return ""  # a thought that used up all tokens; another attempt would be as long
        if not isinstance(content, str):
            raise _Retry(ChatFailed(f"the reply has no text: {self._beginning(data)}"))
        return content

    def _beginning(self, data: bytes) -> str:
        """Return the first characters of the server's answer, for a message. Some servers repeat a key that they
        refuse."""
        return self._without_key(data.decode(errors="replace"))[:200]

    def _without_key(self, text: str) -> str:
        for form in (self.api_key, json.dumps(self.api_key)[1:-1], quote(self.api_key)) if self.api_key else ():
            text = text.replace(form, "[key]")
        return text


class _Requests:
    """The HTTP connections of one client. Used only in the event loop, which also makes them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._turns: asyncio.Semaphore | None = None
        self._http: httpx2.AsyncClient | None = None

    def turn(self, concurrent: int) -> asyncio.Semaphore:
        if self._turns is None:
            self._turns = asyncio.Semaphore(concurrent)
        return self._turns

    async def post(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, httpx2.Headers, bytes]:
        """Return status, headers and body of the reply. The caller sets the deadline."""
        if self._http is None:
            self._http = httpx2.AsyncClient(timeout=None, limits=httpx2.Limits(), trust_env=False)
        data = bytearray()
        async with self._http.stream("POST", self._url, content=body, headers=dict(headers)) as response:
            async for part in response.aiter_raw():
                data += part
                if len(data) > _MAX_REPLY_BYTES:
                    raise httpx2.RemoteProtocolError(f"a reply of more than {_MAX_REPLY_BYTES} bytes")
        return response.status_code, response.headers, bytes(data)


def _completions_url(url: str) -> str:
    """Return the address of the route. Raise ConfigError if the text is not an address."""
    if "@" in url or "?" in url:  # it can hold a key, so it is not shown
        raise ConfigError(
            "judge: the url has a name, a password or a query. Put the key into an environment variable, and give that "
            "variable's name in api_key_env."
        )
    try:
        parsed = httpx2.URL(url)
        valid = parsed.scheme in ("http", "https") and bool(parsed.host) and 0 < (parsed.port or 80) < 65536
    except (httpx2.InvalidURL, ValueError):
        valid = False
    if not valid:
        raise ConfigError(f"judge: url = {url!r}: expected a URL such as http://localhost:8000/v1.")
    return f"{url.rstrip('/')}/chat/completions"


def _seconds(retry_after: str | None) -> float | None:
    """Return Retry-After if it is a number of seconds. Its other form, a date, is ignored."""
    return float(retry_after) if retry_after and retry_after.isdecimal() and len(retry_after) < 10 else None
