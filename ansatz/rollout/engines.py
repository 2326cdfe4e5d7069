"""The engines that a recipe can name under `rollout.engine`: {name: NAME, ...settings}. The default is native.

A name with a colon (`path/to/file.py:function`) is a user's own engine:
`function(policy, *, ...settings) -> Sampler`, or `function(policy, environment, *, ...settings)` if it supports the
recipe's environment (`environments.base`), which is None if there is none. A function `check_recipe(rollout)` next to
the engine raises ConfigError for a section `rollout` that the engine cannot sample.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ansatz.config.fields import Count
from ansatz.config.schema import RolloutSection
from ansatz.environments.base import EnvironmentSpec
from ansatz.errors import ConfigError
from ansatz.models.load import Policy
from ansatz.registry import Registry, bind, check_result
from ansatz.rollout.base import Sampler

ENGINES: Registry[Callable[..., Sampler]] = Registry(
    "rollout.engine", elsewhere={"vllm": "ansatz.rollout.vllm.vllm:vllm"}
)


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
    if environment is not None:
        if "environment" not in inspect.signature(function).parameters:
            raise ConfigError(
                f"{what} takes no environment, but the recipe has the environment {environment.name!r}. Give its "
                "function a second parameter `environment`, or use another engine."
            )
        create = functools.partial(create, environment=environment)
    return functools.partial(_create_checked, create)


def _create_checked(create: Callable[..., Sampler], policy: Policy) -> Sampler:
    sampler = create(policy)
    is_right = hasattr(sampler, "generate")
    check_result(create, sampler, is_right=lambda: is_right, expected="a sampler (ansatz.rollout.base.Sampler)")
    return sampler


def check_engine(rollout: RolloutSection, environment: EnvironmentSpec | None = None) -> None:
    """Raise ConfigError if the engine cannot sample for this recipe. Runs before anything has started."""
    engine_of(rollout.engine, environment)
    check = getattr(inspect.getmodule(ENGINES.get(rollout.engine.get("name", "native"))), "check_recipe", None)
    if check is not None:
        check(rollout)


@ENGINES.register()
def native(policy: Policy, environment: EnvironmentSpec | None = None, *, max_concurrent: Count = 256) -> Sampler:
    """max_concurrent: rollouts decoded at the same time. It bounds the cache and changes no result. On a GPU the number
    is lower if free memory would not hold that many responses of maximum length; 0 means as many as fit."""
    from ansatz.rollout.native import NativeSampler

    return NativeSampler(policy, max_concurrent=max_concurrent, environment=environment)
