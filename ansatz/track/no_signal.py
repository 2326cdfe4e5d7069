"""Why a step has nothing to learn from, as a newcomer needs to hear it in the first step instead of after the run."""

from __future__ import annotations

from collections.abc import Sequence

from ansatz.track.rollouts import has_signal
from ansatz.types import Group, Reason

_MOST = 0.9
"""From this fraction of the responses on, an observation counts as the cause."""


def no_signal_note(groups: Sequence[Group], *, max_response_tokens: int) -> str | None:
    """Return one line with the counts and the likely cause if no group has rewards that differ; None if one does."""
    if any(has_signal(group.rewards) for group in groups):
        return None
    members = [member for group in groups for member in group.members]
    count = len(members)
    num_correct = sum(member.score.verdict.correct for member in members)
    num_truncated = sum(member.rollout.truncated for member in members)
    num_no_answer = sum(member.score.verdict.reason == Reason.NO_ANSWER for member in members)
    if num_truncated >= _MOST * count:
        cause = (
            f"Responses are cut off at {max_response_tokens} tokens before they end. Raise "
            "rollout.max_response_tokens, or use a model and a data.template with which responses end."
        )
    elif num_no_answer >= _MOST * count:
        cause = (
            "Responses hold no answer that the reward reads. Choose a data.template that asks for the answer in the "
            "form that the reward expects, or another mode of the reward."
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
        f"gradient. Of {count} responses {num_correct} are correct, {num_truncated} cut off, {num_no_answer} without "
        f"an answer. {cause}"
    )
