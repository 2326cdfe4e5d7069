"""Settings outside `algorithm:` that belong to a preset: the recipe must have them, and `ansatz explain` shows them.

A preset sets only the objective. An algorithm such as DAPO also changes what is sampled and how it is rewarded; its
preset therefore names what it requires, and a recipe without it is refused with the lines to add.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ansatz.config.schema import Config
from ansatz.errors import ConfigError
from ansatz.objectives.presets import PRESETS


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """value: what the recipe has; None if it lacks it. advice: the line to add."""

    key: str
    value: Callable[[Config], Any]
    advice: Callable[[Config], str]


def _dynamic_sampling(config: Config) -> Any:
    return (config.data.curriculum or {}).get("dynamic_sampling") or None


def _overlong_advice(config: Config) -> str:
    longest = config.rollout.max_response_tokens
    return f"{{max_tokens: {longest}, buffer: {max(1, longest // 5)}}}"  # a fifth, as in the paper: 4096 of 20480


REQUIREMENTS: Mapping[str, Requirement] = {
    "dynamic_sampling": Requirement(
        key="data.curriculum.dynamic_sampling", value=_dynamic_sampling, advice=lambda config: "9"
    ),
    "overlong": Requirement(
        key="rewards.overlong", value=lambda config: config.rewards.get("overlong"), advice=_overlong_advice
    ),
}
"""By the names that `requires` of a row in `objectives.presets` uses."""


def check_requirements(config: Config) -> None:
    """ConfigError if the recipe lacks a setting that its preset requires."""
    missing = [each for each in _required(config) if each.value(config) is None]
    if missing:
        preset = config.algorithm["preset"]
        lines = " and ".join(f"{each.key}: {each.advice(config)}" for each in missing)
        raise ConfigError(
            f"algorithm.preset = {preset!r} has settings outside algorithm that the recipe lacks. Add {lines}, or use "
            f"preset = {PRESETS[preset]['objective_only']!r}, which is only the objective."
        )


def requirement_lines(config: Config) -> list[str]:
    """The settings of the recipe that its preset requires, for `ansatz explain`."""
    lines = [f"  {each.key} = {each.value(config)}" for each in _required(config)]
    return ["Settings outside algorithm that belong to the preset:", *lines] if lines else []


def _required(config: Config) -> list[Requirement]:
    row = PRESETS.get(str(config.algorithm.get("preset")), {})
    return [REQUIREMENTS[name] for name in row.get("requires", ())]
