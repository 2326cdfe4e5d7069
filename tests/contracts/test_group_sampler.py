"""What training, evaluation and stored responses rely on when they sample and grade whole groups."""

from __future__ import annotations

import copy
import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from fake_sampler import FakeSampler, FakeWeights
from tiny_models import tiny_policy

from ansatz.rollout.base import Sampler, Sampling
from ansatz.rollout.groups import GradedGroup, GroupSampler, PartialGroup, SampledGroups
from ansatz.rollout.native import NativeSampler
from ansatz.types import Finish, Problem, Prompt, Rollout
from tools.families import END_ID

SAMPLING = Sampling(num_samples=4, max_response_tokens=8, seed=3, step=2)


def prompt(name: str) -> Prompt:
    problem = Problem(id=name, question=name, answers=("5",), source="test", split="train")
    return Prompt(problem=problem, text=name, token_ids=(2, 3, 4 + ord(name[0]) % 8))


def texts(rollouts: Sequence[Rollout]) -> list[str]:
    return [rollout.text for rollout in rollouts]


def by_name(sampled: SampledGroups[Any]) -> dict[str, Any]:
    return {group.prompt.problem.id: group.graded for group in sampled.groups}


def fake(respond: Callable[[Prompt, int], str] = lambda prompt, sample: f"{prompt.text}{sample}") -> FakeSampler:
    return FakeSampler(respond)


def native() -> Sampler:
    return NativeSampler(dataclasses.replace(tiny_policy(), end_ids=(END_ID, 5, 9, 13)), max_concurrent=4)


@pytest.mark.parametrize("make", [fake, native])
@pytest.mark.parametrize("threads", [1, 3])
def test_each_prompt_becomes_one_group_graded_with_all_its_rollouts_in_order(
    make: Callable[[], Sampler], threads: int
) -> None:
    prompts = [prompt(name) for name in "dcba"]
    expected = make().generate(prompts, SAMPLING)
    sampled = GroupSampler(make(), list, grader_threads=threads).run(prompts, SAMPLING)
    assert [group.prompt for group in sampled.groups] == prompts
    assert [rollout for group in sampled.groups for rollout in group.graded] == expected
    assert sampled.partial == ()
    assert sampled.rollout_s > 0
    assert sampled.grade_s >= 0


def test_no_prompts_give_no_groups() -> None:
    sampled = GroupSampler(fake(), list).run([], SAMPLING)
    assert (sampled.groups, sampled.partial) == ((), ())


def test_a_problem_that_occurs_twice_forms_one_group_with_twice_the_samples() -> None:
    sampled = GroupSampler(fake(), texts).run([prompt("a"), prompt("b"), prompt("a")], SAMPLING)
    assert by_name(sampled) == {"a": [f"a{i}" for i in range(8)], "b": ["b0", "b1", "b2", "b3"]}


def test_a_group_is_graded_while_others_are_still_sampled() -> None:
    graded = threading.Event()

    class WaitsForTheFirstGrade(FakeSampler):
        def generate(self, prompts: Sequence[Prompt], sampling: Sampling, **how: Any) -> list[Rollout]:
            first = super().generate(prompts[:1], sampling, **how)
            assert graded.wait(10)
            return first + super().generate(prompts[1:], sampling, on_finished=how["on_finished"])

    def grade(rollouts: Sequence[Rollout]) -> int:
        graded.set()
        return len(rollouts)

    sampler = WaitsForTheFirstGrade(lambda prompt, sample: "5")
    assert by_name(GroupSampler(sampler, grade).run([prompt("a"), prompt("b")], SAMPLING)) == {"a": 4, "b": 4}


def test_on_group_is_called_once_per_group_as_it_is_graded() -> None:
    """The sampler finishes the last prompt first, so that group is reported first; the result keeps prompt order."""

    class LastPromptFirst(FakeSampler):
        def generate(self, prompts: Sequence[Prompt], sampling: Sampling, **how: Any) -> list[Rollout]:
            return [
                r for one in reversed(prompts) for r in super(LastPromptFirst, self).generate([one], sampling, **how)
            ]

    reported: list[GradedGroup[int]] = []
    sampler = LastPromptFirst(lambda prompt, sample: "5")
    sampled = GroupSampler(sampler, len).run([prompt("a"), prompt("b")], SAMPLING, on_group=reported.append)
    assert [group.prompt.text for group in reported] == ["b", "a"]
    assert [group.prompt.text for group in sampled.groups] == ["a", "b"]


