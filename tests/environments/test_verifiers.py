"""Tasks of the real package verifiers, their toolsets and rewards; without it, the refusals."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_sampler import FakeSampler
from given import bind_environment, build_grader, load_problems
from toy_runs import REPOSITORY, command

from ansatz.environments import base, verifiers
from ansatz.environments.base import EnvironmentSpec
from ansatz.environments.calls import environment_calls
from ansatz.environments.episode import Episode
from ansatz.errors import AnsatzError, ConfigError, MissingExtraError, UntrustedCodeError
from ansatz.prompts.templates import CHAT
from ansatz.rollout.base import Sampling
from ansatz.track.jsonl import read_jsonl
from ansatz.trust import FoundText, trusted
from ansatz.types import EnvironmentReward, Problem, Prompt, Reason, problem_from_json, to_json

EXAMPLES = f"{Path(__file__).parents[2] / 'examples' / 'verifiers_sums.py'}"
PROBLEM = Problem(id="p", question="What is 2 + 3?", answers=("5",), source="test", split="train")

real = pytest.mark.skipif(
    importlib.util.find_spec("verifiers") is None, reason="verifiers is not installed; make test-peers"
)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("verifiers", "verifiers.v1"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"-m pip install .*verifiers"):
        bind_environment({"name": "verifiers", "environment": "some-package"})
    with pytest.raises(MissingExtraError, match=r"-m pip install .*verifiers"):
        list(load_problems("verifiers", split="train", settings={"environment": "some-package"}))


def test_shared_toolsets_that_could_not_start_are_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Server:
        num_starts = 0

        def __init__(self, toolset: str) -> None:
            self.toolset = toolset

        async def start(self) -> Server:
            Server.num_starts += 1
            if Server.num_starts == 1:
                raise OSError("busy")
            return self

    class Taskset:
        config = None

        @classmethod
        def toolsets(cls, config: None) -> list[str]:
            return ["tools"]

    async def start_three_times() -> None:
        taskset = Taskset()
        with pytest.raises(OSError, match="busy"):
            await verifiers._start_shared(taskset)
        servers = await verifiers._start_shared(taskset)
        assert await verifiers._start_shared(taskset) is servers
        assert ([server.toolset for server in servers], Server.num_starts) == (["tools"], 2)

    monkeypatch.setattr(verifiers, "_Server", Server)
    asyncio.run(start_three_times())


def spec_of(name: str, *, file: Path | str = EXAMPLES, timeout_s: float = 20, **arguments: Any) -> EnvironmentSpec:
    section = {"name": "verifiers", "environment": f"{file}:{name}", "arguments": arguments}
    spec = bind_environment({**section, "turns": 9, "timeout_s": timeout_s}, template=CHAT)
    assert spec
    return spec


def play(spec: EnvironmentSpec, problem: Problem, turns: list[str], *, open_turn: str = "") -> tuple[list[Any], Any]:
    """What the environment answers to each turn, and its reward."""
    with environment_calls(spec) as calls:
        assert calls
        episode = Episode(spec, problem)
        answers = [calls.answer(episode, turn) for turn in turns]
        calls.submit_reward(0, episode, open_turn)
        ((_, reward),) = calls.rewards.finished(wait=True)
        calls.end(episode)
        return answers, reward


def rows(name: str, *, file: Path | str = EXAMPLES, split: str = "train", **settings: Any) -> list[Problem]:
    settings = {"environment": f"{file}:{name}" if file else name, **settings}
    return list(load_problems("verifiers", split=split, settings=settings))


def called(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call><|im_end|>"


def contents(answers: list[Any]) -> list[Any]:
    """The texts of the tools, and None where the response has ended."""
    return [answer and [message["content"] for message in answer] for answer in answers]


@real
def test_a_single_turn_is_scored_by_the_reward_of_the_task_which_is_our_verifier() -> None:
    spec = spec_of("Sums", count=5)
    assert (spec.sample.tools, tuple(spec.sample.roles)) == ([], ())
    assert play(spec, PROBLEM, [r"So \boxed{5}<|im_end|>"]) == ([None], EnvironmentReward(value=1.0))
    assert play(spec, PROBLEM, [r"So \boxed{6}<|im_end|>"]) == ([None], EnvironmentReward(value=0.0))
    assert play(spec, PROBLEM, [], open_turn=r"So \boxed{5} because") == ([], EnvironmentReward(value=1.0))
    assert play(spec, PROBLEM, []) == ([], EnvironmentReward(value=0.0))


@real
def test_the_tasks_of_a_taskset_are_problems() -> None:
    train = rows("Sums", arguments={"count": 30}, count=4)
    heldout = rows("Sums", split="heldout", arguments={"split": "heldout", "count": 20}, skip=5)
    assert (len(train), len(heldout)) == (4, 15)
    assert train == rows("Sums", arguments={"count": 30}, count=4)
    assert train[3] == rows("Sums", arguments={"count": 30}, skip=3, count=1)[0]
    assert len({problem.id for problem in (*train, *heldout)}) == 19
    for problem in train:
        stored = problem_from_json(json.loads(json.dumps(to_json(problem))))
        _, reward = play(spec_of("Sums", count=5), stored, [rf"\boxed{{{problem.answer}}}"])
        assert reward == EnvironmentReward(value=1.0)


@real
def test_a_tool_shares_its_state_with_the_reward_and_with_the_stop() -> None:
    spec, (problem, *_) = spec_of("Guessing"), rows("Guessing", count=1)
    assert (tuple(spec.sample.roles), problem.answer) == (("tool",), "1")
    assert [tool["function"]["name"] for tool in spec.sample.tools] == ["guess"]
    answers, reward = play(spec, problem, [called("guess", number=50), called("guess", number=1)])
    assert (contents(answers), reward) == ([["Lower."], None], EnvironmentReward(value=0.5))
    answers, reward = play(spec, problem, [called("guess", number=50), "I give up"])
    assert (contents(answers), reward) == ([["Lower."], None], EnvironmentReward(value=0.0))
    assert play(spec, problem, [called("guess", number=1)])[1] == EnvironmentReward(value=1.0)


@real
def test_a_tool_is_called_in_the_form_of_the_template() -> None:
    spec, problem = spec_of("ToolSums"), rows("ToolSums", count=3)[2]
    assert [tool["function"]["name"] for tool in spec.sample.tools] == ["calculator_add"]
    assert spec.chat
    assert spec.chat.tools == list(spec.sample.tools)
    answers, reward = play(spec, problem, [called("calculator_add", a=1002, b=14), r"It is \boxed{1016}.<|im_end|>"])
    told = {"role": "tool", "name": "calculator_add", "tool_call_id": "call00000", "content": "1016"}
    assert (answers, reward) == ([[told], None], EnvironmentReward(value=1.0))


@real
@pytest.mark.parametrize(
    "call",
    [
        "<tool_call>add 2 and 3</tool_call>",
        called("multiply", a=2, b=3),
        called("calculator_add", a=2),
        called("calculator_add", a=[], b=3),
    ],
)
def test_a_wrong_call_is_an_observation(call: str) -> None:
    answers, reward = play(spec_of("ToolSums"), PROBLEM, [call, r"\boxed{5}"])
    ((message,), end) = answers
    assert (message["role"], message["content"][:7], end) == ("tool", "error: ", None)
    assert reward == EnvironmentReward(value=1.0)


@real
def test_parallel_responses_do_not_mix() -> None:
    problems = rows("Sums", count=8)

    def respond(prompt: Prompt, sample: int) -> str:
        return rf"\boxed{{{prompt.problem.answer}}}" if sample else "0"

    sampler = FakeSampler(respond, environment=spec_of("Sums"))
    prompts = [Prompt(problem=problem, text="", token_ids=(1,)) for problem in problems]
    rollouts = sampler.generate(prompts, Sampling(num_samples=2, max_response_tokens=40))
    given = [rollout.environment_reward for rollout in rollouts]
    assert given == [EnvironmentReward(value=float(rollout.sample)) for rollout in rollouts]
    with build_grader({"environment": {}}) as grader:
        assert [item.score.verdict.correct for item in grader.score(rollouts)] == [False, True] * 8


TASKSETS = """
import asyncio, itertools, time
import verifiers.v1 as vf

