"""What a rollout can interact with while it is sampled: tools, interpreters, games, conversations."""

from ansatz.environments.base import Environment, EnvironmentSpec, bind_environment

__all__ = ["Environment", "EnvironmentSpec", "bind_environment"]
