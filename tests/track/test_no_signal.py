from __future__ import annotations

from dataclasses import replace

import pytest
from made_up import group, scored

from ansatz.track.rollouts import describe_unused_steps, no_signal_note
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


def ungraded(member: ScoredRollout) -> ScoredRollout:
    """The member as it is if no reward says which responses are correct."""
    score = replace(member.score, verdict=replace(member.score.verdict, stage="grader"))
    return replace(member, score=score)


def test_without_a_grader_the_problems_are_called_neither_too_easy_nor_too_hard() -> None:
    for member in (CORRECT, WRONG):
        text = note(*[ungraded(member)] * 4)
        assert text is not None
        assert "no reward says which are correct" in text
        assert "too " not in text
        assert "are correct," not in text


def test_rewards_that_cancel_are_the_cause_and_so_is_a_weight_of_zero() -> None:
    def member(**parts: float) -> ScoredRollout:
        return scored(reward=1.0, parts=parts)

    text = note(*[member(right=1.0, short=-1.0), member(right=0.0, short=0.0)] * 2)
    assert text is not None
    assert "The rewards right and short differ" in text
    assert "cancel" in text
    text = note(*[member(right=1.0, short=0.0), member(right=0.0, short=0.0)] * 2)
    assert text is not None
    assert "Only the reward right differs between responses, and it has weight 0" in text
    text = note(*[member(right=1.0)] * 4)
    assert text is not None
    assert "too easy" in text


def test_rewards_of_steps_that_the_advantage_does_not_use_are_counted() -> None:
    with_steps = replace(CORRECT, score=replace(CORRECT.score, steps=((4, 0.5), (9, 1.0))))
    groups = [group([with_steps, WRONG]), group([with_steps, CORRECT])]
    text = describe_unused_steps(groups, per_token=False)
    assert text is not None
    assert "of 2 of 4 responses are not used" in text
    assert describe_unused_steps(groups, per_token=True) is None
    assert describe_unused_steps([group([CORRECT, WRONG])], per_token=False) is None
