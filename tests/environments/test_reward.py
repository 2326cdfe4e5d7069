"""What an environment gives a response that has ended, and what becomes of rewards that fail."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import re
import threading
import time
from typing import Any

import pytest
from fake_sampler import FakeSampler
from given import build_grader
from made_up import problem

from ansatz.environments.base import (
    Environment,
    EnvironmentSpec,
    TurnSettings,
    bind_environment,
    check_environment_reward,
)
from ansatz.environments.calls import environment_calls
from ansatz.environments.episode import Episode
from ansatz.errors import ConfigError, RewardError
from ansatz.rewards.base import RewardResult
from ansatz.rollout.base import Sampling
from ansatz.rollout.ticket import Kind, digest, issue_tickets, landed, landed_from_json, landed_to_json
from ansatz.types import (
    EnvironmentReward,
    Finish,
    Prompt,
    Reason,
    Rollout,
    Verdict,
    rollout_from_json,
    to_json,
)

RIGHT = Verdict(correct=True, reason=Reason.EQUAL, extracted="7", stage="game")


class Unreadable:
    @property
    def item(self) -> None:
        raise RuntimeError("no item")


class Counting(Environment):
    """Counts turns up to a turn with a dot. Its reward is `gives`, or what the function returns."""

    turn_ends = (";",)

    def __init__(self, *, gives: Any = 1.0) -> None:
        self.turns: list[str] = []
        self.gives = gives

    def reset(self, problem: Any) -> None:
        self.turns.append(f"reset {problem.id}")

    def step(self, response: str) -> Any:
        self.turns.append(response)
        if response == "hang;":
            time.sleep(30)
        return None if "." in response else "ok"

    def reward(self) -> Any:
        return self.gives(self) if callable(self.gives) else self.gives


class AsyncCounting(Counting):
    async def step(self, response: str) -> Any:
        if response == "hang;":
            await asyncio.sleep(30)
        return super().step(response)

    async def reward(self) -> Any:
        value = super().reward()
        return await value if asyncio.iscoroutine(value) else value


class InstantCounting(Counting):
    instant = True


ALL = pytest.mark.parametrize("kind", [Counting, AsyncCounting, InstantCounting])
WAITING = pytest.mark.parametrize("kind", [Counting, AsyncCounting])


def spec_of(kind: type[Counting], gives: Any, *, timeout_s: float = 5.0, turns: int = 4) -> EnvironmentSpec:
    settings = TurnSettings(timeout_s=timeout_s, turns=turns)
    return EnvironmentSpec(name="game", make=lambda: kind(gives=gives), settings=settings, sample=kind(gives=gives))


def reward_after(spec: EnvironmentSpec, *turns: str, open_turn: str = "") -> EnvironmentReward | None:
    with environment_calls(spec) as calls:
        assert calls
        episode = Episode(spec, problem())
        for turn in turns:
            calls.answer(episode, turn)
        calls.submit_reward("key", episode, open_turn)
        ((key, reward),) = calls.rewards.finished(wait=True)
        assert key == "key"
        return reward


@ALL
@pytest.mark.parametrize(
    ("gives", "expected"),
    [
        (0.25, EnvironmentReward(value=0.25)),
        (1, EnvironmentReward(value=1.0)),
        (True, EnvironmentReward(value=1.0)),
        (RewardResult(value=-3.5, verdict=RIGHT), EnvironmentReward(value=-3.5, verdict=RIGHT)),
        (RewardResult(value=0.5, steps=((3, 0.5),)), EnvironmentReward(value=0.5, steps=((3, 0.5),))),
        (None, None),
    ],
)
def test_a_number_or_a_result_is_the_reward_and_none_leaves_it_to_the_recipe(
    kind: type[Counting], gives: Any, expected: EnvironmentReward | None
) -> None:
    assert reward_after(spec_of(kind, gives), "a;") == expected


def boom(environment: Any) -> Any:
    raise KeyError("board")


@ALL
@pytest.mark.parametrize(
    ("gives", "explanation"),
    [
        (boom, r"environment 'game': reward\(\) raised KeyError: 'board'"),
        (lambda environment: exit(3), r"reward\(\) raised \w+: (SystemExit\()?3"),
        (1.01, r"returned 1.01, expected a number in \[0, 1\]"),
        (-0.5, r"returned -0.5, expected a number in \[0, 1\]"),
        (math.nan, r"returned nan for its problem. Return a finite number"),
        (RewardResult(value=math.inf), r"returned inf for its problem"),
        ("1.0", r"returned the str '1.0'"),
        ([1.0], r"returned the list \[1.0\]"),
        (RewardResult(value=1.0, verdict="yes"), r"the str 'yes' as the verdict"),  # pyright: ignore[reportArgumentType]
        (RewardResult(value=1.0, steps=((5, 1.0), (3, 1.0))), "in rising order"),
        (Unreadable(), "unreadable value"),
    ],
)
def test_an_error_and_a_wrong_value_are_a_crash_with_an_explanation(
    kind: type[Counting], gives: Any, explanation: str
) -> None:
    reward = reward_after(spec_of(kind, gives), "a;")
    assert reward
    assert reward.failed
    assert reward.verdict is not None
    assert (reward.verdict.reason, reward.verdict.correct, reward.verdict.stage) == (
        Reason.CRASHED,
        False,
        "environment",
    )
    assert re.search(explanation, reward.explanation), reward.explanation


def sleepy(environment: Any) -> float:
    time.sleep(30)
    return 1.0


async def sleepy_async() -> float:
    await asyncio.sleep(30)
    return 1.0


@pytest.mark.parametrize(("kind", "gives"), [(Counting, sleepy), (AsyncCounting, lambda environment: sleepy_async())])
def test_a_missed_deadline_is_a_timeout(kind: type[Counting], gives: Any) -> None:
    reward = reward_after(spec_of(kind, gives, timeout_s=0.6), "a;")
    assert reward
    assert reward.failed
    assert reward.verdict is not None
    assert reward.verdict.reason is Reason.TIMEOUT
    assert reward.explanation == "environment 'game': reward() has not returned within 0.6 s"


@WAITING
def test_an_environment_that_lost_its_state_at_a_deadline_gives_no_reward(kind: type[Counting]) -> None:
    reward = reward_after(spec_of(kind, 1.0, timeout_s=0.6), "hang;", "a;")
    assert reward
    assert reward.verdict is not None
    assert reward.verdict.reason is Reason.TIMEOUT
    assert "its state was lost" in reward.explanation


@ALL
def test_the_environment_knows_all_turns_when_it_is_asked(kind: type[Counting]) -> None:
    seen: list[Any] = []

    def gives(environment: Counting) -> float:
        seen.append((environment.turns, environment.open_turn))
        return 1.0

    reward_after(spec_of(kind, gives), "a;", "b;", open_turn="c")
    reward_after(spec_of(kind, gives), open_turn="only")  # a response that was cut off within its first turn
    assert seen == [(["reset p0", "a;", "b;"], "c"), (["reset p0"], "only")]


@ALL
def test_a_resumed_response_is_rewarded_for_its_earlier_turns_too(kind: type[Counting]) -> None:
    spec = spec_of(kind, lambda environment: len(environment.turns) / 10)
    with environment_calls(spec) as calls:
        assert calls
        episode = Episode(spec, problem())
        episode.replay("a;")
        episode.replay("b;")
        calls.submit_reward(0, episode, "")
        assert calls.rewards.finished(wait=True) == [(0, EnvironmentReward(value=0.3))]


def rollouts_of(spec: EnvironmentSpec, texts: list[str], **settings: Any) -> list[Rollout]:
    sampler = FakeSampler(lambda prompt, sample: texts[sample], environment=spec)
    sampling = Sampling(num_samples=len(texts), **{"max_response_tokens": 20, **settings})
    return sampler.generate([Prompt(problem=problem(), text="", token_ids=(1,))], sampling)


@ALL
def test_every_way_to_end_gives_a_reward_once_and_an_unfinished_response_has_none(kind: type[Counting]) -> None:
    seen: list[tuple[list[str], str]] = []

    def gives(environment: Counting) -> float:
        seen.append((environment.turns[1:], environment.open_turn))
        return len(seen) / 10

    texts = ["done.", "a;b.", "a;b;c;d;e;", "a;STOP", "x" * 30]
    rollouts = rollouts_of(spec_of(kind, gives, turns=3), texts, stop=("STOP",))
    assert [rollout.finish for rollout in rollouts] == [*[Finish.STOP] * 4, Finish.LENGTH]
    given = [rollout.environment_reward for rollout in rollouts]
    assert sorted(reward.value for reward in given if reward) == [0.1, 0.2, 0.3, 0.4, 0.5]
    end = ""  # of the fake, whose end token has no text
    assert sorted(seen) == sorted(
        [
            ([f"done.{end}"], ""),
            (["a;", f"b.{end}"], ""),
            (["a;", "b;", "c;"], ""),
            (["a;"], "STOP"),
            ([], "x" * 20),
        ]
    )
    partial = rollouts_of(spec_of(kind, gives), ["a;bbbbbbbbbbbb."], max_call_tokens=6)
    assert [(rollout.finish, rollout.environment_reward) for rollout in partial] == [(Finish.ABORT, None)]
    assert len(seen) == 5


@ALL
def test_rewards_survive_the_ledger_and_a_resumed_response(kind: type[Counting]) -> None:
    results = [RewardResult(value=0.5, verdict=RIGHT, steps=((2, 0.5),)), 0.25, None, boom]
    for gives in results:
        (rollout,) = rollouts_of(spec_of(kind, gives), ["a;b."])
        assert rollout_from_json(json.loads(json.dumps(to_json(rollout)))) == rollout
        (ticket,) = issue_tickets(
            [rollout.prompt],
            [],
            key=(Kind.TRAIN, 1, 0),
            version=0,
            weights="w",
            sampling=Sampling(num_samples=1, max_response_tokens=20),
        )
        landing = landed(ticket, [rollout])
        row = json.loads(json.dumps(landed_to_json(landing)))
        again = landed_from_json(row, {ticket.key: ticket})
        assert again.rollouts == (rollout,)
        assert digest(again.rollouts) == landing.digest
    assert digest([dataclasses.replace(rollout, environment_reward=EnvironmentReward(value=1.0))]) != digest([rollout])


def given(value: float | None, **fields: Any) -> Rollout:
    (rollout,) = rollouts_of(spec_of(Counting, None), ["a."])
    reward = None if value is None else EnvironmentReward(value=value, **fields)
    return dataclasses.replace(rollout, environment_reward=reward, text=r"\boxed{12}")


def score_of(rewards: dict[str, Any], rollout: Rollout) -> tuple[float, bool, Reason, str]:
    with build_grader(rewards) as grader:
        (scored,) = grader.score([rollout])
    verdict = scored.score.verdict
    return scored.score.value, verdict.correct, verdict.reason, verdict.stage


def test_the_reward_environment_is_what_the_environment_gave() -> None:
    assert score_of({"environment": {}}, given(1.0)) == (1.0, True, Reason.EQUAL, "environment")
    assert score_of({"environment": {"weight": 2}}, given(0.4)) == (0.8, False, Reason.DIFFERENT, "environment")
    assert score_of({"environment": {"correct_from": 0.4}}, given(0.4))[1:3] == (True, Reason.EQUAL)
    assert score_of({"environment": {}}, given(0.0, verdict=RIGHT)) == (0.0, True, Reason.EQUAL, "game")
    both = {"math_answer": {}, "environment": {"weight": 0.5}}
    assert score_of(both, given(0.5)) == (1.25, True, Reason.EQUAL, "string")


def test_a_failure_has_its_own_value_and_verdict() -> None:
    verdict = Verdict(correct=False, reason=Reason.TIMEOUT, stage="environment")
    failure = given(0.0, verdict=verdict, explanation="late")
    assert score_of({"environment": {"failed": -1.0}}, failure) == (-1.0, False, Reason.TIMEOUT, "environment")
    own = given(0.3, verdict=verdict)  # the environment itself says so
    assert score_of({"environment": {"failed": -1.0}}, own) == (0.3, False, Reason.TIMEOUT, "environment")


def test_a_response_left_to_the_recipe_gets_another_reward_or_is_an_error() -> None:
    assert score_of({"environment": {}, "math_answer": {}}, given(None)) == (1.0, True, Reason.EQUAL, "string")
    with pytest.raises(RewardError, match=r"'environment' left a response to problem 'p0' to the other rewards"):
        score_of({"environment": {}}, given(None))
    with pytest.raises(RewardError, match=r"none of them grades answers\. Add one that does"):
        score_of({"environment": {}, "repetition": {}}, given(None))


def test_the_reward_is_refused_where_nothing_can_give_it() -> None:
    with pytest.raises(ConfigError, match=r"no environment is set\. Set environment\.name"):
        check_environment_reward(["math_answer", "environment"], None)
    with pytest.raises(ConfigError, match="the environment 'calculator' gives no reward"):
        check_environment_reward(["environment"], bind_environment({"name": "calculator"}))
    check_environment_reward(["environment"], spec_of(Counting, 1.0))
    check_environment_reward(["math_answer"], None)


def test_rewards_are_asked_for_side_by_side() -> None:
    def gives(environment: Any) -> float:
        both.wait()  # until another one is in here too
        return 1.0

    both = threading.Barrier(2, timeout=60)
    rollouts = rollouts_of(spec_of(Counting, gives, timeout_s=120), ["a."] * 20)
    assert {rollout.environment_reward for rollout in rollouts} == {EnvironmentReward(value=1.0)}
