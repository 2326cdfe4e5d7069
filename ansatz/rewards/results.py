"""What a reward returned, as one RewardResult per rollout. Numbers are accepted; anything else is named in an error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from ansatz.errors import ConfigError
from ansatz.rewards.base import RewardResult
from ansatz.types import Rollout

_EXPECTED = "Return a list with one number or RewardResult per rollout, in the same order."


def as_results(name: str, returned: Any, group: Sequence[Rollout]) -> list[RewardResult]:
    """One finite result per rollout of the group. ConfigError, with the reward and the problem, for anything else."""
    what = f"reward {name!r} returned"
    where = f"problem {group[0].prompt.problem.id!r}"
    if isinstance(returned, str | bytes | Mapping) or not isinstance(returned, Iterable):
        raise ConfigError(f"{what} {_shown(returned)} for {len(group)} rollouts of {where}. {_EXPECTED}")
    values = list(cast(Iterable[Any], returned))
    if len(values) != len(group):
        raise ConfigError(f"{what} {len(values)} results for {len(group)} rollouts of {where}. {_EXPECTED}")
    results = [value if isinstance(value, RewardResult) else _result(value, what, where) for value in values]
    for result in results:
        if not math.isfinite(result.value):
            raise ConfigError(f"{what} {result.value} for {where}. Return a finite number.")
    return results


def _result(value: Any, what: str, where: str) -> RewardResult:
    """A number, also a boolean or a scalar of numpy or torch, as a result."""
    number = value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value
    if not isinstance(number, bool | int | float):
        raise ConfigError(f"{what} {_shown(value)} for a rollout of {where}. Return a number or a RewardResult.")
    return RewardResult(value=float(number))


def _shown(value: Any) -> str:
    if value is None:
        return "None"
    text = repr(value)
    return f"the {type(value).__name__} {text if len(text) <= 60 else f'{text[:57]}...'}"
