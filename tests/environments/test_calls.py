"""What environments may do wrong: none of it ends a run or delays another response."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from given import bind_environment

from ansatz.environments import episode as episode_module
from ansatz.environments.base import Environment, EnvironmentSpec, TurnSettings
from ansatz.environments.calls import EnvironmentCalls, environment_calls
from ansatz.environments.episode import Episode, cut
from ansatz.errors import ConfigError, UserCodeError
from ansatz.types import Problem, Reason

PROBLEM = Problem(id="p", question="?", answers=("7",), source="test", split="train")


class Counting(Environment):
    """Says how many turns it has seen since it was started. A turn that names a fault has it."""

    closed = 0

    def __init__(self, *, start: int = 0) -> None:
        self.turns = start

    def reset(self, problem: Problem) -> None:
        self.answer = problem.answer

    def step(self, response: str) -> Any:
        self.turns += 1
        faults: dict[str, Callable[[], Any]] = {
            "raise": lambda: 1 / 0,
            "exit": lambda: exit(3),
            "hang": lambda: time.sleep(30),
            "odd": lambda: 5,
            "flood": lambda: "x" * 10**6,
            "done": lambda: None,
            "empty": lambda: "",
        }
        return faults.get(response, lambda: f"{self.answer}:{self.turns}")()

    def show(self, observation: str) -> str:
        return f"[{observation}]"

    def close(self) -> None:
        Counting.closed += 1


class AsyncCounting(Counting):
    async def step(self, response: str) -> Any:
        if response == "hang":
            await asyncio.sleep(30)
        return super().step(response)


def spec_of(make: Callable[[], Environment], *, timeout_s: float = 5.0) -> EnvironmentSpec:
    settings = TurnSettings(timeout_s=timeout_s, max_observation_chars=60)
    return EnvironmentSpec(name="test", make=make, settings=settings, sample=make())


BOTH = pytest.mark.parametrize("make", [Counting, AsyncCounting])


@BOTH
@pytest.mark.parametrize(
    ("fault", "observation"),
    [
        ("raise", "[error: ZeroDivisionError: division by zero]"),
        ("exit", "[error: "),
        ("odd", "[error: the environment gave int, expected text or None]"),
        ("done", None),
        ("empty", None),
    ],
)
def test_a_fault_is_an_observation_and_the_environment_continues(
    make: type[Environment], fault: str, observation: str | None
) -> None:
    with environment_calls(spec_of(make)) as calls:
        assert calls
        episode = Episode(calls.spec, PROBLEM)
        answer = calls.answer(episode, fault)
        assert answer == observation or (observation and answer and answer.startswith(observation))
        assert calls.answer(episode, "next") == "[7:2]"


@BOTH
def test_a_missed_deadline_is_an_observation_and_the_environment_starts_anew(make: type[Environment]) -> None:
    with environment_calls(spec_of(make, timeout_s=0.6)) as calls:
        assert calls
        episode = Episode(calls.spec, PROBLEM)
        assert calls.answer(episode, "first") == "[7:1]"
        assert calls.answer(episode, "hang") == "[error: no result within 0.6 s]"
        assert calls.answer(episode, "next") == "[7:1]"


class Held(Environment):
    """Holds something from the moment it is created until it is closed. Calls whose name is `late` take 1.2 s."""

    def __init__(self, *, late: str) -> None:
        self.late, self.events = late, list[str]()

    def _call(self, name: str) -> str:
        self.events.append(name)
        if name == self.late:
            time.sleep(1.2)
            self.events.append("late")
        return name

    def reset(self, problem: Problem) -> None:
        self._call("reset")

    def step(self, response: str) -> Any:
        return self._call("step")

    def reward(self) -> float:
        self._call("reward")
        return 1.0

    def close(self) -> None:
        self.events.append("close")


class AsyncHeld(Held):
    """The same with calls that are cancelled. close: `async` too."""

    async def step(self, response: str) -> Any:
        await asyncio.sleep(1.2 * (self.late == "step"))
        return self._call("step")

    async def close(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        await asyncio.sleep(0.01)
        super().close()


class OwnDeadline(Held):
    """A call that raises TimeoutError itself, as that of a socket does."""

    def step(self, response: str) -> Any:
        raise TimeoutError("timed out")


def held(kind: type[Held], late: str) -> list[list[str]]:
    """What has happened to each environment of a response with one turn, some time after all calls have ended."""
    made = list[Held]()

    def make() -> Held:
        made.append(kind(late=late))
        return made[-1]

    spec = dataclasses.replace(spec_of(lambda: kind(late=late), timeout_s=0.4), make=make)
    with environment_calls(spec) as calls:
        assert calls
        episode = Episode(spec, PROBLEM)
        calls.answer(episode, "first")
        calls.submit_reward("key", episode, "")
        calls.rewards.finished(wait=True)
        calls.end(episode)
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline and not all("close" in environment.events for environment in made):
        time.sleep(0.02)
    return [environment.events for environment in made]


def test_an_environment_that_missed_a_deadline_is_closed_when_its_late_call_has_ended() -> None:
    assert held(Held, "") == [["reset", "step", "reward", "close"]]
    assert held(Held, "step") == [["reset", "step", "late", "close"]]
    assert held(Held, "reset") == [["reset", "late", "close"]]
    assert held(Held, "reward") == [["reset", "step", "reward", "late", "close"]]


def test_an_environment_whose_call_was_cancelled_is_closed_at_once() -> None:
    assert held(AsyncHeld, "step") == [["reset", "close"]]
    assert held(OwnDeadline, "") == [["reset", "close"]]


def test_an_environment_whose_reset_fails_is_closed_and_is_started_again_by_the_next_turn() -> None:
    class Failing(Held):
        def reset(self, problem: Problem) -> None:
            super().reset(problem)
            raise ValueError("no board")

    assert held(Failing, "") == [["reset", "close"], ["reset", "close"]]


def test_a_flood_is_cut_in_the_middle() -> None:
    with environment_calls(spec_of(Counting)) as calls:
        assert calls
        answer = calls.answer(Episode(calls.spec, PROBLEM), "flood")
    assert answer == "[" + "x" * 30 + "\n[... 999940 characters left out ...]\n" + "x" * 30 + "]"
    assert cut("abcde", 5) == "abcde"
    assert cut("abcdef", 3) == "a\n[... 3 characters left out ...]\nef"


@BOTH
def test_calls_run_side_by_side(make: type[Environment]) -> None:
    class Slow(make):  # pyright: ignore[reportGeneralTypeIssues]
        def reset(self, problem: Problem) -> None:
            super().reset(problem)
            both.wait()  # until another one is in here too

    both, calls = threading.Barrier(2, timeout=60), EnvironmentCalls(spec_of(Slow, timeout_s=120))
    for number in range(20):
        calls.submit([(number, Episode(calls.spec, PROBLEM), "turn")])
    answers: list[tuple[int, str | None]] = []
    while len(answers) < 20:
        answers += calls.answers.finished(wait=True)
    assert sorted(answers) == [(number, "[7:1]") for number in range(20)]
    assert calls.answers.finished(wait=True) == []
    calls.close()


def test_a_replayed_turn_is_seen_but_not_answered() -> None:
    with environment_calls(spec_of(Counting)) as calls:
        assert calls
        episode = Episode(calls.spec, PROBLEM)
        episode.replay("a")
        episode.replay("b")
        assert calls.answer(episode, "c") == "[7:3]"


@BOTH
@pytest.mark.parametrize("fault", ["raise", "exit", "hang"])
def test_a_replayed_turn_that_fails_leaves_what_it_left_when_it_was_answered(
    make: type[Environment], fault: str
) -> None:
    with environment_calls(spec_of(make, timeout_s=0.6)) as calls:
        assert calls
        answered, resumed = Episode(calls.spec, PROBLEM), Episode(calls.spec, PROBLEM)
        resumed_at_its_end = Episode(calls.spec, PROBLEM)
        for turn in ("a", fault, "b"):
            calls.answer(answered, turn)
            resumed.replay(turn)
            resumed_at_its_end.replay(turn)
        expected = "[7:2]" if fault == "hang" else "[7:4]"
        assert calls.answer(answered, "c") == calls.answer(resumed, "c") == expected
        for key, episode in enumerate((answered, resumed, resumed_at_its_end)):
            calls.submit_reward(key, episode, "")
        rewards = dict(pair for _ in range(3) for pair in calls.rewards.finished(wait=True))
    verdicts = [reward.verdict for reward in rewards.values() if reward is not None]
    reasons = [None if verdict is None else verdict.reason for verdict in verdicts]
    assert reasons == ([Reason.TIMEOUT] * 3 if fault == "hang" else [])


def test_a_replayed_turn_whose_reset_timed_out_is_not_seen_again() -> None:
    class SlowAtFirst(Counting):
        def reset(self, problem: Problem) -> None:
            super().reset(problem)
            if next(is_slow):
                time.sleep(30)

        def close(self) -> None:
            """Count nothing: a late call ends during another test."""

    is_slow = iter([True, False, True, False])
    with environment_calls(spec_of(SlowAtFirst, timeout_s=0.6)) as calls:
        assert calls
        answered, resumed = Episode(calls.spec, PROBLEM), Episode(calls.spec, PROBLEM)
        for turn in ("a", "b"):
            calls.answer(answered, turn)
            resumed.replay(turn)
        assert calls.answer(answered, "c") == calls.answer(resumed, "c") == "[7:2]"


def test_environments_are_closed_and_no_thread_is_left() -> None:
    Counting.closed = 0
    with environment_calls(spec_of(Counting)) as calls:
        assert calls
        episodes = [Episode(calls.spec, PROBLEM) for _ in range(3)]
        for episode in episodes:
            calls.answer(episode, "turn")
        calls.end(episodes[0])
        calls.end(episodes[0])
    assert Counting.closed == 3
    deadline = time.monotonic() + 60
    while any(thread.name == "environments" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_methods_that_an_environment_does_not_write_are_called_in_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain(Environment):
        def step(self, response: str) -> str:
            return "a"

    class Async(Environment):
        async def step(self, response: str) -> str:
            return "a"

    jobs: list[Callable[[], None]] = []

    class Threads(episode_module._Threads):
        def run(self, job: Callable[[], None]) -> None:
            jobs.append(job)
            super().run(job)

    monkeypatch.setattr(episode_module, "_THREADS", Threads())
    for make, in_threads in ((Plain, 2), (Async, 0), (Counting, 4)):
        jobs.clear()
        with environment_calls(spec_of(make)) as calls:
            assert calls
            response = Episode(calls.spec, PROBLEM)
            assert all(calls.answer(response, "turn") for _ in range(2))
            calls.end(response)
        assert len(jobs) == in_threads  # of Counting: reset and close, too


def test_an_environment_is_found_by_name_or_in_a_file() -> None:
    spec = bind_environment({"name": "calculator", "turns": 3, "call": "c"})
    assert spec
    assert (spec.settings.turns, spec.settings.timeout_s, spec.sample.turn_ends) == (3, 5.0, ("</c>",))
    own = bind_environment({"name": f"{__file__}:Counting", "start": 4, "timeout_s": 2})
    assert own
    assert own.make().turns == 4
    assert bind_environment(None) is None


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"turns": 3}, r"environment.name = None: expected one of: calculator"),
        ({"name": "calculater"}, r"environment 'calculater' is unknown. Did you mean 'calculator'\?"),
        ({"name": "calculator", "turn": 3}, r"environment 'calculator' has no setting 'turn'"),
        ({"name": "calculator", "turns": 0}, r"environment: turns = 0: input should be greater than 0"),
        ({"name": "calculator", "timeout_s": "x"}, r"environment: timeout_s = 'x'"),
        ({"name": f"{__file__}:spec_of"}, r"spec_of' raised TypeError: spec_of\(\) missing"),
        ({"name": f"{__file__}:Problem"}, r"needs the setting 'id'"),
        ({"name": f"{__file__}:threading"}, r"not a function"),
    ],
)
def test_a_wrong_section_is_refused_in_a_sentence(section: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, UserCodeError), match=message):
        bind_environment(section)
