from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ansatz.data.curriculum import CurriculumSettings
from ansatz.data.cursor import ProblemStream
from ansatz.loop.collect import StepData, collect
from ansatz.loop.state import PartialRollouts
from ansatz.rewards.base import Grader
from ansatz.rollout.base import Sampler, Sampling
from ansatz.rollout.fake import FakeSampler, FakeWeights
from ansatz.types import Problem, Prompt, Reason, Rollout, Score, ScoredRollout, Verdict


class SameAsAnswer:
    """Right when the text is the answer."""

    def score(self, rollouts: Sequence[Rollout], *, step: int = 0) -> list[ScoredRollout]:
        return [ScoredRollout(rollout=one, score=self._score(one)) for one in rollouts]

    def _score(self, rollout: Rollout) -> Score:
        correct = rollout.text == rollout.prompt.problem.answer
        verdict = Verdict(correct=correct, reason=Reason.EQUAL if correct else Reason.DIFFERENT)
        return Score(value=float(correct), parts={}, verdict=verdict)

    def close(self) -> None: ...


def problems(kinds: str) -> list[Problem]:
    """One a letter: e(asy), all responses right; h(ard), none; m(ixed), every other one, the greedy one right."""
    return [
        Problem(id=f"{kind}{i}", question=kind, answer="5", source="test", split="train")
        for i, kind in enumerate(kinds)
    ]


def respond(prompt: Prompt, sample: int) -> str:
    kind = prompt.problem.question
    return "5" if kind == "e" or (kind == "m" and sample % 2 == 0) else "7"


def run(
    stream: ProblemStream,
    *,
    count: int,
    greedy: bool = False,
    sampler: Sampler | None = None,
    grader: Grader | None = None,
    **how: Any,
) -> StepData:
    return collect(
        stream,
        lambda problem: Prompt(problem=problem, text="?", token_ids=(1,)),
        count=count,
        sampler=sampler or FakeSampler(respond),
        sampling=Sampling(num_samples=4, max_response_tokens=8, step=3, max_call_tokens=how.pop("per_call", 0)),
        grader=grader or SameAsAnswer(),
        greedy=greedy,
        **how,
    )


def stream(kinds: str, **how: int) -> ProblemStream:
    return ProblemStream(problems(kinds), seed=0, curriculum=CurriculumSettings(**how))


def ids(groups) -> list[str]:
    return [group.prompt.problem.id for group in groups]


def test_without_a_curriculum_a_step_is_the_next_problems_whatever_they_show() -> None:
    found = run(ProblemStream(problems("ehm"), seed=0), count=2)
    assert ids(found.groups) == ids(found.sampled) == [one.id for one in ProblemStream(problems("ehm"), seed=0).take(2)]
    assert [len(group.members) for group in found.groups] == [4, 4]
    assert (found.greedy, found.metrics) == ([], {})
    assert found.times.keys() == {"time/rollout_s", "time/grade_s"}


def test_a_curriculum_without_refill_throws_nothing_away() -> None:
    found = run(stream("eehh"), count=3)
    assert ids(found.groups) == ids(found.sampled)
    assert (found.metrics["data/dynamic_sampling_rounds"], found.metrics["data/groups_discarded"]) == (0, 0)
    assert found.metrics["data/tried_frac"] == 3 / 4


def test_the_refill_replaces_groups_without_signal_until_the_step_is_full() -> None:
    found = run(stream("eemmehmehmm", dynamic_sampling=9), count=4)
    assert [name[0] for name in ids(found.groups)] == ["m"] * 4
    assert ids(found.groups) == [name for name in ids(found.sampled) if name[0] == "m"]
    thrown = len(found.sampled) - 4
    assert thrown > 0
    assert found.metrics["data/groups_discarded"] == thrown
    assert 1 <= found.metrics["data/dynamic_sampling_rounds"] <= 9
    assert len(set(ids(found.sampled))) == len(found.sampled)


def test_the_refill_ends_after_its_rounds_and_the_step_keeps_its_size() -> None:
    found = run(stream("h" * 20, dynamic_sampling=2), count=4)
    assert len(found.sampled) == 12
    assert ids(found.groups) == ids(found.sampled)[:4]
    assert (found.metrics["data/dynamic_sampling_rounds"], found.metrics["data/groups_discarded"]) == (2, 8)


def test_groups_with_signal_stand_before_fillers_are_counted() -> None:
    """One mixed problem of six, in a step of two: it is in the update, with one filler, in the order sampled."""
    found = run(stream("hhhhhm", dynamic_sampling=5), count=2)
    assert "m5" in ids(found.groups)
    assert len(found.groups) == 2
    order = ids(found.sampled)
    assert ids(found.groups) == sorted(ids(found.groups), key=order.index)


def test_the_refill_stops_when_the_pool_is_used_up() -> None:
    found = run(stream("hhh", dynamic_sampling=9), count=2)
    assert sorted(ids(found.sampled)) == ["h0", "h1", "h2"]
    assert found.metrics["data/dynamic_sampling_rounds"] == 2  # the second finds nothing left
    assert len(found.groups) == 2


