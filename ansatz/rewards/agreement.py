"""How often the rewards that grade answers agree, such as a judge and the verifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansatz.errors import ConfigError
from ansatz.rewards.base import RewardResult
from ansatz.types import Rollout, Verdict


def agreement(rollouts: Sequence[Rollout], *, all_verdicts: Mapping[str, Sequence[Verdict]]) -> list[RewardResult]:
    """Return 1 if all rewards of the recipe that grade answers agree whether the response is correct, else 0.

    A verdict that could not be reached, such as a timeout, says that the response is not correct. Raise ConfigError if
    fewer than two rewards grade answers.
    """
    if rollouts and len(all_verdicts) < 2:
        raise ConfigError(
            "rewards.agreement compares rewards that grade answers, but the recipe has "
            f"{', '.join(all_verdicts)} only. Add another one, such as math_answer with weight: 0."
        )
    opinions = zip(*([bool(verdict) for verdict in column] for column in all_verdicts.values()), strict=True)
    return [RewardResult(value=float(len(set(opinion)) == 1)) for opinion in opinions]
