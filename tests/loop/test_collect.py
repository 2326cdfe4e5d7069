from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import pytest
from fake_grader import FakeGrader
from fake_sampler import FakeSampler, FakeWeights

from ansatz.data.curriculum import CurriculumSettings
from ansatz.data.cursor import ProblemStream
from ansatz.loop.collect import StepCollector, StepData
from ansatz.rollout.base import Sampling
from ansatz.rollout.groups import PartialGroup
from ansatz.track.measurements import Measurement
from ansatz.track.rollouts import version_lag
from ansatz.types import Group, Problem, Prompt, Rollout

SAMPLING = Sampling(num_samples=4, max_response_tokens=8, step=3)


def problems(kinds: str) -> list[Problem]:
    """One per letter: e(asy), all responses correct; h(ard), none; m(ixed), every other one and the greedy one."""
    return [
        Problem(id=f"{kind}{i}", question=kind, answers=("5",), source="test", split="train")
        for i, kind in enumerate(kinds)
    ]


def as_prompt(problem: Problem) -> Prompt:
    return Prompt(problem=problem, text="?", token_ids=(1,))


def respond(prompt: Prompt, sample: int) -> str:
    kind = prompt.problem.question
    return "5" if kind == "e" or (kind == "m" and sample % 2 == 0) else "7"


def is_answer(rollout: Rollout) -> float:
    return float(rollout.text == rollout.prompt.problem.answer)


def collector(stream: ProblemStream, *, num_prompts: int, needs_greedy: bool = False) -> StepCollector:
    return StepCollector(
        stream=stream,
        prompt_of=as_prompt,
        grader=FakeGrader(is_answer),
        num_prompts=num_prompts,
        needs_greedy=needs_greedy,
    )


def curriculum_stream(kinds: str, **settings: int) -> ProblemStream:
    return ProblemStream(problems(kinds), seed=0, curriculum=CurriculumSettings(**settings))


def ids(groups: Sequence[Group | PartialGroup]) -> list[str]:
    return [group.prompt.problem.id for group in groups]


def step_of(
    stage: StepCollector,
    sampling: Sampling = SAMPLING,
    *,
    sampler: FakeSampler | None = None,
    partial: Sequence[PartialGroup] = (),
) -> StepData:
    """One step, whose problems are taken right before it."""
    prompts = stage.take(len(partial))
    return stage.collect(sampling, sampler or FakeSampler(respond), prompts=prompts, partial=partial)


def collect(stream: ProblemStream, num_prompts: int) -> StepData:
    return step_of(collector(stream, num_prompts=num_prompts))


def test_without_a_curriculum_a_step_has_the_next_problems_whatever_their_rewards() -> None:
    data = collect(ProblemStream(problems("ehm"), seed=0), 2)
    expected = [problem.id for problem in ProblemStream(problems("ehm"), seed=0).take(2)]
    assert ids(data.groups) == ids(data.sampled) == expected
    assert [len(group.members) for group in data.groups] == [4, 4]
    assert (data.baseline_of_group, data.metrics, data.partial) == ({}, {}, ())
    assert data.rollout_s > 0
    assert data.grade_s >= 0


def test_problems_of_later_steps_are_not_taken_again_while_they_are_open() -> None:
    stream = curriculum_stream("ehme")
    stage = collector(stream, num_prompts=2)
    prompts, later = stage.take(), stage.take()
    pending = [prompt.problem.id for prompt in later]
    stage.collect(SAMPLING, FakeSampler(respond), prompts=prompts, pending=pending)
    assert {prompt.problem.id for prompt in stage.take()} == {prompt.problem.id for prompt in prompts}


def test_the_grader_gets_the_step() -> None:
    stage = collector(ProblemStream(problems("ehm"), seed=0), num_prompts=2)
    step_of(stage)
    assert isinstance(stage.grader, FakeGrader)
    assert stage.grader.steps == [3, 3]


def test_a_curriculum_without_dynamic_sampling_discards_nothing() -> None:
    data = collect(curriculum_stream("eehh"), 3)
    assert ids(data.groups) == ids(data.sampled)
    assert (data.metrics["data/dynamic_sampling_rounds"], data.metrics["data/groups_discarded"]) == (0, 0)
    assert data.metrics["data/tried_frac"] == 3 / 4


def test_dynamic_sampling_replaces_groups_without_signal_until_the_step_is_full() -> None:
    data = collect(curriculum_stream("eemmehmehmm", dynamic_sampling=9), 4)
    assert [name[0] for name in ids(data.groups)] == ["m"] * 4
    assert ids(data.groups) == [name for name in ids(data.sampled) if name[0] == "m"]
    num_discarded = len(data.sampled) - 4
    assert num_discarded > 0
    assert data.metrics["data/groups_discarded"] == num_discarded
    assert data.metrics["data/groups_without_signal"] == 0
    assert 1 <= data.metrics["data/dynamic_sampling_rounds"] <= 9
    assert len(set(ids(data.sampled))) == len(data.sampled)


def test_dynamic_sampling_ends_after_its_rounds_and_the_step_keeps_its_size() -> None:
    data = collect(curriculum_stream("h" * 20, dynamic_sampling=2), 4)
    assert len(data.sampled) == 12
    assert ids(data.groups) == ids(data.sampled)[:4]
    assert (data.metrics["data/dynamic_sampling_rounds"], data.metrics["data/groups_discarded"]) == (2, 8)
    assert data.metrics["data/groups_without_signal"] == 4


