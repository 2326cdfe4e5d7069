"""Environments of the real package verifiers, and their rubrics as rewards; without it, the refusals."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_sampler import FakeSampler
from toy_runs import REPOSITORY, command

from ansatz.data.base import load_problems
from ansatz.environments.base import EnvironmentSpec, bind_environment
from ansatz.environments.calls import environment_calls
from ansatz.environments.episode import Episode
from ansatz.errors import ConfigError, MissingExtraError
from ansatz.prompts.templates import CHAT
from ansatz.rewards.grader import build_grader
from ansatz.rollout.base import Sampling
from ansatz.track.jsonl import read_jsonl
from ansatz.types import EnvironmentReward, Problem, Prompt, Reason

EXAMPLES = f"{Path(__file__).parents[2] / 'examples' / 'verifiers_sums.py'}"
PROBLEM = Problem(id="p", question="What is 2 + 3?", answer="5", source="test", split="train")

real = pytest.mark.skipif(
    importlib.util.find_spec("verifiers") is None, reason="verifiers is not installed; make test-verifiers"
)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ansatz-rl\[verifiers\]'"):
        bind_environment({"name": "verifiers", "environment": "some-package"})
    with pytest.raises(MissingExtraError, match=r"pip install 'ansatz-rl\[verifiers\]'"):
        list(load_problems("verifiers", split="train", settings={"environment": "some-package"}))


def spec_of(name: str, *, turns: int = 9, timeout_s: float = 20, **arguments: Any) -> EnvironmentSpec:
    section = {"name": "verifiers", "environment": f"{EXAMPLES}:{name}", "arguments": arguments}
    spec = bind_environment({**section, "turns": turns, "timeout_s": timeout_s}, template=CHAT)
    assert spec
    return spec


def play(spec: EnvironmentSpec, problem: Problem, turns: list[str], *, open_turn: str = "") -> tuple[list[Any], Any]:
    """What the environment answers to each turn, and its reward."""
    with environment_calls(spec) as calls:
        assert calls
        episode = Episode(spec, problem)
        answers = [calls.answer(episode, turn) for turn in turns]
        calls.submit_reward(0, episode, open_turn)
        ((_, reward),) = calls.rewards(wait=True)
        calls.end(episode)
        return answers, reward


def rows(name: str, *, split: str = "train", **settings: Any) -> list[Problem]:
    settings = {"environment": f"{EXAMPLES}:{name}", **settings}
    return list(load_problems("verifiers", split=split, settings=settings))


@real
def test_a_single_turn_is_scored_by_the_rubric_which_is_our_verifier() -> None:
    spec = spec_of("sums", count=5)
    assert (spec.sample.tools, tuple(spec.sample.roles)) == ([], ())
    assert play(spec, PROBLEM, [r"So \boxed{5}<|im_end|>"]) == ([None], EnvironmentReward(value=1.0))
    assert play(spec, PROBLEM, [r"So \boxed{6}<|im_end|>"]) == ([None], EnvironmentReward(value=0.0))
    assert play(spec, PROBLEM, [], open_turn=r"So \boxed{5} because") == ([], EnvironmentReward(value=1.0))
    assert play(spec, PROBLEM, []) == ([], EnvironmentReward(value=0.0))


@real
def test_the_data_of_an_environment_are_problems() -> None:
    train, heldout = rows("sums", arguments={"count": 30}, count=4), rows("sums", split="heldout")
    assert (len(train), len(heldout)) == (4, 200)
    assert train == rows("sums", arguments={"count": 30}, count=4)
    assert len({problem.id for problem in (*train, *heldout)}) == 204
    for problem in train:
        stored = Problem(**json.loads(json.dumps({name: getattr(problem, name) for name in Problem.__slots__})))
        _, reward = play(spec_of("sums", count=5), stored, [rf"\boxed{{{problem.answer}}}"])
        assert reward == EnvironmentReward(value=1.0)
    with pytest.raises(ConfigError, match="has no eval_dataset"):
        rows("guessing", split="heldout")


@real
def test_a_game_of_several_turns_answers_as_the_user_and_stops_itself() -> None:
    spec, (problem, *_) = spec_of("guessing"), rows("guessing", count=1)
    assert spec.sample.roles == ("user",)
    assert problem.answer == "1"
    lower, odd = [{"role": "user", "content": text} for text in ("Lower.", "Write a number.")]
    answers, reward = play(spec, problem, ["50<|im_end|>", "I think 3", "1"])
    assert answers == [[lower], [odd], None]
    assert reward.value == pytest.approx(1 / 3)
    answers, reward = play(spec_of("guessing", max_turns=2), problem, ["50", "60"])
    assert (answers, reward) == ([[lower], None], EnvironmentReward(value=0.0))
    assert play(spec, problem, ["50"], open_turn="1") == ([[lower]], EnvironmentReward(value=0.5))
    assert play(spec, problem, ["50"]) == ([[lower]], EnvironmentReward(value=0.0))  # the response ended before it


@real
def test_a_tool_is_called_in_the_form_of_the_template() -> None:
    spec, problem = spec_of("tool_sums"), rows("tool_sums", count=3)[2]
    assert [tool["function"]["name"] for tool in spec.sample.tools] == ["add"]
    assert spec.chat
    assert spec.chat.tools == list(spec.sample.tools)
    call = '<tool_call>{"name": "add", "arguments": {"a": 1002, "b": 14}}</tool_call><|im_end|>'
    answers, reward = play(spec, problem, [call, r"It is \boxed{1016}.<|im_end|>"])
    assert answers == [[{"role": "tool", "content": "1016", "tool_call_id": "call00000"}], None]
    assert reward == EnvironmentReward(value=1.0)


@real
@pytest.mark.parametrize(
    "call",
    [
        "<tool_call>add 2 and 3</tool_call>",
        '<tool_call>{"name": "multiply", "arguments": {"a": 2, "b": 3}}</tool_call>',
        '<tool_call>{"name": "add", "arguments": {"a": 2}}</tool_call>',
        '<tool_call>{"name": "add", "arguments": {"a": [], "b": 3}}</tool_call>',
    ],
)
def test_a_wrong_call_is_an_observation(call: str) -> None:
    answers, reward = play(spec_of("tool_sums"), PROBLEM, [call, r"\boxed{5}"])
    ((message,), end) = answers
    assert message["role"] == "tool"
    assert message["content"]
    assert end is None
    assert reward == EnvironmentReward(value=1.0)


@real
def test_parallel_responses_do_not_mix() -> None:
    problems = rows("sums", count=8)

    def respond(prompt: Prompt, sample: int) -> str:
        return rf"\boxed{{{prompt.problem.answer}}}" if sample else "0"

    sampler = FakeSampler(respond, environment=spec_of("sums"))
    prompts = [Prompt(problem=problem, text="", token_ids=(1,)) for problem in problems]
    rollouts = sampler.generate(prompts, Sampling(num_samples=2, max_response_tokens=40))
    given = [rollout.environment_reward for rollout in rollouts]
    assert given == [EnvironmentReward(value=float(rollout.sample)) for rollout in rollouts]
    with build_grader({"environment": {}}) as grader:
        assert [item.score.verdict.correct for item in grader.score(rollouts)] == [False, True] * 8


BROKEN = """
import verifiers as vf
from datasets import Dataset

