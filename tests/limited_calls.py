"""A process that makes calls with limits in wall time, each of which needs half of its limit. It prints how they end.

It is stopped by SIGSTOP in the middle (tests/test_own_clock.py).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer

from ansatz_verify.pool import JobTimeout, WorkerPool

from ansatz import own_clock
from ansatz.environments.base import Environment, EnvironmentSpec, TurnSettings
from ansatz.environments.calls import environment_calls
from ansatz.environments.episode import Episode
from ansatz.rewards.chat_client import ChatClient
from ansatz.rewards.guarded_calls import DeadlineMissed, GuardedCalls
from ansatz.rewards.sandbox import SandboxLimits, run
from ansatz.rollout.stall import StallWatch
from ansatz.types import Problem

LIMIT_S = 3.0
WORK_S = 1.2
PROBLEM = Problem(id="p", question="?", answers=("7",), source="test", split="train")


class Slow(Environment):
    def step(self, response: str) -> str:
        time.sleep(WORK_S)
        return "seen"


class Judge(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(WORK_S if b"slow" in request else 0.0)
        body = json.dumps({"choices": [{"message": {"content": "yes"}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def job(request: dict[str, float]) -> dict[str, str]:
    time.sleep(request["seconds"])
    return {"said": "done"}


def reward(seconds: float = WORK_S) -> str:
    try:
        return GuardedCalls().call(lambda: time.sleep(seconds) or "done", deadline_s=LIMIT_S)
    except DeadlineMissed:
        return "missed"


def environment() -> str:
    settings = TurnSettings(timeout_s=LIMIT_S)
    spec = EnvironmentSpec(name="slow", make=Slow, settings=settings, sample=Slow())
    with environment_calls(spec) as calls:
        assert calls is not None
        answer = calls.answer(Episode(spec, PROBLEM), "turn")
    return "seen" if "seen" in str(answer) else str(answer)


def judge(client: ChatClient) -> str:
    (reply,) = client.ask_all([[{"role": "user", "content": "slow"}]], max_tokens=1)
    return str(reply)


def program(source: str = f"import time\ntime.sleep({WORK_S})\nprint('done')", timeout_s: float = LIMIT_S) -> str:
    result = run(source, limits=SandboxLimits(timeout_s=timeout_s))
    return result.stdout.strip() or result.ended


def endless_program() -> str:
    return program("while True: pass", timeout_s=0.5)


def worker(pool: WorkerPool, seconds: float = WORK_S) -> str:
    try:
        return pool.call({"seconds": seconds})["said"]
    except JobTimeout:
        return "missed"


def main() -> None:
    pool = WorkerPool("tests.limited_calls:job", timeout_s=LIMIT_S)
    pool.call({"seconds": 0.0})
    server = HTTPServer(("127.0.0.1", 0), Judge)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    client = ChatClient(url=url, model="m", timeout_s=LIMIT_S, patience_s=LIMIT_S)
    client.ask_all([[]], max_tokens=1, patience_s=60.0)  # starts the thread of requests
    own_clock.take_stops()
    stalls = list[str]()
    watch = StallWatch(LIMIT_S, lambda: stalls.append("stalled") or "")
    calls: dict[str, Callable[[], str]] = {
        "reward": reward,
        "environment": environment,
        "judge": lambda: judge(client),
        "program": program,
        "worker": lambda: worker(pool),
        "hanging reward": lambda: reward(60.0),
        "hanging worker": lambda: worker(pool, 60.0),
        "endless program": endless_program,
    }
    with ThreadPoolExecutor(len(calls)) as threads:
        running = {name: threads.submit(call) for name, call in calls.items()}
        time.sleep(WORK_S / 4)
        print("now", flush=True)
        time.sleep(WORK_S / 2)
        watch.close()
        ended = {name: future.result() for name, future in running.items()}
    print(json.dumps({"ended": ended, "stalls": stalls, "stops": len(own_clock.take_stops())}), flush=True)
    pool.close()


if __name__ == "__main__":
    main()
