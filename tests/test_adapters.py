"""The rewards of a recipe, called as TRL calls a reward. The real package: tests/e2e/test_trainers.py."""

from __future__ import annotations

import types

import pytest

from ansatz.adapters import trl_reward
from ansatz.errors import ConfigError

BOXED = [r"\boxed{5}", r"\boxed{6}"]


def test_trl_gets_one_float_per_completion_with_text_and_with_messages():
    reward = trl_reward()
    columns = {"answer": ["5", "5"], "completion_ids": [[1], [1, 2]], "log_metric": print}
    assert reward(prompts=["q", "q"], completions=BOXED, **columns) == [1.0, 0.0]
    messages = [[{"role": "assistant", "content": text}] for text in BOXED]
    prompts = [[{"role": "user", "content": "q"}]] * 2
    assert reward(prompts=prompts, completions=messages, **columns) == [1.0, 0.0]


def test_trl_rewards_have_the_weights_settings_and_groups_of_a_recipe():
    # kimi_length (arXiv:2501.12599): 0.5 - (length - min) / (max - min) within the group; here lengths 1 and 2 of "q",
    # all correct, give 0.5 and -0.5. The single response of "p" has max = min and gets 0.
    reward = trl_reward({"math_answer": {}, "kimi_length": {"weight": 2.0, "from_step": 3}}, answer_column="gold")
    arguments = {
        "prompts": ["q", "q", "p"],
        "completions": [r"\boxed{5}"] * 3,
        "gold": ["5"] * 3,
        "completion_ids": [[1], [1, 2], [1, 2, 3]],
    }
    state = types.SimpleNamespace(global_step=3)
    assert reward(**arguments, trainer_state=state) == [2.0, 0.0, 1.0]
    assert reward(**arguments) == [1.0, 1.0, 1.0]


def test_other_columns_reach_rewards_that_read_the_meta():
    reward = trl_reward({"countdown": {}})
    columns = {"answer": ["7", "7"], "nums": [[3, 4], [3, 4]], "target": [7, 7]}
    assert reward(prompts=["q", "q"], completions=[r"\boxed{3+4}", r"\boxed{7}"], **columns) == [1.0, 0.0]


def test_a_missing_column_is_named():
    with pytest.raises(ConfigError, match=r"no column 'answer'; there are solution\. Set answer_column"):
        trl_reward()(prompts=["q"], completions=["5"], solution=["5"])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: trl_reward(["math_answer"]), r"rewards = \['math_answer'\]; expected a mapping"),
        (lambda: trl_reward(answer_column=5), "answer_column = 5; expected the name of a column"),
        (lambda: trl_reward()(prompts=["q"], completions=["5"], answer=[{"a": 5}]), "answer of row 0 is {'a': 5}"),
    ],
)
def test_wrong_options_and_gold_answers_are_refused(call, sentence):
    with pytest.raises(ConfigError, match=sentence):
        call()


def test_numbers_are_gold_answers():
    assert trl_reward()(prompts=["q", "q"], completions=BOXED, answer=[5, 5]) == [1.0, 0.0]
