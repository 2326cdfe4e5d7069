from __future__ import annotations

import pytest
from chat_server import ChatServer

from ansatz.errors import ConfigError
from ansatz.rewards.grader import build_grader
from examples.judge_server import judge_server, verdict

WRONG, RIGHT, DECIMAL = r"\boxed{4}", r"\boxed{5}", r"\boxed{5.0}"


def test_agreement_is_the_fraction_of_responses_on_which_judge_and_verifier_agree(rollout) -> None:
    """The judge accepts everything, so it agrees with the verifier on the correct responses only."""
    group = [rollout(text, sample=n) for n, text in enumerate((WRONG, RIGHT, DECIMAL))]
    with ChatServer(lambda request: "CORRECT") as server:
        judge = {"url": server.url, "model": "m", "rules_first": False}
        recipe = {"judge": judge, "agreement": {"weight": 0}, "math_answer": {"weight": 0}}
        with build_grader(recipe) as grader:
            scored = grader.score(group)
    assert [item.score.parts["agreement"] for item in scored] == [0.0, 1.0, 1.0]
    assert [item.score.value for item in scored] == [1.0, 1.0, 1.0]


def test_agreement_of_a_single_reward_is_refused(rollout) -> None:
    with (
        build_grader({"math_answer": {}, "repetition": {}, "agreement": {}}) as grader,
        pytest.raises(ConfigError, match=r"compares rewards that grade answers, but the recipe has math_answer only"),
    ):
        grader.score([rollout(RIGHT)])
    with pytest.raises(ConfigError, match=r"rewards\.agreement needs to know which responses are correct"):
        build_grader({"agreement": {}})


def test_the_judge_of_the_examples_compares_numbers_and_is_mistaken_as_often_as_it_says(rollout) -> None:
    group = [rollout(text, sample=n) for n, text in enumerate((WRONG, RIGHT, DECIMAL))]
    settings = {"model": "m", "rules_first": False}
    with judge_server(error_frac=0.0) as url, build_grader({"judge": {"url": url, **settings}}) as grader:
        assert [item.score.value for item in grader.score(group)] == [0.0, 1.0, 1.0]
    case = 'Question:\nn = {}?\n\nReference answer:\n1,000\n\nCandidate answer:\n"$1000$"'
    mistakes = sum(verdict(case.format(number)) == "INCORRECT" for number in range(2000))
    assert 70 < mistakes < 130  # 100 expected, standard deviation 9.7
