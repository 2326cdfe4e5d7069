"""The engines that a recipe may name under `rollout.engine`: {name: NAME, ...settings}; native where no name is given.

A name with a colon (`path/to/file.py:function`) is a user's own: `function(policy, *, ...settings) -> Sampler`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from ansatz.config.fields import Count, Positive
from ansatz.config.schema import RolloutSection
from ansatz.errors import ConfigError
from ansatz.models.load import Policy
from ansatz.registry import Registry, bind
from ansatz.rollout.base import Sampler

_OF_MODE = {"colocated": {"sleep"}, "server": {"devices", "timeout_s", "start_timeout_s"}}  # of vllm's settings

ENGINES: Registry[Callable[..., Sampler]] = Registry("rollout.engine")


def engine_of(engine: Mapping[str, Any]) -> Callable[[Policy], Sampler]:
    """The engine of a recipe with its settings filled in. ConfigError for an unknown setting or a wrong type."""
    settings = {key: value for key, value in engine.items() if key != "name"}
    name = engine.get("name", "native")
    if not isinstance(name, str):
        raise ConfigError(f"rollout.engine.name = {name!r}: expected a name. There are: {', '.join(ENGINES.names())}.")
    return bind(ENGINES.get(name), settings, what=f"rollout.engine {name!r}")


def check_engine(rollout: RolloutSection) -> None:
    """ConfigError where the recipe's engine cannot sample as the recipe trains; before anything has started."""
    engine_of(rollout.engine)
    if rollout.engine.get("name") != "vllm":
        return
    mode = rollout.engine.get("mode", "colocated")
    for other, settings in _OF_MODE.items():
        for setting in sorted(settings & set(rollout.engine)):
            if mode != other:
                raise ConfigError(
                    f"rollout.engine.{setting} has no effect with rollout.engine.mode = {mode}. Leave it out, or use "
                    f"mode = {other}."
                )
    if rollout.top_k == 0 and (rollout.top_p < 1.0 or rollout.min_p > 0.0):
        raise ConfigError(
            f"rollout.top_p = {rollout.top_p}, rollout.min_p = {rollout.min_p} with rollout.engine.name = vllm: vLLM "
            "does not say how many tokens each was drawn from, and the update needs that. Give rollout.top_k as well "
            "(the tokens are then counted), or switch both off (1.0 and 0.0)."
        )


@ENGINES.register()
def native(policy: Policy, *, max_concurrent: Count = 256) -> Sampler:
    """max_concurrent: rollouts that are decoded side by side; bounds the cache and changes no number. A GPU takes fewer
    where its free memory does not hold so many of the longest; 0: as many as it holds."""
    from ansatz.rollout.native import NativeSampler

    return NativeSampler(policy, max_concurrent=max_concurrent)


@ENGINES.register()
def vllm(
    policy: Policy,
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
    timeout_s: float = 1800.0,
    start_timeout_s: float = 900.0,
    options: Mapping[str, Any] | None = None,
) -> Sampler:
    """mode: see docs/vllm.md, as for all of these. max_context: tokens of a prompt and its response, 0: the model's.

    seeded: each response has noise of its own; off, vLLM is a little faster and no run can be repeated. transfer: how
    weights come to vLLM; folder: where they are written if by file. sleep: colocated alone. devices, timeout_s,
    start_timeout_s: server alone. max_restarts: in one call. options: further arguments of vLLM's engine.
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
    )
