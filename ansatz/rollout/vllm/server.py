"""The driver over HTTP: a vLLM server in its own process group and on its own GPUs.

It listens only on this machine and needs a random key, because its control routes let everyone who reaches them replace
the weights.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from ansatz.errors import RolloutError
from ansatz.json_text import parse_json
from ansatz.own_clock import Deadline
from ansatz.rollout.vllm.access import KEY_VARIABLE, RequireKey
from ansatz.rollout.vllm.engine import EngineLost, EngineSettings, environment, vllm_platform
from ansatz.rollout.vllm.processes import all_alive, descendants, end, free_port, shared_memory
from ansatz.rollout.vllm.response import EngineOutput, EngineRequest
from ansatz.rollout.vllm.work import EngineWork

HOST = "127.0.0.1"
_IMPOSSIBLE = -9000.0  # the HTTP API writes -9999 for a log-prob of minus infinity
_LOG_TAIL = 2000  # characters
_WATCH_S = 1.0  # between two looks at the server's processes while no request ends
_ANSWER_S = 0.01  # between two looks for the answers of environments


class ServerEngine:
    """devices: CUDA_VISIBLE_DEVICES of the server; empty: the same as this process.

    timeout_s: a request that takes longer means that the server is lost. start_timeout_s: until the server answers.
    """

    def __init__(
        self, settings: EngineSettings, *, devices: str = "", timeout_s: float = 1800.0, start_timeout_s: float = 900.0
    ) -> None:
        self._settings, self._devices = settings, devices
        self._timeout_s, self._start_timeout_s = timeout_s, start_timeout_s
        self._cpu = vllm_platform().is_cpu()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._children: set[Any] = set()
        self._segments: set[Path] = set()
        self._port, self._key = 0, ""

    @property
    def processes(self) -> frozenset[int]:
        """The server, whose id is also the id of its process group, and its descendants right after the start."""
        return frozenset(child.pid for child in self._children) | ({self._process.pid} if self._process else set())

    def start(self) -> None:
        self._port = free_port()
        arguments = {**self._settings.arguments(cpu=self._cpu), "host": HOST, "port": self._port}
        self._key = secrets.token_urlsafe(32)
        server_arguments = {
            "served_model_name": "policy",
            "disable_uvicorn_access_log": True,
            "middleware": f"{RequireKey.__module__}.{RequireKey.__qualname__}",
        }
        own = {"VLLM_SERVER_DEV_MODE": "1", KEY_VARIABLE: self._key}
        if self._devices:
            own["CUDA_VISIBLE_DEVICES"] = self._devices
        self._log = tempfile.NamedTemporaryFile(prefix="ansatz-vllm-", suffix=".log")  # noqa: SIM115 kept until kill
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ansatz.rollout.vllm.serve", *flags({**server_arguments, **arguments})],
            env={**os.environ, **environment(cpu=self._cpu), **own},
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._await_health()
        self._children = descendants(self._process.pid)
        self._segments = shared_memory(self._children)

    def run(self, work: EngineWork) -> None:
        outputs: queue.SimpleQueue[tuple[int, Future[EngineOutput]]] = queue.SimpleQueue()
        outstanding = 0
        with ThreadPoolExecutor(self._settings.max_concurrent, thread_name_prefix="vllm") as pool:

            def submit(index: int, request: EngineRequest) -> None:
                future = pool.submit(self._complete, request)
                future.add_done_callback(lambda done: outputs.put((index, done)))

            try:
                while True:
                    for index, request in work.take(wait=not outstanding).items():
                        submit(index, request)
                        outstanding += 1
                    if not outstanding:
                        return
                    ended = self._next_of(outputs, timeout_s=_ANSWER_S if work.waits_for_environments else None)
                    if ended is not None:
                        index, done = ended
                        work.add_output(index, done.result())
                        outstanding -= 1
            except BaseException:
                self._end_processes()  # without this, running requests keep the pool open until they end
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _next_of(
        self, outputs: queue.SimpleQueue[tuple[int, Future[EngineOutput]]], *, timeout_s: float | None
    ) -> tuple[int, Future[EngineOutput]] | None:
        """Wait for the next request that has ended; None if none has within timeout_s.

        Raise EngineLost if a process of the server has died, because the server can then keep a request open for ever.
        """
        while True:
            try:
                return outputs.get(timeout=_WATCH_S if timeout_s is None else timeout_s)
            except queue.Empty:
                if not all_alive(self._children):
                    raise EngineLost("one of its processes has died") from None
                if timeout_s is not None:
                    return None

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._control("POST", "/init_weight_transfer_engine", {"init_info": init_info})

    def start_weight_update(self) -> None:
        self._control("POST", "/start_weight_update")

    def update_weights(self, update_info: Any) -> None:
        self._control("POST", "/update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._control("POST", "/finish_weight_update", {"weight_version": weight_version})

    def reset_prefix_cache(self) -> bool:
        return bool(self._control("POST", "/reset_prefix_cache").get("success"))

    def weight_version(self) -> str:
        return self._control("GET", "/weight_info")["weight_version"]

    def sleep(self) -> None:
        """Do nothing: the server has its own GPUs, so freeing its memory would not help the trainer."""

    def wake(self) -> None: ...

    def kill(self) -> None:
        self._end_processes()
        if self._process is not None:
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()
        if self._log is not None:
            self._log.close()
        self._process = self._log = None
        self._children, self._segments = set(), set()

    def _end_processes(self) -> None:
        """Kill the whole process group. Without this, the engine outlives its server."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        end(self._children, self._segments)

    def _complete(self, request: EngineRequest) -> EngineOutput:
        body = {
            "model": "policy",
            "prompt": list(request.token_ids),
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            **request.params,
        }
        status, reply = self._http("POST", "/v1/completions", body)
        if 400 <= status < 500:
            reason = reply.get("error", reply) if isinstance(reply, Mapping) else reply
            raise RolloutError(f"vLLM refused a request: {str(reason)[:300]}")
        if status != 200:
            raise EngineLost(f"it answered with status {status}: {str(reply)[:300]}")
        try:
            choice = reply["choices"][0]
            reported = choice["logprobs"]["top_logprobs"]
            return EngineOutput(
                token_ids=choice["token_ids"],
                behavior_logps=choice["logprobs"]["token_logprobs"],
                num_candidates=[sum(logp > _IMPOSSIBLE for logp in logps.values()) for logps in reported],
            )
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise EngineLost(f"its answer is not a completion ({error!r}): {str(reply)[:300]}") from error

    def _control(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        status, reply = self._http(method, path, body)
        if status != 200:
            raise EngineLost(f"{path} answered with status {status}: {str(reply)[:300]}")
        return reply

    def _http(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=self._timeout_s)
        try:
            content = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
            connection.request(method, path, content, headers)
            reply = connection.getresponse()
            text = reply.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise EngineLost(f"the connection broke ({type(error).__name__}: {error})") from error
        finally:
            connection.close()
        try:
            return reply.status, parse_json(text) if text else {}
        except ValueError:
            return reply.status, {"error": text}

    def _await_health(self) -> None:
        assert self._process is not None
        deadline = Deadline(self._start_timeout_s)
        while True:
            if (code := self._process.poll()) is not None:
                raise RolloutError(f"the vLLM server ended during its start (exit code {code}): {self._log_tail()}")
            with contextlib.suppress(EngineLost):
                if self._http("GET", "/health", None)[0] == 200:
                    return
            if deadline.is_over():
                raise RolloutError(
                    f"the vLLM server has not answered within rollout.engine.start_timeout_s = "
                    f"{self._start_timeout_s:.0f}: {self._log_tail()}"
                )
            time.sleep(0.2)

    def _log_tail(self) -> str:
        assert self._log is not None
        return Path(self._log.name).read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:].strip()


def flags(arguments: Mapping[str, Any]) -> list[str]:
    """Write keyword arguments of `vllm.LLM` as flags of its server's command line."""
    command: list[str] = []
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            command.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            command += [f"--{flag}", json.dumps(value) if isinstance(value, (dict, list)) else str(value)]
    return command