def test_a_sampler_that_reports_nothing_while_it_runs_is_graded_at_its_end() -> None:
    class Silent(FakeSampler):
        def generate(self, prompts: Sequence[Prompt], sampling: Sampling, **how: Any) -> list[Rollout]:
            return super().generate(prompts, sampling, unfinished=how["unfinished"])

    sampled = GroupSampler(Silent(lambda prompt, sample: str(sample)), texts).run([prompt("a")], SAMPLING)
    assert by_name(sampled) == {"a": ["0", "1", "2", "3"]}


@pytest.mark.parametrize("where", ["grade", "on_group"])
def test_an_error_while_grading_is_raised_and_ends_the_sampling(where: str) -> None:
    failed, sampled = threading.Event(), 0

    def broken(value: Any) -> int:
        failed.set()
        raise RuntimeError("no grades today")

    class Slow(FakeSampler):
        def generate(self, prompts: Sequence[Prompt], sampling: Sampling, **how: Any) -> list[Rollout]:
            nonlocal sampled
            for one in prompts:
                super().generate([one], sampling, **how)
                sampled += 1
                assert failed.wait(10)
                time.sleep(0.01)  # lets the grading thread end after it has set the event
            return []

    grade, on_group = (broken, None) if where == "grade" else (len, broken)
    with pytest.raises(RuntimeError, match="no grades today"):
        GroupSampler(Slow(lambda prompt, sample: "5"), grade).run(
            [prompt(name) for name in "abcdefgh"], SAMPLING, on_group=on_group
        )
    assert sampled < 8


def long_second_sample(prompt: Prompt, sample: int) -> str:
    """Every response takes 2 tokens with its end, but sample 1 of problem b takes 6."""
    return "50000" if (prompt.text, sample) == ("b", 1) else "5"


def test_a_group_with_an_unfinished_rollout_is_returned_ungraded_and_completed_by_a_later_run() -> None:
    sampler, short = fake(long_second_sample), dataclasses.replace(SAMPLING, max_call_tokens=4)
    first = GroupSampler(sampler, texts).run([prompt("a"), prompt("b")], short)
    assert by_name(first) == {"a": ["5"] * 4}
    (partial,) = first.partial
    assert partial.prompt == prompt("b")
    assert [rollout.num_tokens for rollout in partial.rollouts] == [2, 4, 2, 2]
    assert [rollout.sample for rollout in partial.unfinished] == [1]

    sampler.load_weights(FakeWeights(version=1))
    second = GroupSampler(sampler, list).run([prompt("c")], short, partial=first.partial)
    assert [group.prompt.text for group in second.groups] == ["b", "c"]
    assert second.partial == ()
    members = by_name(second)["b"]
    assert [rollout.sample for rollout in members] == [0, 1, 2, 3]
    assert texts(members) == ["5", "50000", "5", "5"]
    assert members[1].token_versions == (0, 0, 0, 0, 1, 1)


def test_a_group_that_stays_unfinished_is_returned_again() -> None:
    sampler, one_token = fake(long_second_sample), dataclasses.replace(SAMPLING, max_call_tokens=2)
    partial = GroupSampler(sampler, texts).run([prompt("b")], one_token).partial
    again = GroupSampler(sampler, texts).run([], one_token, partial=partial)
    assert again.groups == ()
    assert [rollout.num_tokens for rollout in again.partial[0].rollouts] == [2, 4, 2, 2]


def test_what_the_caller_passes_in_is_not_modified() -> None:
    sampler, short = fake(long_second_sample), dataclasses.replace(SAMPLING, max_call_tokens=4)
    prompts, partial = [prompt("c")], list(GroupSampler(sampler, texts).run([prompt("b")], short).partial)
    before = copy.deepcopy((prompts, partial))
    GroupSampler(sampler, texts).run(prompts, short, partial=partial)
    assert (prompts, partial) == before


def test_a_problem_that_is_sampled_again_while_it_is_resumed_keeps_every_rollout() -> None:
    """Samples 0, 2 and 3 have ended and 1 is unfinished, so the sampler numbers the four new ones from 2."""
    sampler, short = fake(long_second_sample), dataclasses.replace(SAMPLING, max_call_tokens=4)
    partial = GroupSampler(sampler, texts).run([prompt("b")], short).partial
    sampled = GroupSampler(sampler, list).run([prompt("b")], short, partial=partial)
    members = by_name(sampled)["b"]
    assert [rollout.sample for rollout in members] == list(range(8))
    assert texts(members) == ["5", "50000", *["5"] * 6]


def test_a_partial_group_reads_its_prompt_and_unfinished_rollouts_from_its_rollouts() -> None:
    rollouts = fake().generate([prompt("a")], SAMPLING)
    aborted = dataclasses.replace(rollouts[2], finish=Finish.ABORT)
    group = PartialGroup((*rollouts[:2], aborted, rollouts[3]))
    assert (group.prompt, group.unfinished) == (prompt("a"), [aborted])
