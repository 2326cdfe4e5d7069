"""The interface of both drivers of vLLM, and the arguments that both start it with."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ansatz.errors import MissingExtraError, install_command
from ansatz.rollout.vllm.work import EngineWork

MINOR = "0.32"
EXTENSION = "ansatz.rollout.vllm.transfer.Extension"


class EngineLost(Exception):
    """The engine is dead, hangs, or may hold wrong weights. The caller kills it and starts a new one."""


class Engine(Protocol):
    """A running vLLM. Every method except `start` and `kill` raises EngineLost if the engine is no longer running.

    The names and arguments of the four methods of a weight update are the ones that vLLM's own clients expect.
    """

    def start(self) -> None:
        """Start with the weights of the model's folder. Raise RolloutError if the engine does not start."""
        ...

    def run(self, work: EngineWork) -> None:
        """Serve the requests of `work` until none is left. `work` is only used in this thread."""
        ...

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None: ...

    def start_weight_update(self) -> None: ...

    def update_weights(self, update_info: Any) -> None: ...

    def finish_weight_update(self, weight_version: str | None = None) -> None: ...

    def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache. False: some values computed with older weights are still there."""
        ...

    def weight_version(self) -> str:
        """Return the tag of the last finished update."""
        ...

    def sleep(self) -> None:
        """Free memory until `wake`, if the driver and the platform support it."""
        ...

    def wake(self) -> None: ...

    def kill(self) -> None:
        """End the engine with all its processes, whatever state it is in."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The arguments that vLLM is started with. options: further arguments of vLLM, which override ours."""

    model: str
    dtype: str
    max_context: int
    max_concurrent: int
    transfer: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def arguments(self, *, cpu: bool) -> dict[str, Any]:
        """Return keyword arguments of `vllm.LLM`, which are also flags of its server.

        On a CPU a prompt is never computed in chunks: chunking would end the engine when a request has a seed.
        """
        cpu_arguments = {
            "enforce_eager": True,
            "enable_chunked_prefill": False,
            "max_num_batched_tokens": max(8192, self.max_context),
        }
        return {
            "model": self.model,
            "dtype": self.dtype,
            "max_model_len": self.max_context,
            "max_num_seqs": self.max_concurrent,
            "logprobs_mode": "processed_logprobs",
            "max_logprobs": -1,
            "generation_config": "vllm",  # without this, vLLM mixes in a model's own defaults (top-k, penalties)
            "worker_extension_cls": EXTENSION,
            "weight_transfer_config": {"backend": self.transfer},
            "disable_log_stats": True,
            **(cpu_arguments if cpu else {}),
            **self.options,
        }


def environment(*, cpu: bool) -> dict[str, str]:
    """Return environment variables for vLLM's processes, except those that are already set."""
    variables = {
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a forked copy of a process with threads can hang
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        **({"VLLM_CPU_KVCACHE_SPACE": "2"} if cpu else {}),
    }
    return {name: value for name, value in variables.items() if name not in os.environ}


def vllm_platform() -> Any:
    """Return vLLM's description of this machine. Raise MissingExtraError if vLLM is missing or is another version."""
    try:
        vllm = importlib.import_module("vllm")
        platform = importlib.import_module("vllm.platforms").current_platform
    except ImportError as error:
        raise MissingExtraError(
            f"rollout.engine.name = vllm: vLLM cannot be imported ({error}). Install it: {install_command('vllm')}"
        ) from error
    if not vllm.__version__.startswith(f"{MINOR}."):
        raise MissingExtraError(
            f"rollout.engine.name = vllm: vLLM {vllm.__version__} is installed, but weight updates are known "
            f"to be correct only with {MINOR}.*. Install that version: {install_command('vllm')}"
        )
    return platform
