"""Rewards in the forms that users and other projects write, through the grader of a recipe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ansatz.errors import ConfigError, RewardError
from ansatz.rewards.grader import build_grader
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
    "TRL, None": "def reward(completions, answer, **kwargs):\n    return [1.0 if completions[0] == '5' else 9, None]\n",
    "rollouts": "def reward(rollouts):\n    return [r.text == r.prompt.problem.answer for r in rollouts]\n",
    "numpy": "import numpy\ndef reward(rollouts):\n    return numpy.array([r.text == '5' for r in rollouts], 'f4')\n",
    "torch": "import torch\ndef reward(rollouts):\n    return torch.tensor([r.text == '5' for r in rollouts])\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_function_in_any_form_grades_the_responses(tmp_path, rollout: MakeRollout, form: str):
    pair = [rollout("5", meta={"hint": "h"}), rollout("6", meta={"hint": "h"})]
    assert values(tmp_path, FORMS[form], pair) == [1.0, 0.0]


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
        ("def reward(response):\n    return None\n", r"returned None for a rollout of problem 'p0'"),
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
