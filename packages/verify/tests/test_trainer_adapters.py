"""The verifier, called as TRL, verl and verifiers call a reward. The real packages: tests/e2e/test_trainers.py."""

import asyncio
from types import SimpleNamespace

import pytest
from ansatz_verify.adapters import trl_reward, verifiers_reward, verl_compute_score

BOXED = [r"\boxed{5}", r"\boxed{6}"]
CHATS = [[{"role": "assistant", "content": text}] for text in BOXED]


def test_trl_gets_one_float_per_completion_with_text_and_with_messages():
    reward = trl_reward()
    columns = {"answer": ["5", 5], "completion_ids": [[1], [1, 2]], "log_metric": print}
    assert reward(prompts=["q", "q"], completions=BOXED, **columns) == [1.0, 0.0]
    assert reward(prompts=CHATS, completions=CHATS, **columns) == [1.0, 0.0]
    assert trl_reward(answer_column="gold", mode="anchored")(prompts=["q"], completions=["#### 5"], gold=["5"]) == [1.0]


def test_what_the_model_did_not_write_is_paid_nothing():
    tool, empty = [{"role": "tool", "content": BOXED[0]}], [{"role": "assistant", "content": None}]
    assert trl_reward()(prompts=["q"] * 4, completions=[tool, empty, [], None], answer=["5"] * 4) == [0.0] * 4


def test_the_thought_of_a_message_is_not_its_answer():
    message = [{"role": "assistant", "reasoning_content": BOXED[0], "content": BOXED[1]}]
    assert trl_reward()(prompts=["q"] * 2, completions=[message] * 2, answer=["5", "6"]) == [0.0, 1.0]


def test_a_missing_column_and_a_wrong_option_are_named():
    with pytest.raises(ValueError, match=r"no column 'answer'; there are solution\. Set answer_column"):
        trl_reward()(prompts=["q"], completions=["5"], solution=["5"])
    with pytest.raises(ValueError, match="mode = 'strikt'"):
        trl_reward(mode="strikt")
    with pytest.raises(ValueError, match=r"the answer of a row is \{'a': 5\}; expected a text or a number"):
        trl_reward()(prompts=["q"], completions=["5"], answer=[{"a": 5}])


def test_verl_gets_a_score_with_the_options_of_the_verifier():
    result = verl_compute_score("gsm8k", r"so \boxed{\frac{1}{2}}", 0.5, extra_info={"index": 1})
    assert result == {"score": 1.0, "acc": True, "pred": r"\frac{1}{2}"}
    assert verl_compute_score("gsm8k", "#### 5", 5)["score"] == 0.0
    assert verl_compute_score("gsm8k", "#### 5", 5, mode="anchored")["score"] == 1.0
    with pytest.raises(ValueError, match="ground_truth is None; expected a text or a number"):
        verl_compute_score("gsm8k", BOXED[0], None)


def test_verifiers_hands_over_a_task_with_an_answer():
    trace = SimpleNamespace(last_reply=BOXED[0])
    assert asyncio.run(verifiers_reward(SimpleNamespace(answer="5"), trace)) == 1.0
    assert asyncio.run(verifiers_reward(SimpleNamespace(answer=6), trace)) == 0.0
    with pytest.raises(ValueError, match="SimpleNamespace has no field `answer`"):
        asyncio.run(verifiers_reward(SimpleNamespace(), trace))
