"""What training, evaluation and stored responses rely on in a grader, over the real one and the fake."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from fake_grader import FakeGrader

from ansatz.rewards.base import Grader
from ansatz.rewards.grader import build_grader
from ansatz.types import Finish, Problem, Prompt, Reason, Rollout

GRADERS: dict[str, Callable[[], Grader]] = {
    "real": lambda: build_grader({"math_answer": {}}),
    "real with two workers": lambda: build_grader({"math_answer": {}}, workers=2),
    "fake": lambda: FakeGrader(lambda rollout: float("{5}" in rollout.text)),
}


@pytest.fixture(params=GRADERS)
def grader(request: pytest.FixtureRequest) -> Iterator[Grader]:
    with GRADERS[request.param]() as made:
        yield made


def rollout(text: str, *, problem: str = "p0", finish: Finish = Finish.STOP, sample: int = 0) -> Rollout:
    """A response to a problem whose gold answer is 5."""
    question = Problem(id=problem, question="?", answers=("5",), source="test", split="train")
    return Rollout(
        prompt=Prompt(problem=question, text="?", token_ids=(1,)),
        sample=sample,
        token_ids=(0, 1, 2),
        behavior_logps=(-1.0,) * 3,
        text=text,
        finish=finish,
        version_min=0,
        version_max=0,
        seed=0,
    )


def mixed_rollouts() -> list[Rollout]:
    return [rollout(rf"\boxed{{{n}}}", problem=f"p{n % 2}", sample=n) for n in (4, 5, 6, 5, 7)]


def test_scores_come_in_the_order_of_the_rollouts_when_problems_are_mixed(grader: Grader) -> None:
    rollouts = mixed_rollouts()
    scored = grader.score(rollouts)
    assert [item.rollout for item in scored] == rollouts
    assert [item.score.value for item in scored] == [0.0, 1.0, 0.0, 1.0, 0.0]


def test_problems_graded_one_by_one_get_the_same_scores_as_in_one_call(grader: Grader) -> None:
    rollouts = mixed_rollouts()
    together = grader.score(rollouts, step=3)
    for name in ("p0", "p1"):
        group = [rollout for rollout in rollouts if rollout.prompt.problem.id == name]
        assert grader.score(group, step=3) == [item for item in together if item.rollout.prompt.problem.id == name]


def test_several_threads_can_grade_at_the_same_time(grader: Grader) -> None:
    groups = [[rollout(rf"\boxed{{{n}}}", problem=f"p{n}")] for n in range(20)]
    with ThreadPoolExecutor(4) as threads:
        values = [scored.score.value for (scored,) in threads.map(grader.score, groups)]
    assert values == [float(n == 5) for n in range(20)]


def test_the_rollouts_stay_as_they_are(grader: Grader) -> None:
    rollouts = mixed_rollouts()
    before = copy.deepcopy(rollouts)
    grader.score(rollouts)
    assert rollouts == before


def test_the_verdict_agrees_with_the_value(grader: Grader) -> None:
    correct, wrong = grader.score([rollout(r"\boxed{5}"), rollout(r"\boxed{6}")])
    assert correct.score.verdict.reason is Reason.EQUAL
    assert wrong.score.verdict.reason is Reason.DIFFERENT
    assert correct.score.verdict.correct
    assert not wrong.score.verdict.correct


def test_a_truncated_rollout_without_an_answer_says_truncated(grader: Grader) -> None:
    truncated, ended = grader.score([rollout("so we", finish=Finish.LENGTH), rollout("so we")])
    assert truncated.score.verdict.reason is Reason.TRUNCATED
    assert ended.score.verdict.reason is not Reason.TRUNCATED


def test_a_truncated_rollout_with_a_correct_answer_gets_its_reward(grader: Grader) -> None:
    assert grader.score([rollout(r"\boxed{5} and", finish=Finish.LENGTH)])[0].score.value == 1.0


def test_no_rollouts_give_no_scores(grader: Grader) -> None:
    assert grader.score([]) == []


def test_a_grader_can_be_closed_twice(grader: Grader) -> None:
    scored = grader.score([rollout(r"\boxed{5}")])
    grader.close()
    grader.close()
    assert scored[0].score.value == 1.0