async def half(task, trace): return 0.5

class Data(vf.TaskData):
    answer: str = ""

def taskset(task_kind, prompt="?", name="T", infinite=False, tools=(), config=None, **more):
    class Made(vf.Taskset[task_kind, vf.TasksetConfig]):
        INFINITE = infinite
        def load(self):
            for _ in itertools.count() if infinite else range(3):
                yield task_kind(Data(prompt=prompt, answer="1", **more), config or self.config.task)
        @classmethod
        def toolsets(cls, config):
            return [tool() for tool in tools]
    return Made(vf.TasksetConfig())

class Plain(vf.Task[Data]):
    @vf.reward
    async def one(self, trace): return 1.0

class Weighted(vf.Task[Data]):
    @vf.reward(weight=0.5)
    async def first(self, trace): return 1.0
    @vf.reward(weight=0.25)
    async def parts(self, task, trace): return {"a": 1.0, "b": float(trace.last_reply == task.answer)}

class Bare(vf.Task[Data]): pass

class Looking(vf.Task[Data]):
    @vf.reward
    async def looks(self, trace):
        roles = [message.role for message in trace.messages]
        said = [message.content for message in trace.assistant_messages]
        return float((roles, said) == (["system", "user", "assistant", "user", "assistant"], ["yes"]))

