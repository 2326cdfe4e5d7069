"""What both drivers of vLLM offer, and the arguments that both start it with."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ansatz.errors import MissingExtraError
from ansatz.rollout.vllm.response import Answer, Request

MINOR = "0.32"
EXTENSION = "ansatz.rollout.vllm.transfer.Extension"

OnAnswer = Callable[[int, Answer], "Request | None"]
"""Told of the answer to request i; says what to ask for in its place, None: nothing more."""


class EngineLost(Exception):
    """The engine is dead, hangs, or can no longer be trusted with its weights. To be killed and started anew."""


class Engine(Protocol):
    """A running vLLM. Every method but `start` and `kill` raises EngineLost where it is one no longer.

    The four verbs of a weight update have the names and arguments that vLLM's own clients expect.
    """

    def start(self) -> None:
        """RolloutError where it does not start. It then has the weights of the model's folder."""
        ...

    def run(self, requests: Mapping[int, Request], on_answer: OnAnswer) -> None:
        """All the requests, and what they lead to, until none is left. on_answer is called in this thread alone."""
        ...

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None: ...

    def start_weight_update(self) -> None: ...

    def update_weights(self, update_info: Any) -> None: ...

    def finish_weight_update(self, weight_version: str | None = None) -> None: ...

    def reset_prefix_cache(self) -> bool:
        """Whether nothing computed with the weights before is left."""
        ...

    def weight_version(self) -> str:
        """What the last finished update was called."""
        ...

    def sleep(self) -> None:
        """Gives memory back until `wake`, where the driver and the platform can."""
        ...

    def wake(self) -> None: ...

    def kill(self) -> None:
        """Ends it with all its processes, whatever state it is in."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What a vLLM is started with. options: further arguments of its own, which go over ours."""

    model: str
    dtype: str
    max_context: int
    max_concurrent: int
    transfer: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def arguments(self, *, cpu: bool) -> dict[str, Any]:
        """Keyword arguments of `vllm.LLM`, which are flags of its server too.

        On a CPU a prompt is never computed in parts: a request with a seed ends the engine when that happens.
        """
        whole = {
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
            "generation_config": "vllm",  # without this, a model's own defaults (top-k, penalties) are mixed in
            "worker_extension_cls": EXTENSION,
            "weight_transfer_config": {"backend": self.transfer},
            "disable_log_stats": True,
            **(whole if cpu else {}),
            **self.options,
        }


def environment(*, cpu: bool) -> dict[str, str]:
    """What vLLM's processes find in theirs; values that are set already stay."""
    ours = {
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a forked copy of a process with threads can hang
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        **({"VLLM_CPU_KVCACHE_SPACE": "2"} if cpu else {}),
    }
    return {name: value for name, value in ours.items() if name not in os.environ}


def vllm_platform() -> Any:
    """vLLM's idea of this machine. MissingExtraError where it is not installed, or in a version that is not known."""
    try:
        vllm = importlib.import_module("vllm")
        platform = importlib.import_module("vllm.platforms").current_platform
    except ImportError as error:
        raise MissingExtraError(
            f"rollout.engine.name = vllm: vLLM cannot be imported ({error}). Install it: pip install 'ansatz-rl[vllm]'."
        ) from error
    if not vllm.__version__.startswith(f"{MINOR}."):
        raise MissingExtraError(
            f"rollout.engine.name = vllm: vLLM {vllm.__version__} is installed, and weight updates are known to be "
            f"right with {MINOR}.* alone. Install that: pip install 'ansatz-rl[vllm]'."
        )
    return platform
