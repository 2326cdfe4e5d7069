"""The driver over `vllm.LLM`: vLLM's processes are children of this process and share the trainer's GPU."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import InvalidStateError
from pathlib import Path
from typing import Any

from ansatz.errors import RolloutError, one_line
from ansatz.rollout.vllm.engine import EngineLost, EngineSettings, environment, vllm_platform
from ansatz.rollout.vllm.processes import all_alive, descendants, end, shared_memory
from ansatz.rollout.vllm.response import EngineOutput, EngineRequest
from ansatz.rollout.vllm.work import EngineWork

_POLL_INTERVAL_S = 0.5
_GRACE_S = 2.0


class ColocatedEngine:
    """sleep: free the engine's memory for the trainer between calls, if the platform supports it (GPUs, not CPUs)."""

    def __init__(self, settings: EngineSettings, *, sleep: bool = True) -> None:
        self._settings, self._wants_sleep = settings, sleep
        self._platform = vllm_platform()
        self._can_sleep = self._asleep = False
        self._llm: Any = None
        self._processes: set[Any] = set()
        self._segments: set[Path] = set()
        self._ended = threading.Event()

    @property
    def processes(self) -> frozenset[int]:
        """vLLM's processes right after the start."""
        return frozenset(process.pid for process in self._processes)

    def start(self) -> None:
        cpu = self._platform.is_cpu()
        os.environ.update(environment(cpu=cpu))
        self._can_sleep = self._wants_sleep and self._platform.is_sleep_mode_available()
        vllm = importlib.import_module("vllm")
        arguments = {"enable_sleep_mode": self._can_sleep, **self._settings.arguments(cpu=cpu)}
        before = descendants()
        try:
            self._llm = vllm.LLM(**arguments)
        except Exception as error:  # any kind: vLLM checks its arguments, the model and the memory here
            raise RolloutError(f"vLLM did not start: {one_line(error)}. Its own lines above say more.") from error
        finally:
            self._processes = descendants() - before
            self._segments = shared_memory(self._processes)
        self._asleep = False
        self._ended = threading.Event()
        arguments = (self._llm.llm_engine.engine_core, frozenset(self._processes), self._ended)
        threading.Thread(target=_wake_waiting, args=arguments, daemon=True).start()

    def run(self, work: EngineWork) -> None:
        engine = self._llm.llm_engine
        index_of: dict[str, int] = {}

        def add(index: int, request: EngineRequest) -> None:
            name = f"{index}-{len(request.token_ids)}"
            engine.add_request(name, {"prompt_token_ids": list(request.token_ids)}, self._params(request))
            index_of[name] = index

        while True:
            requests = work.take(wait=not index_of)
            with _lost():
                for index, request in requests.items():
                    add(index, request)
            if not index_of:
                return
            with _lost():
                outputs = engine.step()
            for output in outputs:
                if output.finished:
                    work.add_output(index_of.pop(output.request_id), _engine_output(output.outputs[0]))

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._call(lambda llm: llm.init_weight_transfer_engine({"init_info": init_info}))

    def start_weight_update(self) -> None:
        self._call(lambda llm: llm.start_weight_update())

    def update_weights(self, update_info: Any) -> None:
        self._call(lambda llm: llm.update_weights({"update_info": update_info}))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._call(lambda llm: llm.finish_weight_update(weight_version))

    def reset_prefix_cache(self) -> bool:
        return bool(self._call(lambda llm: llm.reset_prefix_cache()))

    def weight_version(self) -> str:
        return self._call(lambda llm: llm.get_weight_version())

    def sleep(self) -> None:
        if self._can_sleep and not self._asleep:
            self._call(lambda llm: llm.sleep(level=1))
            self._asleep = True

    def wake(self) -> None:
        if self._asleep:
            self._call(lambda llm: llm.wake_up())
            self._asleep = False

    def kill(self) -> None:
        self._ended.set()
        end(self._processes, self._segments)  # first, because vLLM's own shutdown waits for each of them
        if self._llm is not None:
            with contextlib.suppress(Exception):  # any kind: its processes are gone
                self._llm.llm_engine.engine_core.shutdown()
        self._llm, self._processes, self._segments = None, set(), set()

    def _call(self, method: Callable[[Any], Any]) -> Any:
        with _lost():
            return method(self._llm)

    @staticmethod
    def _params(request: EngineRequest) -> Any:
        sampling_params = importlib.import_module("vllm").SamplingParams
        return sampling_params(**request.params, detokenize=bool(request.params["stop"]))


@contextlib.contextmanager
def _lost() -> Iterator[None]:
    """Turn every error of vLLM into EngineLost."""
    try:
        yield
    except Exception as error:  # any kind: vLLM wraps the errors of its processes in many ways
        raise EngineLost(f"{type(error).__name__}: {one_line(error)}") from error


def _wake_waiting(core: Any, processes: frozenset[Any], ended: threading.Event) -> None:
    """Fail all calls that wait for the engine once one of its processes has died.

    Without this, vLLM 0.32 waits forever if a process was killed from outside: its own monitor marks the engine as dead
    but wakes no one who waits.
    """
    while all_alive(processes):
        if ended.wait(_POLL_INTERVAL_S):
            return
    if ended.wait(_GRACE_S):  # vLLM's own error after a crash says more than ours
        return
    error = RuntimeError("a process of the engine was killed")
    core.outputs_queue.put_nowait(error)
    for waiting in list(core.utility_results.values()):
        with contextlib.suppress(InvalidStateError):
            waiting.set_exception(error)


def _engine_output(output: Any) -> EngineOutput:
    reported = [[entry.logprob > -math.inf for entry in token.values()] for token in output.logprobs]
    mask = getattr(output, "sampling_mask", None)  # with options: {return_sampling_mask: true}
    return EngineOutput(
        token_ids=list(output.token_ids),
        behavior_logps=[
            reported[token].logprob for token, reported in zip(output.token_ids, output.logprobs, strict=True)
        ],
        num_candidates=[len(kept) for kept in mask.token_ids] if mask else [sum(each) for each in reported],
        masked=bool(mask),
    )