@pytest.mark.parametrize("dynamic_sampling", [0, 3])
def test_the_greedy_responses_are_those_of_the_update(dynamic_sampling: int) -> None:
    found = run(stream("emhmehmm", dynamic_sampling=dynamic_sampling), count=3, greedy=True)
    assert [one.rollout.prompt.problem.id for one in found.greedy] == ids(found.groups)
    assert [one.score.value for one in found.greedy] == [float(name[0] in "em") for name in ids(found.groups)]


def test_the_curriculum_learns_from_all_that_was_sampled() -> None:
    pool = stream("emh", dynamic_sampling=1)
    run(pool, count=3)
    rows = {row[0]: row[1:4] for row in pool.state()["curriculum"]["tried"]}
    assert rows == {0: [4.0, 0.0, 1], 1: [2.0, 2.0, 1], 2: [0.0, 4.0, 1]}
    assert pool.state()["curriculum"]["step"] == 1


def test_a_group_is_graded_while_others_are_sampled() -> None:
    """The sampler ends no second group before the first has its grades."""
    graded = threading.Event()

    class Slow(FakeSampler):
        def generate(self, prompts: Sequence[Prompt], sampling: Sampling, **how: Any) -> list[Rollout]:
            told: Callable[[Rollout], None] = how.pop("on_finished")
            first = super().generate(prompts[:1], sampling, on_finished=told, **how)
            assert graded.wait(10)
            return first + super().generate(prompts[1:], sampling, on_finished=told)

    class Tells(SameAsAnswer):
        def score(self, rollouts: Sequence[Rollout], *, step: int = 0) -> list[ScoredRollout]:
            graded.set()
            return super().score(rollouts, step=step)

    found = run(ProblemStream(problems("mm"), seed=0), count=2, sampler=Slow(respond), grader=Tells())
    assert [group.rewards for group in found.groups] == [(1.0, 0.0, 1.0, 0.0)] * 2


def test_an_engine_that_tells_of_nothing_on_the_way_is_graded_at_its_end() -> None:
    class Silent(FakeSampler):
        def generate(self, prompts: Sequence[Prompt], sampling: Sampling, **how: Any) -> list[Rollout]:
            return super().generate(prompts, sampling, unfinished=how["unfinished"])

    found = run(ProblemStream(problems("mm"), seed=0), count=2, sampler=Silent(respond))
    assert [group.rewards for group in found.groups] == [(1.0, 0.0, 1.0, 0.0)] * 2


def test_what_a_grader_raises_ends_the_step() -> None:
    class Broken(SameAsAnswer):
        def score(self, rollouts: Sequence[Rollout], *, step: int = 0) -> list[ScoredRollout]:
            raise RuntimeError("no grades today")

    with pytest.raises(RuntimeError, match="no grades today"):
        run(ProblemStream(problems("mm"), seed=0), count=2, grader=Broken())


def test_unfinished_rollouts_go_on_in_the_next_step_and_join_their_group() -> None:
    """One byte and an end fit in a step of 4 tokens, 5 bytes and an end in two steps."""
    pool, carried = ProblemStream(problems("eeeeee"), seed=0), PartialRollouts()
    short, long = (one.id for one in ProblemStream(problems("eeeeee"), seed=0).take(2))

    def text(prompt: Prompt, sample: int) -> str:
        return "50000" if prompt.problem.id == long and sample == 1 else "5"

    sampler = FakeSampler(text)
    how = {"count": 2, "sampler": sampler, "per_call": 4, "carried": carried}
    first = run(pool, **how)
    assert ids(first.groups) == [short]
    assert {name: [one.num_tokens for one in members] for name, members in carried.items()} == {long: [2, 4, 2, 2]}
    assert first.metrics == {"rollout/partial": 1.0, "rollout/version_lag": 0.0}

    sampler.load_weights(FakeWeights(version=1))
    second = run(pool, **how)
    assert ids(second.groups)[0] == long
    assert (len(second.groups), carried) == (2, {})
    members = [one.rollout for one in second.groups[0].members]
    assert [one.sample for one in members] == [0, 1, 2, 3]
    assert [one.text for one in members] == ["5", "50000", "5", "5"]
    assert members[1].token_versions == (0, 0, 0, 0, 1, 1)
    assert second.metrics["rollout/version_lag"] > 0


def test_a_step_in_which_no_group_ends_goes_on_until_one_does() -> None:
    carried = PartialRollouts()
    found = run(
        ProblemStream(problems("eh"), seed=0),
        count=2,
        sampler=FakeSampler(lambda prompt, _: "5" if prompt.problem.question == "e" else "70000"),
        per_call=1,
        carried=carried,
    )
    assert ids(found.groups) == ["e0"]
    assert {one.num_tokens for one in carried["h1"]} == {2}


def test_a_curriculum_hears_of_a_problem_when_its_last_rollout_has_ended() -> None:
    pool, carried = stream("eh"), PartialRollouts()
    sampler = FakeSampler(lambda prompt, _: "5" if prompt.problem.question == "e" else "70000")
    tried = []
    for _ in range(2):
        run(pool, count=2, sampler=sampler, per_call=4, carried=carried)
        tried.append({row[0]: row[1:4] for row in pool.state()["curriculum"]["tried"]})
    assert tried[0].keys() == {0}
    assert tried[1][1] == [0.0, 4.0, 1]  # four responses, of one visit: it was not taken again on its way