class Cut(vf.Task[Data]):
    @vf.reward
    async def cut(self, trace): return float(trace.is_truncated)

class Bad(vf.Task[Data]):
    @vf.reward
    async def bad(self, trace): raise KeyError("board")

class Slow(vf.Task[Data]):
    @vf.reward
    async def slow(self, trace): await asyncio.sleep(30)

class Tools(vf.Toolset[vf.ToolsetConfig]):
    async def setup(self): self.ready = "ready"
    @vf.tool
    async def wait(self) -> str:
        await asyncio.sleep(0)
        return self.ready
    @vf.tool(name="break")
    def broken(self) -> str: raise RuntimeError("no such file")

class Called(vf.Task[Data]):
    @classmethod
    def toolsets(cls, config): return [Tools(vf.ToolsetConfig())]
    @vf.reward
    async def called(self, trace): return len(trace.tool_messages) / 4

class Container(Plain):
    NEEDS_CONTAINER = True

class Setup(Plain):
    async def setup(self, trace, runtime): pass

class Runtime(Plain):
    @vf.reward
    async def tests(self, trace, runtime): return 1.0

class Optional(vf.Task[Data]):
    @vf.reward
    async def tests(self, trace, runtime=None): return 0.5 if runtime is None else 0.0

class Rewriting(Plain):
    @vf.intercept
    async def hide(self, request: vf.Request) -> None: return None

class Requests(Plain):
    @vf.stop
    async def enough(self, response: vf.Response) -> bool: return False

class Boxed(Plain):
    @classmethod
    def toolsets(cls, config): return [Tools(vf.ToolsetConfig(runtime=vf.DockerConfig()))]

class Twice(Plain):
    @classmethod
    def toolsets(cls, config): return [Tools(vf.ToolsetConfig()), Tools(vf.ToolsetConfig())]

MESSAGES = [
    {"role": "user", "content": "a?"}, {"role": "assistant", "content": "b"},
    {"role": "user", "content": [{"type": "text", "text": "c?"}]},
]
IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]

def made(kind, **more): return taskset(globals()[kind], **more)
def shared(): return taskset(Plain, tools=[lambda: Tools(vf.SharedToolsetConfig())])
def messages(): return taskset(Looking, prompt=MESSAGES, system_prompt="Be brief.")
def image(): return taskset(Plain, prompt=IMAGE)
def silent(): return taskset(Plain, prompt=None)
def plugged():
    reward = {"answer": {"fn": "ansatz_verify.adapters:verifiers_reward", "weight": 0.5}}
    return taskset(Bare, config=vf.TaskConfig(rewards=reward))
def number(): return 3
def empty():
    class Empty(vf.Taskset[Plain, vf.TasksetConfig]):
        def load(self): return []
    return Empty(vf.TasksetConfig())
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "tasksets.py").write_text(TASKSETS)
    return tmp_path / "tasksets.py"


@real
@pytest.mark.parametrize(
    ("function", "arguments", "turns", "expected"),
    [
        ("made", {"kind": "Plain"}, ["x"], 1.0),
        ("made", {"kind": "Weighted"}, [" 1 "], 1.0),
        ("made", {"kind": "Weighted"}, ["2"], 0.75),
        ("made", {"kind": "Optional"}, ["x"], 0.5),
        ("messages", {}, ["yes"], 1.0),
        ("plugged", {}, [r"\boxed{1}"], 0.5),
        ("made", {"kind": "Cut"}, ["x"], 0.0),
        ("made", {"kind": "Called"}, [called("tools_wait") + called("tools_wait"), called("tools_wait"), "x"], 0.75),
        ("shared", {}, [called("tools_wait"), "x"], 1.0),
    ],
)
def test_a_trace_of_the_turns_is_scored_as_the_package_scores_it(
    file: Path, function: str, arguments: dict[str, Any], turns: list[str], expected: float
) -> None:
    (problem, *_) = rows(function, file=file, arguments=arguments, count=1)
    answers, reward = play(spec_of(function, file=file, **arguments), problem, turns)
    assert reward == EnvironmentReward(value=expected)
    results = [["ready"] * turn.count("<tool_call>") for turn in turns[:-1]]
    assert contents(answers) == [*results, None]


@real
def test_a_turn_that_the_limit_has_cut_off_is_truncated_in_the_trace(file: Path) -> None:
    assert play(spec_of("made", file=file, kind="Cut"), PROBLEM, [], open_turn="x")[1] == EnvironmentReward(value=1.0)


@real
def test_a_tool_that_raises_is_an_observation(file: Path) -> None:
    answers, _ = play(spec_of("made", file=file, kind="Called"), PROBLEM, [called("tools_break"), "x"])
    assert "no such file" in answers[0][0]["content"]
    assert answers[0][0]["content"].startswith("error: ")