ROWS = Dataset.from_list([{"question": "?", "answer": "1"}])

def rubric():
    def good(completion): return 1.0
    def bad(completion): raise KeyError("board")
    return vf.SingleTurnEnv(dataset=ROWS, rubric=vf.Rubric(funcs=[good, bad]))

def group():
    def best(completions): return [1.0] * len(completions)
    return vf.SingleTurnEnv(dataset=ROWS, rubric=vf.Rubric(funcs=[best]))

class Stuck(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        import asyncio
        await asyncio.sleep(30)

class Failing(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        raise vf.ToolCallError("the game is broken")

class Raising(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        raise KeyError("board")

def game(kind):
    return globals()[kind](dataset=ROWS, rubric=vf.Rubric(funcs=[lambda completion: 1.0]), max_turns=3)

def number():
    return 3
"""


@pytest.fixture
def broken(tmp_path: Path) -> Any:
    (tmp_path / "broken.py").write_text(BROKEN)

    def spec(name: str, *, timeout_s: float = 5, **arguments: Any) -> EnvironmentSpec:
        section = {"name": "verifiers", "environment": f"{tmp_path}/broken.py:{name}", "arguments": arguments}
        bound = bind_environment({**section, "timeout_s": timeout_s}, template=CHAT)
        assert bound
        return bound

    return spec


def reason_of(reward: EnvironmentReward) -> Reason:
    assert reward.failed
    assert reward.verdict is not None
    return reward.verdict.reason


@real
def test_a_reward_function_that_raises_is_a_crash_and_not_a_zero(broken: Any) -> None:
    _, reward = play(broken("rubric"), PROBLEM, ["x"])
    assert reason_of(reward) is Reason.CRASHED
    assert "Error calling reward function bad: 'board'" in reward.explanation


@real
def test_an_environment_that_fails_gives_a_verdict(broken: Any) -> None:
    answers, reward = play(broken("game", kind="Failing"), PROBLEM, ["x"])
    assert answers == [None]
    assert (reason_of(reward), "the game is broken" in reward.explanation) == (Reason.CRASHED, True)
    answers, reward = play(broken("game", kind="Raising"), PROBLEM, ["x"])
    assert answers == ["error: KeyError: 'board'"]
    assert reason_of(reward) is Reason.CRASHED
    answers, reward = play(broken("game", kind="Stuck", timeout_s=0.3), PROBLEM, ["x"])
    assert answers == ["error: no result within 0.3 s"]
    assert reason_of(reward) is Reason.TIMEOUT


@real
def test_what_cannot_be_played_is_refused_in_a_sentence(broken: Any) -> None:
    with pytest.raises(ConfigError, match="the rubric compares the responses of a group"):
        broken("group")
    with pytest.raises(ConfigError, match=r"gives 3, expected a verifiers\.Environment"):
        broken("number")
    with pytest.raises(ConfigError, match=r"cannot be loaded \(KeyError"):
        broken("game", kind="None")
    with pytest.raises(ConfigError, match=r"environment 'no-such-package' with arguments = \{\} cannot be loaded"):
        bind_environment({"name": "verifiers", "environment": "no-such-package"}, template=CHAT)
    section = {"name": "verifiers", "environment": f"{EXAMPLES}:guessing"}
    with pytest.raises(ConfigError, match=r"talks in messages, which the prompt template 'tiny' cannot show"):
        bind_environment(section, template="tiny")
    assert bind_environment({"name": "verifiers", "environment": f"{EXAMPLES}:sums"}, template="tiny")


@real
def test_the_recipe_takes_its_steps_at_toy_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    code, _, err = command(
        "train", "tiny_verifiers_cpu", "--model.toy", "true", "--out", tmp_path, "--threads", "1", "--save.samples", "1"
    )
    assert code == 0, err
    run = tmp_path / "tiny_verifiers_cpu_toy"
    rows = read_jsonl(run / "rl" / "metrics.jsonl")
    assert len(rows) == 3
    assert all(row["rollout/verdict/crashed"] == row["rollout/verdict/timeout"] == 0 for row in rows)
    assert {"reward/environment"} <= rows[0].keys()
    first = read_jsonl(run / "rl" / "samples" / "step-000001.jsonl")
    assert first
    assert all("environment" in row["parts"] for row in first)
