"""The engines that a recipe can name under `rollout.engine`: {name: NAME, ...settings}. The default is native.

A name with a colon (`path/to/file.py:function`) is a user's own engine:
`function(policy, *, ...settings) -> Sampler`, or `function(policy, environment, *, ...settings)` if it supports the
recipe's environment (`environments.base`), which is None if there is none.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

from ansatz.config.fields import Count, Positive, Seconds
from ansatz.config.schema import RolloutSection
from ansatz.environments.base import EnvironmentSpec
from ansatz.errors import ConfigError
from ansatz.models.load import Policy
from ansatz.registry import Registry, bind
from ansatz.rollout.base import Sampler

_MODE_SETTINGS = {"colocated": {"sleep"}, "server": {"devices", "timeout_s", "start_timeout_s"}}  # of vllm

ENGINES: Registry[Callable[..., Sampler]] = Registry("rollout.engine")


def engine_of(engine: Mapping[str, Any], environment: EnvironmentSpec | None = None) -> Callable[[Policy], Sampler]:
    """Return the recipe's engine with its settings and its environment bound.

    Raises ConfigError for an unknown setting, a wrong type, or an engine that cannot take the environment.
    """
    settings = {key: value for key, value in engine.items() if key != "name"}
    name = engine.get("name", "native")
    if not isinstance(name, str):
        raise ConfigError(f"rollout.engine.name = {name!r}: expected one of: {', '.join(ENGINES.names())}.")
    function, what = ENGINES.get(name), f"rollout.engine {name!r}"
    create = bind(function, settings, what=what)
    if environment is None:
        return create
    if "environment" not in inspect.signature(function).parameters:
        raise ConfigError(
            f"{what} takes no environment, but the recipe has the environment {environment.name!r}. Give its function "
            "a second parameter `environment`, or use another engine."
        )
    return functools.partial(create, environment=environment)


def check_engine(rollout: RolloutSection, environment: EnvironmentSpec | None = None) -> None:
    """Raise ConfigError if the engine cannot sample what the recipe needs. Runs before anything has started."""
    engine_of(rollout.engine, environment)
    if rollout.engine.get("name") != "vllm":
        return
    mode = rollout.engine.get("mode", "colocated")
    for other, settings in _MODE_SETTINGS.items():
        for setting in sorted(settings & set(rollout.engine)):
            if mode != other:
                raise ConfigError(
                    f"rollout.engine.{setting} has no effect with rollout.engine.mode = {mode}. Remove it, or set "
                    f"rollout.engine.mode to {other}."
                )
    if rollout.top_k == 0 and (rollout.top_p < 1.0 or rollout.min_p > 0.0):
        raise ConfigError(
            f"rollout.top_p = {rollout.top_p}, rollout.min_p = {rollout.min_p} with rollout.engine.name = vllm: vLLM "
            "does not report how many candidates each token was sampled from, and the update needs that number. Set "
            "rollout.top_k as well (the candidates are then counted), or switch both off (1.0 and 0.0)."
        )


@ENGINES.register()
def native(policy: Policy, environment: EnvironmentSpec | None = None, *, max_concurrent: Count = 256) -> Sampler:
    """max_concurrent: rollouts decoded at the same time. It bounds the cache and changes no result. On a GPU the number
    is lower if free memory would not hold that many responses of maximum length; 0 means as many as fit."""
    from ansatz.rollout.native import NativeSampler

    return NativeSampler(policy, max_concurrent=max_concurrent, environment=environment)


@ENGINES.register()
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
) -> Sampler:
    """vLLM, as docs/vllm.md describes it.

    mode: `colocated` runs vLLM in child processes on the trainer's GPU. `server` runs it as an HTTP server on other
        GPUs.
    max_concurrent: rollouts decoded at the same time.
    max_context: tokens of a prompt and its response together. 0: the model's context.
    seeded: each response has its own noise. Without it vLLM is a little faster, and no run can be repeated.
    transfer: how weights reach vLLM: through a file, by ipc (on one GPU) or by nccl (between GPUs).
    folder: where weights are written with transfer = file. Empty: /dev/shm if it is writable, otherwise the temporary
        folder.
    sleep: free the engine's memory between calls. Only with mode = colocated.
    devices: CUDA_VISIBLE_DEVICES of the server. Empty: that of the trainer. Only with mode = server.
    timeout_s: seconds until an unanswered request means that the server is lost. Only with mode = server.
    start_timeout_s: seconds until a server that does not answer has failed to start. Only with mode = server.
    max_restarts: how often an engine that dies is restarted within one call.
    options: further arguments of vLLM's engine.
    """
    from ansatz.rollout.vllm import VllmSampler
    from ansatz.rollout.vllm.colocated import ColocatedEngine
    from ansatz.rollout.vllm.engine import EngineSettings
    from ansatz.rollout.vllm.server import ServerEngine
    from ansatz.rollout.vllm.weights import DevicePublisher, FilePublisher

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
