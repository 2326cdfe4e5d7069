"""A real HTTP server on 127.0.0.1: as much of OpenAI's interface as a judge needs, and misbehaviour on order."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any]], "str | tuple[int, str]"]


class ChatServer:
    """answer(request): the reply's text, or a status and a body; status 0 closes the connection.

    Requests, paths and most in flight are kept.
    """

    def __init__(self, answer: Answer, *, delay_s: float = 0.0, retry_after: str | None = None) -> None:
        self.answer, self.delay_s, self.retry_after = answer, delay_s, retry_after
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.most_in_flight = self._in_flight = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.serve(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 128  # with the default of 5, further connections wait a second

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        request = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self._lock:
            self.requests.append(request)
            self.headers.append({"path": handler.path, **dict(handler.headers.items())})
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
        time.sleep(self.delay_s)
        answer = self.answer(request)
        with self._lock:
            self._in_flight -= 1
        reply = {"choices": [{"message": {"role": "assistant", "content": answer}}]}
        status, body = answer if isinstance(answer, tuple) else (200, json.dumps(reply))
        if status == 0:
            return
        try:
            handler.send_response(status)
            if self.retry_after is not None:
                handler.send_header("Retry-After", self.retry_after)
            handler.send_header("Content-Length", str(len(body.encode())))
            handler.end_headers()
            handler.wfile.write(body.encode())
        except OSError:  # a client that gave up
            pass

    def __enter__(self) -> ChatServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