@real
def test_a_reward_that_raises_or_waits_is_a_verdict_and_not_a_zero(file: Path) -> None:
    for kind, reason, text in (("Bad", Reason.CRASHED, "'board'"), ("Slow", Reason.TIMEOUT, "")):
        _, reward = play(spec_of("made", file=file, kind=kind, timeout_s=0.5), PROBLEM, ["x"])
        assert reward.failed
        assert reward.verdict.reason is reason
        assert text in reward.explanation


@real
@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("Container", "Container has NEEDS_CONTAINER set"),
        ("Setup", r"a method setup, which needs a runtime of the package \(Toolset.setup_task needs none\)"),
        ("Runtime", "the reward tests, which needs a runtime of the package"),
        ("Bare", "Bare has no reward"),
        ("Rewriting", "the interception hide, which changes requests or responses"),
        ("Requests", "the stop enough, which reads requests or responses of a server"),
        ("Boxed", r"the toolset Tools, which needs a runtime of the package \(docker\)"),
        ("Twice", "tools_break, tools_wait names several tools"),
        ("Nothing", r"tasksets.py:made' raised KeyError: 'Nothing'"),
    ],
)
def test_tasks_that_need_more_than_toolsets_and_rewards_are_refused_in_a_sentence(
    file: Path, kind: str, sentence: str
) -> None:
    with pytest.raises(AnsatzError, match=sentence) as caught:
        spec_of("made", file=file, kind=kind)
    assert "\n" not in str(caught.value)


@real
def test_tasksets_that_cannot_be_read_are_refused_in_a_sentence(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no end\. Set count"):
        rows("made", file=file, arguments={"kind": "Plain", "infinite": True})
    assert len(rows("made", file=file, arguments={"kind": "Plain", "infinite": True}, skip=7, count=2)) == 2
    with pytest.raises(ConfigError, match=r"the prompt of task 0 has the content .*image_url.*, expected text"):
        rows("image", file=file)
    with pytest.raises(ConfigError, match="the prompt of task 0 does not end with a user's message"):
        rows("silent", file=file)
    with pytest.raises(ConfigError, match=r"gives 3, expected a verifiers\.v1\.Taskset"):
        rows("number", file=file)
    with pytest.raises(ConfigError, match="has no tasks"):
        rows("empty", file=file)
    with pytest.raises(ConfigError, match=r"environment 'no-such-package' with arguments = \{\} cannot be loaded"):
        rows("no-such-package", file="")
    with pytest.raises(ConfigError, match=r"cannot be loaded \(ValidationError: .*cuont"):
        rows("Sums", arguments={"cuont": 3})


PACKAGE = """
import verifiers.v1 as vf
class Task(vf.Task[vf.TaskData]):
    @vf.reward
    async def one(self, trace): return 1.0
class Config(vf.TasksetConfig):
    prompts: list[str] = ["a?"]
class Tasks(vf.Taskset[Task, Config]):
    def load(self):
        return [Task(vf.TaskData(prompt=prompt), self.config.task) for prompt in self.config.prompts]
class Game(vf.SingleAgentEnv): pass
"""


@real
@pytest.mark.parametrize("exported", ["Tasks", "Tasks Game"])
def test_an_installed_taskset_is_named_by_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exported: str
) -> None:
    name = f"toy_{exported.replace(' ', '_').lower()}"
    (tmp_path / f"{name}.py").write_text(f"{PACKAGE}\n__all__ = {exported.split()}\n")
    monkeypatch.syspath_prepend(tmp_path)
    if " " in exported:
        with pytest.raises(ConfigError, match="brings a class Game of its own"):
            rows(name, file="")
        return
    questions = [row.question for row in rows(name.replace("_", "-"), file="", arguments={"prompts": ["b?", "c?"]})]
    assert questions == ["b?", "c?"]


@real
def test_arguments_that_were_found_name_no_code() -> None:
    arguments = trusted({"task": {"rewards": {"bad": {"fn": "os:system"}}}})
    arguments["task"]["rewards"]["bad"]["fn"] = FoundText("os:system")
    section = {**trusted({"name": "verifiers", "environment": f"{EXAMPLES}:Sums"}), "arguments": arguments}
    with pytest.raises(UntrustedCodeError, match="verifiers environment 'os:system'"):
        base.bind_environment(section, template=CHAT)


@real
def test_tools_need_a_template_that_can_show_them() -> None:
    section = {"name": "verifiers", "environment": f"{EXAMPLES}:Guessing"}
    with pytest.raises(ConfigError, match=r"talks in messages, which the prompt template 'tiny' cannot show"):
        bind_environment(section, template="tiny")
    assert bind_environment({**section, "environment": f"{EXAMPLES}:Sums"}, template="tiny")


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
