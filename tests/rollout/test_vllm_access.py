"""The key of a vLLM server, and the weights that a killed process leaves in shared memory. No vLLM is needed."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest
import torch

from ansatz.rollout.vllm.access import KEY_VARIABLE, RequireKey
from ansatz.rollout.vllm.weights import FilePublisher


async def answer(scope) -> list[dict]:
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        sent.append(message)

    await RequireKey(app)(scope, None, send)
    return sent


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(b"authorization", b"Bearer sesame")], 200),
        ([(b"Authorization", b"Bearer sesame")], 200),
        ([(b"authorization", b"Bearer sesam")], 401),
        ([(b"authorization", b"sesame")], 401),
        ([], 401),
    ],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/update_weights", "/health", "/"])
def test_every_route_needs_the_key(monkeypatch, path, headers, status):
    monkeypatch.setenv(KEY_VARIABLE, "sesame")
    sent = asyncio.run(answer({"type": "http", "path": path, "headers": headers}))
    assert sent[0]["status"] == status


def test_a_websocket_without_the_key_gets_no_answer(monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, "sesame")
    assert asyncio.run(answer({"type": "websocket", "path": "/v1/realtime", "headers": []})) == []


def test_weights_of_a_killed_process_are_removed_and_those_of_a_running_one_and_foreign_folders_stay(tmp_path):
    code = (
        "import sys, time, torch; from ansatz.rollout.vllm.weights import FilePublisher\n"
        "p = FilePublisher(sys.argv[1]); p.publish({'w': torch.ones(3)}, tag='1'); print('there', flush=True)\n"
        "time.sleep(600)"
    )
    (tmp_path / "ansatz-weights-of-somebody").mkdir()
    command = [sys.executable, "-c", code, str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "there\n"
        os.kill(processes[0].pid, signal.SIGKILL)
        processes[0].wait()
        assert len(list(tmp_path.glob("*/1.safetensors"))) == 2
        publisher = FilePublisher(str(tmp_path))
        assert len(list(tmp_path.glob("*/1.safetensors"))) == 1
        publisher.publish({"w": torch.ones(3)}, tag="2")
        assert len(list(tmp_path.glob("*/2.safetensors"))) == 1
        publisher.close()
        assert len(list(tmp_path.iterdir())) == 2
    finally:
        for process in processes:
            process.kill()
            process.communicate()
