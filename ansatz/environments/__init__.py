"""Environments that a rollout can interact with while it is sampled: tools, interpreters, games, conversations."""

from ansatz.environments.base import Environment, EnvironmentSpec, bind_environment
from ansatz.environments.tools import ToolEnvironment

__all__ = ["Environment", "EnvironmentSpec", "ToolEnvironment", "bind_environment"]
