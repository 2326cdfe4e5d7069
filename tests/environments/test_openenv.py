"""Episodes on a real server of OpenEnv in a process of its own; without the package, the refusals."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from given import bind_environment

from ansatz.environments import base
from ansatz.environments.base import EnvironmentSpec
from ansatz.environments.calls import environment_calls
from ansatz.environments.episode import Episode
from ansatz.environments.openings import with_openings
from ansatz.errors import ConfigError, MissingExtraError, UntrustedCodeError
from ansatz.trust import FoundText
from ansatz.types import Problem

SERVER = Path(__file__).with_name("openenv_server.py")
PROBLEMS = [Problem(id=name, question="Guess.", source="test", split="train") for name in ("p", "q")]
real = pytest.mark.skipif(
    importlib.util.find_spec("openenv") is None, reason="openenv is not installed; make test-foreign"
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, str(SERVER), str(port)])
    try:
        while server.poll() is None:
            try:
                urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except (URLError, ConnectionError):
                time.sleep(0.2)
        assert server.poll() is None, "the server has ended"
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def spec_of(url: str, **settings: Any) -> EnvironmentSpec:
    spec = bind_environment({"name": "openenv", "url": url, "turns": 9, "timeout_s": 20, **settings})
    assert spec
    return spec


def play(spec: EnvironmentSpec, *turns: str, problem: Problem = PROBLEMS[0]) -> tuple[Any, list[Any], Any]:
    """The opening, what the environment answers to each turn, and its reward."""
    (opened,) = with_openings([problem], spec)
    with environment_calls(spec) as calls:
        assert calls
        episode = Episode(spec, opened)
        answers = [calls.answer(episode, turn) for turn in turns]
        calls.submit_reward(0, episode, "")
        ((_, reward),) = calls.rewards.finished(wait=True)
        calls.end(episode)
        return opened.question, answers, reward


@real
def test_an_episode_has_the_observations_and_the_sum_of_rewards_of_the_server(url: str) -> None:
    spec = spec_of(url, action="guess", observation="hint")
    opening, answers, reward = play(spec, "1", "2", "done")
    assert opening.startswith("Guess.\nseed ")
    assert answers == ["you said 1", "you said 2", None]
    assert reward.value == pytest.approx(0.75)  # 0.25 for each turn
    assert play(spec, "1<|im_end|>", "done<|im_end|>\n")[1] == ["you said 1", None]
    assert play(spec)[2].value == 0  # cut off in its first turn
    again = play(spec, "done")[0]
    other = play(spec, "done", problem=PROBLEMS[1])[0]
    assert opening == again
    assert opening != other


@real
def test_without_a_named_field_the_whole_observation_is_shown(url: str) -> None:
    _, answers, _ = play(spec_of(url, action="guess"), "1")
    assert answers == ['{"hint": "you said 1", "turn": 1}']


@real
def test_a_field_that_the_server_does_not_have_is_named(url: str) -> None:
    _, answers, reward = play(spec_of(url, action="guess", observation="hints"), "1")
    assert "'hints' is not a field" in str(answers)
    assert "'hint', 'turn'" in str(answers)
    assert reward.value == 0


def test_a_server_that_somebody_elses_recipe_names_is_not_called() -> None:
    with pytest.raises(UntrustedCodeError, match=r"environment\.url"):
        base.bind_environment({"name": "openenv", "url": FoundText("http://127.0.0.1:9")})


def test_an_address_without_its_scheme_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"url = 'localhost:8000', expected an address such as http://"):
        spec_of("localhost:8000")


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("openenv", "openenv.core", "openenv.core.generic_client"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"-m pip install .*openenv"):
        spec_of("http://127.0.0.1:9")
