from __future__ import annotations

from collections.abc import Sequence

import pytest

from ansatz.data.curriculum import CurriculumSettings
from ansatz.data.cursor import ProblemStream
from ansatz.loop.collect import Collected, collect
from ansatz.rollout.base import Sampling
from ansatz.rollout.fake import FakeSampler
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


def run(stream: ProblemStream, *, count: int, greedy: bool = False) -> Collected:
    return collect(
        stream,
        lambda problem: Prompt(problem=problem, text="?", token_ids=(1,)),
        count=count,
        sampler=FakeSampler(respond),
        sampling=Sampling(num_samples=4, max_response_tokens=8, step=3),
        grader=SameAsAnswer(),
        greedy=greedy,
    )


def stream(kinds: str, **how: int) -> ProblemStream:
    return ProblemStream(problems(kinds), seed=0, curriculum=CurriculumSettings(**how))


def ids(groups) -> list[str]:
    return [group.prompt.problem.id for group in groups]


def test_without_a_curriculum_a_step_is_the_next_problems_whatever_they_show() -> None:
    found = run(ProblemStream(problems("ehm"), seed=0, shuffle=False), count=2)
    assert ids(found.groups) == ids(found.sampled) == ["e0", "h1"]
    assert [len(group.members) for group in found.groups] == [4, 4]
    assert (found.greedy, found.metrics) == ([], {})
    assert found.times.keys() == {"time/rollout_s", "time/grade_s"}


def test_a_curriculum_without_refill_throws_nothing_away() -> None:
    found = run(stream("eehh"), count=3)
    assert ids(found.groups) == ids(found.sampled)
    assert (found.metrics["data/refill_rounds"], found.metrics["data/groups_thrown_away"]) == (0, 0)
    assert found.metrics["data/tried_frac"] == 3 / 4


def test_the_refill_replaces_groups_without_signal_until_the_step_is_full() -> None:
    found = run(stream("eemmehmehmm", refill=9), count=4)
    assert [name[0] for name in ids(found.groups)] == ["m"] * 4
    assert ids(found.groups) == [name for name in ids(found.sampled) if name[0] == "m"]
    thrown = len(found.sampled) - 4
    assert thrown > 0
    assert found.metrics["data/groups_thrown_away"] == thrown
    assert 1 <= found.metrics["data/refill_rounds"] <= 9
    assert len(set(ids(found.sampled))) == len(found.sampled)


def test_the_refill_ends_after_its_rounds_and_the_step_keeps_its_size() -> None:
    found = run(stream("h" * 20, refill=2), count=4)
    assert len(found.sampled) == 12
    assert ids(found.groups) == ids(found.sampled)[:4]
    assert (found.metrics["data/refill_rounds"], found.metrics["data/groups_thrown_away"]) == (2, 8)


def test_groups_with_signal_stand_before_fillers_are_counted() -> None:
    """One mixed problem of six, in a step of two: it is in the update, with one filler, in the order sampled."""
    found = run(stream("hhhhhm", refill=5), count=2)
    assert "m5" in ids(found.groups)
    assert len(found.groups) == 2
    order = ids(found.sampled)
    assert ids(found.groups) == sorted(ids(found.groups), key=order.index)


def test_the_refill_stops_when_the_pool_is_used_up() -> None:
    found = run(stream("hhh", refill=9), count=2)
    assert sorted(ids(found.sampled)) == ["h0", "h1", "h2"]
    assert found.metrics["data/refill_rounds"] == 2  # the second finds nothing left
    assert len(found.groups) == 2


@pytest.mark.parametrize("refill", [0, 3])
def test_the_greedy_responses_are_those_of_the_update(refill: int) -> None:
    found = run(stream("emhmehmm", refill=refill), count=3, greedy=True)
    assert [one.rollout.prompt.problem.id for one in found.greedy] == ids(found.groups)
    assert [one.score.value for one in found.greedy] == [float(name[0] in "em") for name in ids(found.groups)]


def test_the_curriculum_learns_from_all_that_was_sampled() -> None:
    pool = stream("emh", refill=1)
    run(pool, count=3)
    rows = {row[0]: row[1:4] for row in pool.state()["curriculum"]["tried"]}
    assert rows == {0: [4.0, 0.0, 1], 1: [2.0, 2.0, 1], 2: [0.0, 4.0, 1]}
    assert pool.state()["curriculum"]["step"] == 1
