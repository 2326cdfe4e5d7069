"""Measurements of the rollouts of a step: pure functions from groups to the rollout/ and reward/ metrics, and
sentences about why a step has nothing to learn from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise
from statistics import pstdev

from ansatz.ngrams import repeated_frac
from ansatz.track.measurements import Measurement, mean
from ansatz.types import Group, Reason, Rollout, ScoredRollout


def rollout_metrics(groups: Sequence[Group]) -> dict[str, Measurement]:
    """Return the rollout/ and reward/ metrics of a step, as `track.metrics` defines them. Raise ValueError without
    groups."""
    if not groups:
        raise ValueError("a step without groups has no rollout metrics. Expected at least 1 group, got 0.")
    members = [member for group in groups for member in group.members]
    rollouts = [member.rollout for member in members]
    reasons = Counter(member.score.verdict.reason for member in members)
    count = len(members)
    return {
        "rollout/rewards": mean_of([member.score.value for group in groups for member in group.learned]),
        "rollout/reward_std": mean_of([pstdev(group.rewards) for group in groups]),
        **_accuracy(members),
        "rollout/response_length": mean(sum(rollout.num_tokens for rollout in rollouts), count),
        "rollout/response_length_max": Measurement(float(max(rollout.num_tokens for rollout in rollouts))),
        "rollout/truncated_frac": mean(sum(rollout.truncated for rollout in rollouts), count),
        "rollout/no_answer_frac": mean(reasons[Reason.NO_ANSWER], count),
        "rollout/groups_with_signal_frac": mean(sum(group.has_signal for group in groups), len(groups)),
        "rollout/repetition": mean_of([repeated_frac(rollout.token_ids) for rollout in rollouts]),
        **{f"rollout/verdict/{reason.value}": mean(reasons[reason], count) for reason in Reason},
        **_measure_single_rewards(groups),
    }


def _accuracy(members: Sequence[ScoredRollout]) -> dict[str, Measurement]:
    """Return the fraction of correct responses; nothing if no reward says which are."""
    graded = [member for member in members if member.score.is_graded]
    if not graded:
        return {}
    return {"rollout/accuracy": mean(sum(member.score.verdict.correct for member in graded), len(graded))}


def environment_metrics(groups: Sequence[Group]) -> dict[str, Measurement]:
    """Return how often the environment has answered. A run of forced tokens is one observation."""
    counts = [_num_observations(member.rollout) for group in groups for member in group.members]
    return {
        "rollout/observed_frac": mean(sum(count > 0 for count in counts), len(counts)),
        "rollout/observations": mean(sum(counts), len(counts)),
    }


def _num_observations(rollout: Rollout) -> int:
    return sum(before and not after for before, after in pairwise(rollout.sampled_mask))


def version_lag(groups: Sequence[Group], *, version: int) -> Measurement:
    """Return the mean over the sampled tokens of the optimizer steps between the policy that sampled a token and
    `version`.

    version: the version of the policy that is about to be updated. The lag is 0 if this policy sampled every token.
    """
    lags: list[int] = []
    for rollout in (member.rollout for group in groups for member in group.members):
        versions = zip(rollout.token_versions, rollout.token_mask, strict=True)
        lags += [version - token_version for token_version, sampled in versions if sampled]
    return mean(sum(lags), len(lags))


def mean_of(numbers: Sequence[float]) -> Measurement:
    """Return the mean of the numbers, whose sum is rounded only once."""
    return mean(math.fsum(numbers), len(numbers))


def _measure_single_rewards(groups: Sequence[Group]) -> dict[str, Measurement]:
    values: dict[str, list[float]] = {}
    for group in groups:
        for member in group.members:
            for name, value in member.score.parts.items():
                values.setdefault(name, []).extend(() if math.isnan(value) else (value,))
    shown = without_folders(values)
    return {f"reward/{shown[name]}": mean_of(values[name]) for name in sorted(values) if values[name]}


def without_folders(names: Collection[str]) -> dict[str, str]:
    """Return the names of rewards as they are stored and shown: of `folder/file.py:function` the shortest end that no
    other reward shares. names: all rewards of the recipe, also those that apply to no response."""

    def shorten(name: str) -> str:
        places = name.split("/") if ".py:" in name else [name]
        ends = ("/".join(places[-count:]) for count in range(1, len(places)))
        return next((end for end in ends if sum(f"/{other}".endswith(f"/{end}") for other in names) == 1), name)

    return {name: shorten(name) for name in names}


_MOST = 0.9
"""From this fraction of the responses on, an observation counts as the cause."""


def no_signal_note(groups: Sequence[Group], *, max_response_tokens: int) -> str | None:
    """Return one line with the counts and the likely cause if no group has rewards that differ; None if one does."""
    if any(group.has_signal for group in groups):
        return None
    members = [member for group in groups for member in group.members]
    count = len(members)
    num_correct = sum(member.score.verdict.correct for member in members)
    num_truncated = sum(member.rollout.truncated for member in members)
    num_no_answer = sum(member.score.verdict.reason == Reason.NO_ANSWER for member in members)
    is_graded = any(member.score.is_graded for member in members)
    found = f"{num_correct} are correct, {num_truncated} cut off, {num_no_answer} without an answer"
    if (cancelled := _describe_cancelled(groups)) is not None:
        cause = cancelled
    elif num_truncated >= _MOST * count:
        cause = (
            f"Responses are cut off at {max_response_tokens} tokens before they end. Raise "
            "rollout.max_response_tokens, or use a model and a data.template with which responses end."
        )
    elif num_no_answer >= _MOST * count:
        cause = (
            "Responses hold no answer that the reward reads. Choose a data.template that asks for the answer in the "
            "form that the reward expects, or another mode of the reward."
        )
    elif not is_graded:
        found = f"{num_truncated} are cut off; no reward says which are correct"
        cause = (
            "Give rewards that tell the responses to one problem apart, such as one with steps between its lowest and "
            "its highest value. Read rl/samples, or raise rollout.samples_per_prompt."
        )
    elif num_correct == count:
        cause = "The problems are too easy for this model. Use harder ones (ansatz data difficulty)."
    elif num_correct == 0:
        cause = (
            "The problems may be too hard for this model, or their gold answers wrong. Read rl/samples, use easier "
            "problems (ansatz data difficulty), or raise rollout.samples_per_prompt."
        )
    else:
        cause = "Each problem is either always or never solved. Raise rollout.samples_per_prompt."
    return (
        f"no signal: in all {len(groups)} groups every response has the same reward, so a group baseline gives no "
        f"gradient. Of {count} responses {found}. {cause}"
    )


def describe_abstentions(groups: Sequence[Group]) -> str | None:
    """Say which rewards do not apply to how many responses, and how many have none at all; None if all apply."""
    members = [member for group in groups for member in group.members]
    counts = Counter(name for member in members for name, value in member.score.parts.items() if math.isnan(value))
    if not counts:
        return None
    shown = without_folders({name for member in members for name in member.score.parts})
    listed = ", ".join(f"{shown[name]} to {count}" for name, count in sorted(counts.items()))
    without = sum(not member.score.applies for member in members)
    left_out = f" {without} have no reward at all and are left out of their groups." if without else ""
    return f"of {len(members)} responses, rewards do not apply: {listed}.{left_out}"


def describe_unused_steps(groups: Sequence[Group], *, per_token: bool) -> str | None:
    """Say how many responses have rewards of reasoning steps that an advantage does not use, because it gives every
    token of a response the same number; None if there are none."""
    members = [member for group in groups for member in group.members]
    count = sum(bool(member.score.steps) for member in members)
    if per_token or not count:
        return None
    return (
        f"the rewards of reasoning steps of {count} of {len(members)} responses are not used: algorithm.advantage "
        "gives all tokens of a response the same number. Set algorithm.preset: grpo_process, or another advantage per "
        "token."
    )


def _describe_cancelled(groups: Sequence[Group]) -> str | None:
    """Say that rewards differ within a group and their sum does not; None if no reward differs."""
    for group in groups:
        parts = [member.score.parts for member in group.learned]
        values = {name: {part.get(name, math.nan) for part in parts} for name in parts[0]}
        shown = without_folders(values)
        differing = [shown[name] for name, found in values.items() if len({each for each in found if each == each}) > 1]
        if len(differing) > 1:
            return (
                f"The rewards {' and '.join(differing)} differ between the responses to a problem, but cancel each "
                "other: their weighted sum is the same. Change their weights."
            )
        if differing:
            return f"Only the reward {differing[0]} differs between responses, and it has weight 0. Give it a weight."
    return None
