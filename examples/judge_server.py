"""A small judge with OpenAI's interface, for the recipe tiny_arithmetic_judge_cpu. It needs only Python.

    python examples/judge_server.py --port 8199 &
    ansatz train tiny_arithmetic_judge_cpu

It stands in for a language model: it says CORRECT if the candidate states the same number as the reference, and is
mistaken about a fraction of the requests, as language models are. Which ones depends only on the request, so a run that
is killed and resumed gets the same verdicts. Any other server with this interface takes its place, such as vLLM:

    vllm serve MODEL --port 8199
    ansatz train tiny_arithmetic_judge_cpu --rewards.judge.model MODEL
"""

from __future__ import annotations

import argparse
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ERROR_FRAC = 0.05


def verdict(case: str, *, error_frac: float = ERROR_FRAC) -> str:
    """CORRECT or INCORRECT. case: what rewards/judge.py asks, the question with its reference and its candidate."""
    reference, _, candidate = case.partition("Reference answer:\n")[2].partition("\n\nCandidate answer:\n")
    same = _plain(reference) == _plain(json.loads(candidate))
    digest = hashlib.sha256(case.encode()).digest()
    mistaken = int.from_bytes(digest[:4], "big") < error_frac * 2**32
    words = ("1", "0") if case.startswith("Mark ") else ("CORRECT", "INCORRECT")  # with judge_prompt.txt
    return words[0] if same != mistaken else words[1]


def _plain(answer: str) -> str:
    """The answer as text, in one form for each number."""
    text = answer.strip().strip("$").replace(",", "")
    try:
        return str(float(text))
    except ValueError:
        return text


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # with the default of 5, further connections wait a second
    error_frac = ERROR_FRAC

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: clients may be killed in the middle of a request."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = verdict(request["messages"][-1]["content"], error_frac=self.server.error_frac)
        reply = json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a line for each request would fill the terminal."""


@contextmanager
def judge_server(*, port: int = 0, error_frac: float = ERROR_FRAC) -> Iterator[str]:
    """The address of a judge on 127.0.0.1, for the setting `url`. port: 0 takes a free one."""
    server = _Server(("127.0.0.1", port), _Handler)
    server.error_frac = error_frac
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="A small judge with OpenAI's interface.")
    parser.add_argument("--port", type=int, default=8199)
    parser.add_argument("--error-frac", type=float, default=ERROR_FRAC, help="fraction of verdicts that are mistaken")
    options = parser.parse_args()
    with judge_server(port=options.port, error_frac=options.error_frac) as url:
        print(f"judge at {url}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
