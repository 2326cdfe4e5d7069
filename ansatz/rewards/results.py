"""Values of rewards, as one RewardResult per rollout. Numbers are accepted, and None from a reward that does not
apply to a rollout; anything else is named in an error."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from ansatz.errors import RewardError
from ansatz.rewards.base import RewardResult
from ansatz.types import Rollout, Verdict
from ansatz.visible import whole

_EXPECTED = "Return a list with one number or RewardResult per rollout, in the same order."


def as_results(name: str, returned: Any, group: Sequence[Rollout]) -> list[RewardResult | None]:
    """Return one finite result, or None, per rollout of the group. Raise RewardError, with the reward and the problem,
    for anything else.

    Whatever `returned` raises while it is read is passed on.
    """
    what = f"reward {name!r} returned"
    where = f"problem {group[0].prompt.problem.id!r}"
    is_scalar = getattr(returned, "shape", None) == ()  # of numpy or torch: it has __iter__ and cannot be iterated
    if isinstance(returned, str | bytes | Mapping) or is_scalar or not isinstance(returned, Iterable):
        raise RewardError(f"{what} {_show(returned)} for {len(group)} rollouts of {where}. {_EXPECTED}")
    # Without the limit, a generator that never ends would fill the memory.
    values = list(itertools.islice(cast(Iterable[Any], returned), len(group) + 1))
    if len(values) != len(group):
        number = f"more than {len(group)}" if len(values) > len(group) else len(values)
        raise RewardError(f"{what} {number} results for {len(group)} rollouts of {where}. {_EXPECTED}")
    return [None if value is None else checked_result(value, what=what, where=where) for value in values]


def checked_result(value: Any, *, what: str, where: str) -> RewardResult:
    """Return a number, also a boolean or a scalar of numpy or torch, as a result. Raise RewardError, which begins with
    `what` and names the place `where`, for anything else.

    Whatever `value` raises while it is read is passed on.
    """
    result = value if isinstance(value, RewardResult) else RewardResult(value=value)
    inner: Any = result.value
    number = inner.item() if hasattr(inner, "item") and not getattr(inner, "shape", ()) else inner
    if not isinstance(number, bool | int | float):
        raise RewardError(f"{what} {_show(value)} for a rollout of {where}. Return a number or a RewardResult.")
    if not math.isfinite(number) if isinstance(number, float) else abs(number) > 10**300:
        shown = f"a number of more than {10**300:.0e}" if isinstance(number, int) else number
        raise RewardError(f"{what} {shown} for {where}. Return a finite number.")
    verdict = result.verdict
    if verdict is not None and not isinstance(cast(Any, verdict), Verdict):
        raise RewardError(f"{what} {_show(verdict)} as the verdict on a rollout of {where}. Return a Verdict or None.")
    if verdict is not None:
        verdict = dataclasses.replace(verdict, extracted=whole(verdict.extracted), stage=whole(verdict.stage))
    steps = _steps(result.steps, what, where)
    return RewardResult(value=float(number), verdict=verdict, steps=steps, left_to_others=result.left_to_others)


def _steps(steps: Any, what: str, where: str) -> tuple[tuple[int, float], ...]:
    """Return the ends in rising order with finite rewards. Raise RewardError for anything else."""
    pairs = tuple((int(end), float(reward)) for end, reward in steps)
    ends = [end for end, _ in pairs]
    if not all(math.isfinite(reward) for _, reward in pairs) or ends != sorted(set(ends)) or min(ends, default=1) < 1:
        raise RewardError(
            f"{what} the steps {_show(pairs)} for a rollout of {where}. Return (characters up to the end of the step, "
            "finite reward) pairs in rising order."
        )
    return pairs


def _show(value: Any) -> str:
    if value is None:
        return "None"
    try:
        text = repr(value)
    except Exception as error:  # the class of a user can raise anything
        text = f"whose repr raises {type(error).__name__}"
    return f"the {type(value).__name__} {text if len(text) <= 60 else f'{text[:57]}...'}"
