import pytest
from toy_runs import toy_config

from ansatz.environments.base import bind_environment
from ansatz.errors import ConfigError
from ansatz.loop import rendering
from ansatz.loop.rendering import PromptRenderer
from ansatz.loop.run_sources import RunSources
from ansatz.models.reader import TextReader
from ansatz.trust import trusted
from ansatz.types import Problem


class Words:
    """A tokenizer: a token is a word."""

    eos_token_id = 1
    chat_template = None

    def encode(self, text, *, add_special_tokens=True):
        return [len(word) for word in text.split()]


READER = TextReader(tokenizer=Words(), max_context=99)


def problem(question="How many ?", name="p"):
    return Problem(id=name, question=question, answers=("5",), source="test", split="train", solution="It is 5 .")


@pytest.fixture
def calls(monkeypatch):
    """The ids of the problems that were rendered, in order."""
    rendered = []
    for name in ("render", "render_demonstration"):
        original = getattr(rendering, name)

        def counted(problem, *arguments, original=original, **settings):
            rendered.append(problem.id)
            return original(problem, *arguments, **settings)

        monkeypatch.setattr(rendering, name, counted)
    return rendered


def test_a_problem_is_rendered_once(tmp_path, calls):
    renderer = RunSources(toy_config(tmp_path)).renderer(READER)
    problems = [problem(name="a"), problem(name="b")]
    assert renderer.prompts(problems) == renderer.prompts(problems)
    assert renderer.prompt(problems[1]) is renderer.prompts(problems)[1]
    assert calls == ["a", "b"]
    assert renderer.demonstration(problems[0]) is renderer.demonstration(problems[0])
    assert calls == ["a", "b", "a"]


def test_two_problems_with_one_id_are_rendered_each_as_itself(tmp_path):
    """Ids are unique within a file only: data.sft and data.train can hold different problems of one id."""
    renderer = RunSources(toy_config(tmp_path)).renderer(READER)
    first, second = problem("How many ?"), problem("How many apples are left ?")
    assert renderer.prompt(first).problem is first
    assert renderer.prompt(second).problem is second
    assert "apples" in renderer.prompt(second).text
    assert "apples" not in renderer.prompt(first).text


def test_a_teacher_may_have_its_own_template(tmp_path):
    sources = RunSources(toy_config(tmp_path))
    assert sources.renderer(READER).template == "tiny"
    renderer = sources.build_renderer(READER, template="none")
    assert renderer.prompt(problem()).text == "How many ?"


ENVIRONMENT = """
from ansatz.environments import Environment

class Board(Environment):
    def reset(self, problem):
        if problem.question.startswith("BAD"):
            raise ValueError("no board")
        return "a board"
    async def step(self, response):
        return None
"""


def test_an_environment_whose_reset_fails_for_every_problem_ends_the_run_with_its_error(tmp_path):
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    spec = bind_environment(trusted({"name": f"{tmp_path}/env.py:Board", "turns": 2}), template="boxed")
    bad = [problem(question=f"BAD {n}", name=f"bad{n}") for n in range(3)]

    def renderer():
        return PromptRenderer(Words(), "boxed", spec, max_prompt_tokens=99, max_response_tokens=9)

    with pytest.raises(
        ConfigError, match=r"reset\(\) failed for all 3 problems .* 'bad0': reset\(\) raised ValueError: no board"
    ):
        renderer().open(bad)
    some = renderer()
    some.open([*bad, problem()])  # one that fails is an error of its own responses
    some.open([problem(question="BAD 4", name="bad4")])
    assert some.opened(problem()).question.endswith("a board")
