"""The source and the reward on the real package; without it, only what they say."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest
from made_up import scored

from ansatz.data.base import load_problems
from ansatz.data.reasoning_gym import reasoning_gym
from ansatz.errors import ConfigError, MissingExtraError, RewardError
from ansatz.rewards.grader import build_grader
from ansatz.types import problem_from_json, to_json

real = pytest.mark.skipif(
    importlib.util.find_spec("reasoning_gym") is None, reason="reasoning-gym is not installed; make test-foreign"
)
TASKS = ("chain_sum", "basic_arithmetic", "countdown", "gcd", "prime_factorization", "leg_counting", "word_sorting")


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(MissingExtraError, match=r"-m pip install .*reasoning-gym"):
        load_problems("reasoning_gym", split="train", settings={"task": "chain_sum"})
    with pytest.raises(MissingExtraError, match=r"-m pip install .*reasoning-gym"):
        build_grader({"reasoning_gym": {}})


@real
def test_there_are_more_than_a_hundred_tasks() -> None:
    import reasoning_gym as gym

    assert len(gym.factory.DATASETS) > 100


@real
@pytest.mark.parametrize("task", TASKS)
def test_a_gold_answer_has_the_full_score_and_other_answers_less(task: str) -> None:
    problems = load_problems("reasoning_gym", split="train", settings={"task": task, "count": 5, "seed": 7})
    assert list(problems) == list(reasoning_gym(split="train", task=task, count=5, seed=7))
    assert [p.question for p in problems] != [
        p.question for p in reasoning_gym(split="heldout", task=task, count=5, seed=7)
    ]
    with build_grader({"reasoning_gym": {}}) as grader:
        for problem in problems:
            stored = problem_from_json(json.loads(json.dumps(to_json(problem))))
            texts = (f"so <answer>{problem.answer}</answer>", "so <answer>-12345 xyz</answer>", "no answer")
            right, wrong, none = (
                scored.score for scored in grader.score([scored(stored, text=text).rollout for text in texts])
            )
            assert (right.value, right.verdict.correct) == (1.0, True)
            assert (wrong.value < 1, wrong.verdict.correct) == (True, False)
            assert (none.value, none.verdict.reason.value) == (0.0, "no_answer")


@real
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "chain_sums"}, "task = 'chain_sums' is unknown. Did you mean 'chain_sum'"),
        ({"task": "chain_sum", "settings": {"terms": 3}}, "refuses settings"),
        ({"task": "chain_sum", "settings": {"min_terms": 9, "max_terms": 2}}, "refuses settings"),
        ({}, "needs the setting 'task'"),
    ],
)
def test_a_wrong_task_or_setting_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_problems("reasoning_gym", split="train", settings=settings)


@real
def test_the_reward_refuses_problems_of_other_sources() -> None:
    with build_grader({"reasoning_gym": {}}) as grader, pytest.raises(RewardError, match="of the source reasoning_gym"):
        grader.score([scored(text="\\boxed{5}").rollout])
