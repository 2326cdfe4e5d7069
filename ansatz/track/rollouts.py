"""What the rollouts of a step say about the policy: pure functions from groups to the rollout/ and reward/ metrics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean, pstdev

from ansatz.ngrams import repeated_frac
from ansatz.types import Group, Reason


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """The step's rollout/ and reward/ metrics, as `track.metrics` defines them. ValueError for no groups."""
    if not groups:
        raise ValueError("a step without groups has no rollout metrics; got 0 groups, expected at least 1")
    members = [member for group in groups for member in group.members]
    rollouts = [member.rollout for member in members]
    reasons = Counter(member.score.verdict.reason for member in members)
    count = len(members)
    return {
        "rollout/rewards": fmean(member.score.value for member in members),
        "rollout/reward_std": fmean(pstdev(group.rewards) for group in groups),
        "rollout/accuracy": sum(member.score.verdict.correct for member in members) / count,
        "rollout/response_length": fmean(rollout.num_tokens for rollout in rollouts),
        "rollout/response_length_max": float(max(rollout.num_tokens for rollout in rollouts)),
        "rollout/truncated_frac": sum(rollout.truncated for rollout in rollouts) / count,
        "rollout/no_answer_frac": reasons[Reason.NO_ANSWER] / count,
        "rollout/groups_with_signal_frac": fmean(has_signal(group.rewards) for group in groups),
        "rollout/repetition": fmean(repeated_frac(rollout.token_ids) for rollout in rollouts),
        **{f"rollout/verdict/{reason.value}": reasons[reason] / count for reason in Reason},
        **_reward_parts(groups),
    }


def version_lag(groups: Sequence[Group], *, version: int) -> float:
    """Mean over the response tokens of the optimiser steps between the policy that sampled a token and `version`.

    version: that of the policy that is about to be updated. 0 if every token was sampled by it.
    """
    rollouts = [member.rollout for group in groups for member in group.members]
    lag = sum(version - token_version for rollout in rollouts for token_version in rollout.token_versions)
    return lag / sum(rollout.num_tokens for rollout in rollouts)


def has_signal(rewards: Sequence[float]) -> bool:
    """True when a group advantage is not 0 for all: some two rewards differ by more than rounding (1e-9)."""
    return not math.isclose(min(rewards), max(rewards), rel_tol=1e-9, abs_tol=1e-9)


def _reward_parts(groups: Sequence[Group]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for group in groups:
        for member in group.members:
            for name, value in member.score.parts.items():
                values.setdefault(name, []).append(value)
    return {f"reward/{name}": fmean(values[name]) for name in sorted(values)}
