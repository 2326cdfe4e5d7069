"""Rewards in the forms that users and other projects write, through the grader of a recipe."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from given import build_grader

from ansatz.errors import ConfigError, RewardError
from ansatz.types import Rollout

MakeRollout = Callable[..., Rollout]


def values(folder: Path, code: str, rollouts: list[Rollout], **settings: object) -> list[float]:
    """What the function `reward` in the code gives the rollouts."""
    file = folder / "mine.py"
    file.write_text(code)
    with build_grader({f"{file}:reward": settings}) as grader:
        return [scored.score.value for scored in grader.score(rollouts, step=7)]


FORMS = {
    "one response": "def reward(response: str, answer: str) -> float:\n    return float(response == answer)\n",
    "one response, no gold": "def reward(response):\n    return response == '5'\n",
    "verl": (
        "def reward(data_source, solution_str, ground_truth, extra_info=None, **kwargs):\n"
        "    assert (data_source, extra_info['hint']) == ('test', 'h')\n"
        "    return {'score': float(solution_str == ground_truth), 'acc': 1}\n"
    ),
    "TRL": (
        "def reward(prompts, completions, answer, **kwargs):\n"
        "    assert kwargs['hint'] == ['h', 'h'] and prompts == ['?', '?']\n"
        "    return [float(text == gold) for text, gold in zip(completions, answer)]\n"
    ),
    "async, one response": "async def reward(response, answer):\n    return float(response == answer)\n",
    "async, verl": "async def reward(solution_str, ground_truth):\n    return {'score': solution_str == '5'}\n",
    "async, TRL": "async def reward(completions, **_):\n    return [c[0]['content'] == '5' for c in completions]\n",
    "async, rollouts": "async def reward(rollouts):\n    return [r.text == '5' for r in rollouts]\n",
    "async, object": (
        "class Reward:\n    async def __call__(self, response):\n        return response == '5'\nreward = Reward()\n"
    ),
    "rollouts": "def reward(rollouts):\n    return [r.text == r.prompt.problem.answer for r in rollouts]\n",
    "numpy": "import numpy\ndef reward(rollouts):\n    return numpy.array([r.text == '5' for r in rollouts], 'f4')\n",
    "torch": "import torch\ndef reward(rollouts):\n    return torch.tensor([r.text == '5' for r in rollouts])\n",
}


def test_a_function_of_verl_gets_the_extra_info_of_the_row_as_it_is(tmp_path, rollout: MakeRollout):
    code = "def reward(solution_str, ground_truth, extra_info):\n    return float(extra_info['index'] == 7)\n"
    row = {"extra_info": {"index": 7, "split": "train"}, "hint": "h"}
    assert values(tmp_path, code, [rollout("5", meta=row)]) == [1.0]
    with_id = "def reward(solution_str, ground_truth, extra_info):\n    return float(extra_info['id'] is not None)\n"
    assert values(tmp_path, with_id, [rollout("5", meta=row)]) == [1.0]


@pytest.mark.parametrize("form", FORMS)
def test_a_function_in_any_form_grades_the_responses(tmp_path, rollout: MakeRollout, form: str):
    pair = [rollout("5", meta={"hint": "h"}), rollout("6", meta={"hint": "h"})]
    assert values(tmp_path, FORMS[form], pair) == [1.0, 0.0]


@pytest.mark.parametrize(
    "code",
    [
        "def reward(response):\n    return None if response == '6' else 2.0\n",
        "def reward(solution_str, ground_truth):\n    return {'score': None if solution_str == '6' else 2}\n",
        "def reward(completions, **kwargs):\n    return [2.0 if text == '5' else None for text in completions]\n",
        "async def reward(rollouts):\n    return [None if r.text == '6' else 2.0 for r in rollouts]\n",
    ],
)
def test_a_reward_that_returns_none_does_not_apply_to_the_response(tmp_path, rollout: MakeRollout, code: str):
    (tmp_path / "mine.py").write_text(code)
    name = f"{tmp_path}/mine.py:reward"
    with build_grader({name: {"weight": 3.0}}) as grader:
        five, six = (scored.score for scored in grader.score([rollout("5"), rollout("6")]))
    assert (five.value, five.parts, five.applies) == (6.0, {name: 2.0}, True)
    assert math.isnan(six.parts[name])
    assert not six.applies
    assert not six.is_graded
    with build_grader({"math_answer": {}, name: {}}) as grader:
        six = grader.score([rollout("6")])[0].score
    assert six.applies
    assert (six.value, six.parts["math_answer"]) == (0.0, 0.0)


def test_a_reward_that_needs_verdicts_applies_where_another_one_gives_them(tmp_path, rollout: MakeRollout):
    (tmp_path / "mine.py").write_text(
        "from ansatz.rewards.base import RewardResult\nfrom ansatz.types import Reason, Verdict\n"
        "def grade(rollouts):\n    right = Verdict(correct=True, reason=Reason.EQUAL)\n"
        "    return [None if r.text == '6' else RewardResult(value=1.0, verdict=right) for r in rollouts]\n"
        "def count(rollouts, *, verdicts, all_verdicts):\n"
        "    return [len(rollouts) + 10 * len(verdicts) + 100 * len(all_verdicts)] * len(rollouts)\n"
    )
    with build_grader({f"{tmp_path}/mine.py:{name}": {} for name in ("count", "grade")}) as grader:
        scores = [scored.score for scored in grader.score([rollout("6"), rollout("5"), rollout("4")])]
        assert [score.value for score in scores] == [0.0, 123.0, 123.0]
        assert not grader.score([rollout("6")])[0].score.applies


def test_asynchronous_rewards_of_several_problems_are_awaited_together(tmp_path, rollout: MakeRollout):
    (tmp_path / "mine.py").write_text(
        "import asyncio\nall_here, waiting = asyncio.Event(), 0\n"
        "async def reward(response):\n    global waiting\n    waiting += 1\n    if waiting == 6:\n"
        "        all_here.set()\n    await all_here.wait()\n    return 1.0\n"
    )
    rollouts = [rollout("5", sample=sample, problem=f"p{place}") for place in range(3) for sample in range(2)]
    with build_grader({f"{tmp_path}/mine.py:reward": {"deadline_s": 20}}) as grader:
        assert [scored.score.value for scored in grader.score(rollouts)] == [1.0] * 6


def test_keyword_only_parameters_are_settings_in_every_form(tmp_path, rollout: MakeRollout):
    for parameters in ("response", "solution_str, ground_truth", "completions"):
        result = "[bonus + step]" if parameters == "completions" else "bonus + step"
        code = f"def reward({parameters}, *, bonus: float = 1.0, step):\n    return {result}\n"
        assert values(tmp_path, code, [rollout("x")], bonus=0.5) == [7.5]
        (tmp_path / "mine.py").unlink()
        tmp_path = tmp_path / "next"
        tmp_path.mkdir()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def reward(text):\n    return 1\n", "takes text, but one parameter must be rollouts"),
        ("def reward(response, verdicts_of):\n    return 1\n", "'verdicts_of', but the problems have no such field"),
        ("def reward(response, *, verdicts):\n    return 1\n", "one response at a time, so it cannot have 'verdicts'"),
        ("def reward(response):\n    return 'good'\n", r"returned the str 'good' for a rollout of problem 'p0'"),
        (
            "def reward(rollouts):\n    return 0.5\n",
            r"returned the float 0.5 for 1 rollouts of problem 'p0'. Return a l",
        ),
        ("def reward(completions, **kwargs):\n    return [1, 2]\n", "returned more than 1 results for 1 rollouts"),
        ("def reward(solution_str, ground_truth):\n    return {'acc': 1}\n", r"keys \['acc'\], but not 'score'"),
        ("def reward(response):\n    return float('inf')\n", "returned inf for problem 'p0'. Return a finite number"),
        ("reward = 3\n", "is 3, not a function"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(tmp_path, rollout: MakeRollout, code: str, message: str):
    with pytest.raises((ConfigError, RewardError), match=message):
        values(tmp_path, code, [rollout("5")])


MESSAGES = {
    "messages": "def reward(prompts, completions, answer, **kwargs):\n"
    "    assert prompts[0][-1]['content'] == '?'\n"
    "    return [float(c[0]['content'] == a) for c, a in zip(completions, answer)]\n",
    "in a helper": "def text(c):\n    return c[-1].get('content')\n"
    "def reward(completions, answer, **kwargs):\n"
    "    return [float(text(c) == a) for c, a in zip(completions, answer)]\n",
    "in a lambda": "def reward(completions, answer, **kwargs):\n"
    "    return [float((lambda c: c[0]['content'])(c) == a) for c, a in zip(completions, answer)]\n",
    "hidden error": "def reward(completions, answer, **kwargs):\n    try:\n"
    "        return [float(c[0]['content'] == a) for c, a in zip(completions, answer)]\n"
    "    except Exception:\n        return [0.0] * len(completions)\n",
    "text of JSON": "import json\ndef reward(completions, answer, **kwargs):\n"
    "    return [float((json.loads(c)['content'] if '{' in c else c) == a) for c, a in zip(completions, answer)]\n",
    "text": "def reward(completions, answer, **kwargs):\n"
    "    return [float(c[0] == a) for c, a in zip(completions, answer)]\n",
}


@pytest.mark.parametrize("form", MESSAGES)
def test_a_function_of_trl_gets_messages_if_it_reads_them_and_text_if_not(tmp_path, rollout: MakeRollout, form: str):
    assert values(tmp_path, MESSAGES[form], [rollout("5"), rollout("6")]) == [1.0, 0.0]


def test_a_function_that_fails_with_both_forms_is_named_with_its_error(tmp_path, rollout: MakeRollout):
    with pytest.raises(RewardError, match="raised KeyError: 'gold'"):
        values(tmp_path, "def reward(completions, **kwargs):\n    return [kwargs['gold']]\n", [rollout("5")])
