from __future__ import annotations

import math

import pytest

from ansatz.prompts.render import Demonstration
from ansatz.train.sample import TrainSample, samples_of_groups
from ansatz.types import Finish, Group, Problem, Prompt, Reason, Rollout, Score, ScoredRollout, Verdict

PROMPT = Prompt(
    problem=Problem(id="7", question="1+1=?", answers=("2",), source="test", split="train"),
    text="1+1=?",
    token_ids=(3, 4, 5),
)


def rollout(**changes: object) -> Rollout:
    fields = {
        "prompt": PROMPT,
        "sample": 0,
        "token_ids": (8, 9, 2),
        "behavior_logps": (-0.5, 0.0, -1.5),
        "text": "2",
        "finish": Finish.STOP,
        "version_min": 4,
        "version_max": 6,
        "seed": 0,
    }
    return Rollout(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_sample_keeps_what_the_sampler_recorded_of_its_rollout() -> None:
    sampled = rollout(
        num_candidates=(5, 1, 7), min_response_tokens=2, sampled_mask=(True, False, True), versions=(4, 6, 6)
    )
    sample = TrainSample.from_rollout(sampled, group=3, reward=0.25, components=(0.5, 0.0), steps=((1, 0.25),))
    for name in (
        "token_ids",
        "behavior_logps",
        "num_candidates",
        "min_response_tokens",
        "sampled_mask",
        "versions",
        "truncated",
    ):
        assert getattr(sample, name) == getattr(sampled, name), name
    assert sample.prompt_ids == PROMPT.token_ids
    assert (sample.group, sample.reward, sample.components, sample.steps) == (3, 0.25, (0.5, 0.0), ((1, 0.25),))


@pytest.mark.parametrize(("finish", "truncated"), [(Finish.STOP, False), (Finish.BUDGET, False), (Finish.LENGTH, True)])
def test_a_sample_of_a_rollout_that_was_cut_off_is_truncated(finish: Finish, truncated: bool) -> None:
    assert TrainSample.from_rollout(rollout(finish=finish), group=0, reward=0.0).truncated is truncated


def test_a_rollout_that_one_version_sampled_has_that_version_at_every_token() -> None:
    sampled = rollout(version_min=6, version_max=6)
    assert TrainSample.from_rollout(sampled, group=0, reward=0.0).versions == (6, 6, 6)


def test_a_demonstration_has_reward_1_and_no_log_probs_of_a_sampler() -> None:
    sample = TrainSample.from_demonstration(Demonstration(prompt=PROMPT, response_ids=(8, 2)), group=5)
    assert (sample.prompt_ids, sample.token_ids, sample.group) == ((3, 4, 5), (8, 2), 5)
    assert (sample.reward, sample.behavior_logps, sample.versions) == (1.0, [0.0, 0.0], ())


def test_a_rollout_that_no_reward_applies_to_is_left_out_of_its_group_unless_that_is_so_for_all() -> None:
    def scored(sample: int, value: float) -> ScoredRollout:
        verdict = Verdict(correct=False, reason=Reason.DIFFERENT)
        score = Score(value=0.0 if math.isnan(value) else value, parts={"mine": value}, verdict=verdict)
        return ScoredRollout(rollout=rollout(sample=sample), score=score)

    some = Group(prompt=PROMPT, members=(scored(0, 0.5), scored(1, math.nan), scored(2, 1.0)))
    none = Group(prompt=PROMPT, members=(scored(0, math.nan), scored(1, math.nan)))
    assert some.rewards == (0.5, 1.0)
    assert not none.has_signal
    samples = samples_of_groups([some, none])
    assert [(sample.group, sample.reward) for sample in samples] == [(0, 0.5), (0, 1.0), (1, 0.0), (1, 0.0)]


def test_samples_of_groups_carry_the_index_of_their_group_and_their_unweighted_rewards() -> None:
    def scored(sample: int, value: float) -> ScoredRollout:
        verdict = Verdict(correct=value > 0, reason=Reason.EQUAL if value > 0 else Reason.DIFFERENT)
        score = Score(value=value, parts={"math": value * 2, "format": 1.0}, verdict=verdict)
        return ScoredRollout(rollout=rollout(sample=sample), score=score)

    groups = [
        Group(prompt=PROMPT, members=(scored(0, 0.5), scored(1, 0.0))),
        Group(prompt=PROMPT, members=(scored(0, 1.0),)),
    ]
    samples = samples_of_groups(groups)
    assert [(sample.group, sample.reward) for sample in samples] == [(0, 0.5), (0, 0.0), (1, 1.0)]
    assert [sample.components for sample in samples] == [(1.0, 1.0), (0.0, 1.0), (2.0, 1.0)]
