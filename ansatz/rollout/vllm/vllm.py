"""vLLM as a recipe names it: rollout.engine = {name: vllm, ...}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ansatz.config.fields import Count, Positive, Seconds
from ansatz.config.schema import RolloutSection
from ansatz.environments.base import EnvironmentSpec
from ansatz.errors import ConfigError
from ansatz.models.load import Policy
from ansatz.rollout.vllm.colocated import ColocatedEngine
from ansatz.rollout.vllm.engine import EngineSettings
from ansatz.rollout.vllm.sampler import VllmSampler
from ansatz.rollout.vllm.server import ServerEngine
from ansatz.rollout.vllm.weights import DevicePublisher, FilePublisher
from ansatz.trust import refuse_found, require

_MODE_SETTINGS = {"colocated": {"sleep"}, "server": {"devices", "timeout_s", "start_timeout_s"}}


def vllm(
    policy: Policy,
    environment: EnvironmentSpec | None = None,
    *,
    mode: Literal["colocated", "server"] = "colocated",
    max_concurrent: Positive = 256,
    max_context: Count = 0,
    seeded: bool = True,
    transfer: Literal["file", "ipc", "nccl"] = "file",
    folder: str = "",
    sleep: bool = True,
    devices: str = "",
    max_restarts: Count = 3,
    timeout_s: Seconds = 1800.0,
    start_timeout_s: Seconds = 900.0,
    options: Mapping[str, Any] | None = None,
) -> VllmSampler:
    """vLLM, as docs/cluster.md describes it.

    mode: `colocated` runs vLLM in child processes on the trainer's GPU. `server` runs it as an HTTP server on other
        GPUs.
    max_concurrent: rollouts decoded at the same time.
    max_context: tokens of a prompt and its response together. 0: the model's context.
    seeded: each response gets its own noise. Without it vLLM is a little faster, and no run can be repeated.
    transfer: the way of weights to vLLM: through a file, by ipc (on one GPU) or by nccl (between GPUs).
    folder: where weights are written with transfer = file. Empty: /dev/shm if it is writable, otherwise the temporary
        folder.
    sleep: free the engine's memory between calls. Only with mode = colocated.
    devices: CUDA_VISIBLE_DEVICES of the server. Empty: the same as for the trainer. Only with mode = server.
    timeout_s: seconds until an unanswered request means that the server is lost. Only with mode = server.
    start_timeout_s: seconds until a server that does not answer has failed to start. Only with mode = server.
    max_restarts: number of times that an engine that dies is restarted within one call.
    options: further arguments of vLLM's engine.
    """
    refuse_found(folder, kind="rollout.engine.folder")
    for option in options or {}:  # such as trust_remote_code, or the class of the workers
        require(option, kind="option of vLLM")
    _refuse_text_part(policy)
    context = min(max_context or policy.max_context, policy.max_context)
    settings = EngineSettings(
        model=policy.path,
        dtype=str(policy.dtype).removeprefix("torch."),
        max_context=context,
        max_concurrent=max_concurrent,
        transfer=transfer,
        options=options or {},
    )
    if mode == "server":
        engine = ServerEngine(settings, devices=devices, timeout_s=timeout_s, start_timeout_s=start_timeout_s)
    else:
        engine = ColocatedEngine(settings, sleep=sleep)
    return VllmSampler(
        policy,
        engine=engine,
        publisher=FilePublisher(folder) if transfer == "file" else DevicePublisher(transfer),
        max_context=context,
        seeded=seeded,
        max_restarts=max_restarts,
        environment=environment,
    )


def check_recipe(rollout: RolloutSection) -> None:
    """Raise ConfigError for settings without an effect, and for filters whose candidates vLLM does not count."""
    mode = rollout.engine.get("mode", "colocated")
    for other, settings in _MODE_SETTINGS.items():
        for setting in sorted(settings & set(rollout.engine)):
            if mode != other:
                raise ConfigError(
                    f"rollout.engine.{setting} has no effect with rollout.engine.mode = {mode}. Remove it, or set "
                    f"rollout.engine.mode to {other}."
                )
    is_masked = mode == "colocated" and rollout.engine.get("options", {}).get("return_sampling_mask")
    if rollout.top_k == 0 and (rollout.top_p < 1.0 or rollout.min_p > 0.0) and not is_masked:
        raise ConfigError(
            f"rollout.top_p = {rollout.top_p}, rollout.min_p = {rollout.min_p} with rollout.engine.name = vllm: vLLM "
            "does not report how many candidates each token was sampled from, and the update needs that number. Set "
            "rollout.top_k as well (the candidates are then counted), set rollout.engine.options to "
            "{return_sampling_mask: true} (on a GPU, not as a server), or switch both off (1.0 and 0.0)."
        )


def _refuse_text_part(policy: Policy) -> None:
    if policy.text_part is not None:
        raise ConfigError(
            f"rollout.engine.name = vllm with model.path = {policy.path!r}: vLLM would load the part for images, too, "
            "and know the weights by other names. Use rollout.engine.name native."
        )
