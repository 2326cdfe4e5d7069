"""The driver of vLLM's server, with a process that stands in for the server's engine."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import psutil

from ansatz.rollout.vllm import server
from ansatz.rollout.vllm.engine import EngineLost, EngineSettings
from ansatz.rollout.vllm.response import EngineRequest


class OneRequest:
    """Work of one request, which is given once."""

    waits_for_environments = False

    def __init__(self) -> None:
        self.left = {0: EngineRequest(token_ids=(1,), params={})}

    def take(self, *, wait: bool) -> dict[int, EngineRequest]:
        left, self.left = self.left, {}
        return left

    def add_output(self, index: int, output: Any) -> None:
        raise AssertionError("the request is never answered")


def test_a_request_that_stays_open_after_the_engine_has_died_is_given_up_at_once(monkeypatch):
    monkeypatch.setattr(server, "vllm_platform", lambda: SimpleNamespace(is_cpu=lambda: True))
    monkeypatch.setattr(server, "_WATCH_S", 0.05)
    settings = EngineSettings(model="m", dtype="float32", max_context=64, max_concurrent=2, transfer="file")
    engine = server.ServerEngine(settings)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    engine._children = {psutil.Process(process.pid)}
    opened, released = threading.Event(), threading.Event()

    def never_answers(request):
        opened.set()
        released.wait(30)

    monkeypatch.setattr(engine, "_complete", never_answers)
    raised: list[BaseException] = []

    def run():
        try:
            engine.run(OneRequest())
        except EngineLost as error:
            raised.append(error)

    waiting = threading.Thread(target=run)
    try:
        waiting.start()
        assert opened.wait(10)
        waiting.join(0.3)
        assert waiting.is_alive()  # the engine lives, so its answer is awaited
        process.kill()
        process.wait()
        threading.Timer(0.5, released.set).start()  # the pool of the driver waits for its threads
        waiting.join(10)
        assert [str(error) for error in raised] == ["one of its processes has died"]
    finally:
        released.set()
        process.kill()
