"""Our rewards, called as other projects call a reward. The real packages: tests/e2e/test_trainers.py."""

from __future__ import annotations

import sys
import types

import pytest

from ansatz.adapters import trl_reward, verifiers_rubric, verl_compute_score
from ansatz.errors import ConfigError, MissingExtraError

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


def test_verl_gets_a_score_with_the_options_of_the_verifier():
    result = verl_compute_score("gsm8k", r"so \boxed{\frac{1}{2}}", "0.5", extra_info={"index": 1})
    assert result == {"score": 1.0, "acc": True, "pred": r"\frac{1}{2}"}
    assert verl_compute_score("gsm8k", "#### 5", 5)["score"] == 0.0
    assert verl_compute_score("gsm8k", "#### 5", 5, mode="anchored")["score"] == 1.0


def test_a_rubric_has_one_reward_that_reads_the_last_message(monkeypatch: pytest.MonkeyPatch):
    stand_in = types.ModuleType("verifiers")
    stand_in.Rubric = lambda funcs, weights: (funcs, weights)  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "verifiers", stand_in)
    (function,), weights = verifiers_rubric(weight=0.5)
    assert weights == [0.5]
    assert [function(completion=[{"role": "assistant", "content": text}], answer="5") for text in BOXED] == [1.0, 0.0]
    assert function(completion=[], answer="5", state={}) == 0.0


def test_without_verifiers_the_rubric_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with pytest.raises(MissingExtraError, match=r"pip install verifiers==0\.1\.14"):
        verifiers_rubric()
