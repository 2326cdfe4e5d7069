import dataclasses
import json

import pytest

from ansatz.types import (
    EnvironmentReward,
    Finish,
    Group,
    Problem,
    Prompt,
    Reason,
    Rollout,
    Score,
    ScoredRollout,
    Verdict,
    rollout_from_json,
    to_json,
)


def problem(**changes) -> Problem:
    fields = {"id": "p1", "question": "2 + 2?", "answers": ("4",), "source": "made", "split": "train"}
    return Problem(**{**fields, **changes})


def rollout(**changes) -> Rollout:
    fields = {
        "prompt": Prompt(problem=problem(), text="2 + 2?", token_ids=(5, 6)),
        "sample": 3,
        "token_ids": (7, 8, 1),
        "behavior_logps": (-0.5, -0.1234567890123, -2.0),
        "text": "4 ü \u2028 \\boxed{4}",
        "finish": Finish.STOP,
        "version_min": 4,
        "version_max": 5,
        "seed": 11,
    }
    return Rollout(**{**fields, **changes})


def scored(**changes) -> ScoredRollout:
    verdict = Verdict(correct=True, reason=Reason.EQUAL, extracted="4", stage="number", seconds=0.25)
    return ScoredRollout(
        rollout=rollout(**changes), score=Score(value=1.5, parts={"math_answer": 1.0}, verdict=verdict)
    )


def test_a_rollout_survives_json_whole():
    prompt = Prompt(
        problem=problem(level="3", solution="so 4", meta={"steps": [[2, "+", 2, 4]], "slip": False}),
        text="2 + 2?",
        token_ids=(5, 6),
    )
    reward = EnvironmentReward(value=0.5, verdict=scored().score.verdict, steps=((2, 0.5),))
    changes = {"num_candidates": (4, 61, 2), "min_response_tokens": 2, "sampled_mask": (True, False, True)}
    before = rollout(prompt=prompt, environment_reward=reward, **changes)
    after = rollout_from_json(json.loads(json.dumps(to_json(before))))
    assert isinstance(after.num_candidates, tuple)
    assert isinstance(after.sampled_mask, tuple)
    assert after == before
    assert after.environment_reward.verdict.seconds == 0.25
    assert isinstance(after.finish, Finish)
    assert isinstance(after.environment_reward.verdict.reason, Reason)
    assert isinstance(after.token_ids, tuple)
    assert isinstance(after.prompt.token_ids, tuple)


def test_reading_json_leaves_it_as_it_was():
    data = to_json(rollout())
    kept = json.dumps(data)
    rollout_from_json(data)
    assert json.dumps(data) == kept


def test_a_response_that_did_not_end_by_itself_is_truncated():
    assert {finish for finish in Finish if rollout(finish=finish).truncated} == {Finish.LENGTH, Finish.ABORT}


def test_a_rollout_needs_one_log_prob_per_token():
    with pytest.raises(ValueError, match="3 tokens has 2 behavior_logps"):
        rollout(behavior_logps=(-1.0, -1.0))
    with pytest.raises(ValueError, match="3 tokens has 1 num_candidates"):
        rollout(num_candidates=(5,))
    with pytest.raises(ValueError, match="3 tokens has 2 sampled_mask"):
        rollout(sampled_mask=(True, False))


def test_a_group_needs_a_member():
    with pytest.raises(ValueError, match="'p1' has no members"):
        Group(prompt=rollout().prompt, members=())
    assert Group(prompt=rollout().prompt, members=(scored(), scored())).rewards == (1.5, 1.5)


def test_a_verdict_is_truthy_when_correct_and_its_time_is_no_part_of_it():
    right = Verdict(correct=True, reason=Reason.EQUAL, seconds=1.0)
    assert right
    assert not Verdict(correct=False, reason=Reason.DIFFERENT)
    assert right == Verdict(correct=True, reason=Reason.EQUAL, seconds=2.0)


@pytest.mark.parametrize("value", [problem(), rollout(), scored(), scored().score])
def test_what_flows_is_frozen_and_slotted(value):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, None)
    assert not hasattr(value, "__dict__")