def test_a_group_with_signal_is_preferred_to_earlier_ones_without() -> None:
    """One mixed problem of six, in a step of two: it is in the update, with one other, in the order sampled."""
    data = collect(curriculum_stream("hhhhhm", dynamic_sampling=5), 2)
    assert "m5" in ids(data.groups)
    assert len(data.groups) == 2
    assert data.metrics["data/groups_without_signal"] == 1
    order = ids(data.sampled)
    assert ids(data.groups) == sorted(ids(data.groups), key=order.index)


def test_dynamic_sampling_stops_when_no_problem_is_left() -> None:
    data = collect(curriculum_stream("hhh", dynamic_sampling=9), 2)
    assert sorted(ids(data.sampled)) == ["h0", "h1", "h2"]
    assert data.metrics["data/dynamic_sampling_rounds"] == 2  # the second round finds no problem
    assert len(data.groups) == 2


@pytest.mark.parametrize("rounds", [0, 3])
def test_the_baseline_of_a_group_is_the_reward_of_its_greedy_response(rounds: int) -> None:
    stage = collector(curriculum_stream("emhmehmm", dynamic_sampling=rounds), num_prompts=3, needs_greedy=True)
    data = step_of(stage)
    expected = {index: float(name[0] in "em") for index, name in enumerate(ids(data.groups))}
    assert data.baseline_of_group == expected
    assert data.num_tokens == 2 * (4 * len(data.sampled) + 3)  # every response has 2 tokens, also the 3 greedy ones
    assert len(expected) == 3


def test_the_curriculum_learns_from_everything_that_was_sampled() -> None:
    stream = curriculum_stream("emh", dynamic_sampling=1)
    collect(stream, 3)
    rows = {row[0]: row[1:4] for row in stream.state()["curriculum"]["tried"]}
    assert rows == {0: [4.0, 0.0, 1], 1: [2.0, 2.0, 1], 2: [0.0, 4.0, 1]}
    assert stream.state()["curriculum"]["step"] == 1


def test_a_group_with_an_unfinished_rollout_waits_for_the_next_step() -> None:
    """A response of 1 byte and its end fits in a step of 4 tokens; one of 5 bytes and its end takes two steps."""
    stage = collector(ProblemStream(problems("eeeeee"), seed=0), num_prompts=2)
    short, long = (problem.id for problem in ProblemStream(problems("eeeeee"), seed=0).take(2))
    sampler = FakeSampler(lambda prompt, sample: "50000" if (prompt.problem.id, sample) == (long, 1) else "5")
    sampling = dataclasses.replace(SAMPLING, max_call_tokens=4)

    first = step_of(stage, sampling, sampler=sampler)
    assert (ids(first.groups), ids(first.partial)) == ([short], [long])
    assert [rollout.num_tokens for rollout in first.partial[0].rollouts] == [2, 4, 2, 2]
    assert first.metrics == {"rollout/partial": 1.0}
    assert first.num_tokens == 4 * 2 + (2 + 4 + 2 + 2)

    sampler.load_weights(FakeWeights(version=1))
    second = step_of(stage, sampling, sampler=sampler, partial=first.partial)
    assert ids(second.groups)[0] == long
    assert (len(second.groups), second.partial) == (2, ())
    assert second.num_tokens == 2 + 4 * 2  # the rest of the resumed rollout, and one new group
    rollouts = [member.rollout for member in second.groups[0].members]
    assert [rollout.text for rollout in rollouts] == ["5", "50000", "5", "5"]
    assert rollouts[1].token_versions == (0, 0, 0, 0, 1, 1)
    # 10 of the 20 tokens were sampled by version 0: 3 x 2 of rollouts that waited, and 4 of the resumed one.
    assert version_lag(second.groups, version=1) == Measurement(10.0, weight=20)
    assert version_lag(second.groups, version=3) == Measurement(2 * 20 + 10.0, weight=20)


def test_a_step_in_which_no_group_is_complete_continues_until_one_is() -> None:
    stage = collector(ProblemStream(problems("eh"), seed=0), num_prompts=2)
    sampler = FakeSampler(lambda prompt, sample: "5" if prompt.problem.question == "e" else "70000")
    data = step_of(stage, dataclasses.replace(SAMPLING, max_call_tokens=1), sampler=sampler)
    assert ids(data.groups) == ["e0"]
    assert {rollout.num_tokens for rollout in data.partial[0].rollouts} == {2}


def test_a_curriculum_observes_a_problem_when_its_last_rollout_has_ended() -> None:
    stream = curriculum_stream("eh")
    sampler = FakeSampler(lambda prompt, sample: "5" if prompt.problem.question == "e" else "70000")
    stage = collector(stream, num_prompts=2)
    sampling, partial, tried = dataclasses.replace(SAMPLING, max_call_tokens=4), (), []
    for _ in range(2):
        partial = step_of(stage, sampling, sampler=sampler, partial=partial).partial
        tried.append({row[0]: row[1:4] for row in stream.state()["curriculum"]["tried"]})
    assert tried[0].keys() == {0}
    assert tried[1][1] == [0.0, 4.0, 1]  # four responses in one visit: it was not taken again while it was on its way


def test_groups_that_no_reward_applies_to_leave_the_update_unless_no_group_has_a_reward() -> None:
    def none_for_hard(rollout: Rollout) -> float:
        return math.nan if rollout.prompt.problem.question == "h" else is_answer(rollout)

    for kinds, updated in (("hme", ["m1", "e2"]), ("hh", ["h0", "h1"])):
        stage = collector(ProblemStream(problems(kinds), seed=0), num_prompts=len(kinds))
        data = step_of(dataclasses.replace(stage, grader=FakeGrader(none_for_hard)))
        assert (len(data.sampled), sorted(ids(data.groups))) == (len(kinds), sorted(updated))
