from __future__ import annotations

import pytest
from made_up import group, scored

from ansatz.track.rollouts import no_signal_note
from ansatz.types import Finish, Group, Reason, ScoredRollout

CUT_OFF = scored(reward=0.0, reason=Reason.TRUNCATED, finish=Finish.LENGTH)
NO_ANSWER = scored(reward=0.0, reason=Reason.NO_ANSWER)
WRONG = scored(reward=0.0, reason=Reason.DIFFERENT)
CORRECT = scored(reward=1.0)


def note(*members: ScoredRollout) -> str | None:
    """The note of two groups, each of one of the halves."""
    half = len(members) // 2
    groups: list[Group] = [group(list(members[:half])), group(list(members[half:]))]
    return no_signal_note(groups, max_response_tokens=64)


@pytest.mark.parametrize(
    ("member", "counts", "cause"),
    [
        (CUT_OFF, "Of 4 responses 0 are correct, 4 cut off, 0 without an answer", "cut off at 64 tokens"),
        (NO_ANSWER, "Of 4 responses 0 are correct, 0 cut off, 4 without an answer", "no answer that the reward reads"),
        (WRONG, "Of 4 responses 0 are correct, 0 cut off, 0 without an answer", "may be too hard"),
        (CORRECT, "Of 4 responses 4 are correct, 0 cut off, 0 without an answer", "too easy"),
    ],
)
def test_a_step_without_signal_is_described_by_its_counts_and_likely_cause(
    member: ScoredRollout, counts: str, cause: str
) -> None:
    text = note(member, member, member, member)
    assert text is not None
    assert counts in text
    assert cause in text
    assert "\n" not in text


def test_groups_that_differ_only_from_each_other_have_no_signal() -> None:
    text = note(CORRECT, CORRECT, WRONG, WRONG)
    assert text is not None
    assert "either always or never solved" in text


def test_one_group_with_different_rewards_is_a_signal() -> None:
    assert note(CORRECT, WRONG, WRONG, WRONG) is None
