import pytest
from toy_runs import toy_config

from ansatz.errors import DataError, ModelError
from ansatz.loop import rendering
from ansatz.loop.run_sources import RunSources
from ansatz.models.reader import TextReader
from ansatz.types import Problem
from tools.families import MAX_CONTEXT


class Words:
    """A tokenizer: one token for each word."""

    eos_token_id = 1
    chat_template = None

    def encode(self, text, *, add_special_tokens=True):
        return [len(word) for word in text.split()]


def words(count):
    return " ".join(["t5"] * count)


def problem(question_tokens, solution_tokens=None, *, name="p"):
    solution = None if solution_tokens is None else words(solution_tokens)
    return Problem(
        id=name, question=words(question_tokens), answers=("5",), source="made", split="train", solution=solution
    )


@pytest.fixture
def checker(tmp_path):
    """checker(prompt limit, response limit) -> LengthChecker for a policy with MAX_CONTEXT tokens, in words."""

    def make(max_prompt_tokens, max_response_tokens):
        limits = {"max_prompt_tokens": max_prompt_tokens, "max_response_tokens": max_response_tokens}
        config = toy_config(tmp_path, {"data": {"template": "none"}, "rollout": limits})
        return RunSources(config).lengths(TextReader(tokenizer=Words(), max_context=MAX_CONTEXT))

    return make


def test_a_prompt_at_its_limit_fits_and_one_over_does_not(checker):
    checker(60, 20).check_prompts([problem(60), problem(1)])
    with pytest.raises(
        ModelError, match=r"problem 'q' has 61 tokens, but the limit is 60\. Raise rollout\.max_prompt_tok"
    ):
        checker(60, 20).check_prompts([problem(60), problem(61, name="q")])


def test_prompt_and_response_at_the_context_fit_and_one_over_does_not(checker):
    checker(1000, 50).check_prompts([problem(MAX_CONTEXT - 50)])
    with pytest.raises(ModelError) as error:
        checker(1000, 50).check_prompts([problem(MAX_CONTEXT - 49)])
    assert "has 79 tokens; with max_response_tokens = 50 that is 129, over the model's context of 128." in str(
        error.value
    )


def test_limits_over_the_context_are_accepted_while_every_prompt_fits(checker):
    checker(MAX_CONTEXT, MAX_CONTEXT - 3).check_prompts([problem(3)])
    with pytest.raises(ModelError, match="over the model's context of 128"):
        checker(MAX_CONTEXT, MAX_CONTEXT).check_prompts([problem(1)])


def test_a_demonstration_and_its_end_token_fit_or_do_not(checker):
    checker(60, 20).check_demonstrations([problem(60, 19)])
    with pytest.raises(ModelError, match=r"has 21 tokens, but the limit is 20\. Raise rollout\.max_response_tokens"):
        checker(60, 20).check_demonstrations([problem(60, 19), problem(1, 20)])
    with pytest.raises(ModelError, match=r"has 61 tokens, but the limit is 60\."):
        checker(60, 20).check_demonstrations([problem(61, 1)])


def test_a_demonstration_may_not_pass_the_context(checker):
    checker(1000, 1000).check_demonstrations([problem(100, 27)])
    with pytest.raises(ModelError, match=r"with its demonstration of 29 that is 129, over the model's context of 128"):
        checker(1000, 1000).check_demonstrations([problem(100, 28)])


def test_a_problem_without_a_demonstration_is_refused(checker):
    with pytest.raises(DataError, match="has no worked solution"):
        checker(60, 20).check_demonstrations([problem(1)])


def test_short_texts_are_not_tokenised(checker, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("tokenised")

    check = checker(60, 20)
    for name in ("render", "render_demonstration"):
        monkeypatch.setattr(rendering, name, refuse)
    check.check_prompts([problem(18)])  # 18 x 3 - 1 = 53 characters, and room for 4 special tokens
    check.check_demonstrations([problem(18, 5)])
    with pytest.raises(AssertionError):
        check.check_prompts([problem(20)])
    with pytest.raises(AssertionError):
        check.check_prompts([Problem(id="p", question="½", answers=("5",), source="made", split="train")])
