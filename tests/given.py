"""The builders of components, given what stands in a test as a user's own recipe: text that may name code."""

from __future__ import annotations

from typing import Any

from ansatz.data import base as data
from ansatz.environments import base as environments
from ansatz.objectives import build
from ansatz.rewards import grader
from ansatz.trust import TrustedText, trusted


def build_grader(recipe: Any, **settings: Any) -> grader.RewardGrader:
    return grader.build_grader(trusted(recipe), **settings)


def bind_environment(section: Any, **settings: Any) -> Any:
    return environments.bind_environment(trusted(section), **settings)


def build_objective(spec: Any, **settings: Any) -> Any:
    return build.build_objective(trusted(spec), **settings)


def load_problems(name: str, *, split: str, settings: Any = None) -> Any:
    return data.load_problems(TrustedText(name), split=split, settings=trusted(settings))
