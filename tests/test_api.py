"""The public interface: its page runs, its names are those of the page, and its loss is the one of the objectives."""

from __future__ import annotations

import doctest
import json
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from toy_runs import REPOSITORY

import ansatz
from ansatz.errors import ConfigError

PAGE = REPOSITORY / "docs" / "api.md"


def test_every_example_of_the_page_runs(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    failed, attempted = doctest.testfile(str(PAGE), module_relative=False)
    assert attempted > 15
    assert failed == 0


def test_every_public_name_is_on_the_page_and_can_be_imported():
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in ansatz.__all__ if not hasattr(ansatz, name)] == []
    assert set(ansatz.__all__) - {"Policy", "PolicyLoss", "TrainedRun"} <= {
        word
        for line in text.splitlines()
        if line.startswith("| `")
        for word in line.replace("`", "").replace(",", "").split()
    }
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ansatz.nothing


def test_grading_and_estimates_load_no_torch():
    code = (
        "import ansatz, json, sys\nfirst = sorted({'torch', 'numpy', 'pydantic'} & set(sys.modules))\n"
        "ansatz.verify('5', '5'); ansatz.pass_at_k([[1, 0]], k=1); ansatz.RewardResult(value=1.0)\n"
        "print(json.dumps([first, 'torch' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert json.loads(done.stdout) == [[], False], done.stderr


def step(**changes):
    """Three rollouts of two prompts, the last of them alone; the second is one token shorter."""
    arguments = {
        "policy_logp": torch.tensor([[-1.0, -2.0], [-1.0, 50.0], [-0.5, -0.5]], dtype=torch.float64),
        "old_logp": torch.tensor([[-1.5, -2.0], [-2.0, -50.0], [-0.5, -0.5]], dtype=torch.float64),
        "rewards": torch.tensor([1.0, 0.0, 1.0]),
        "groups": torch.tensor([9, 9, 4]),
        "mask": torch.tensor([[1, 1], [1, 0], [1, 1]]),
    } | changes
    return ansatz.policy_loss(
        arguments.pop("policy_logp"), arguments.pop("old_logp"), arguments.pop("rewards"), **arguments
    )


def test_the_loss_of_a_clipped_step_is_the_one_computed_by_hand():
    # Advantages reward - mean: 0.5, -0.5, and 0 for the prompt with one rollout. Ratios: e^0.5, 1; e; 1, 1.
    # min(ratio A, clip(ratio, 0.8, 1.2) A): row 0: 0.5 x 1.2 (clipped) and 0.5; row 1: -0.5 e (not clipped: A < 0).
    # Means of rows: 0.55 and -0.5 e and 0; the loss is minus their mean.
    result = step(algorithm={"preset": "grpo", "advantage": "group_mean"})
    e = torch.e
    assert result.loss.item() == pytest.approx(-(0.55 - 0.5 * e) / 3)
    assert result.metrics["clip_frac"] == pytest.approx(1 / 5)
    assert result.metrics["ratio_mean"] == pytest.approx((e**0.5 + 1 + e + 1 + 1) / 5)
    assert result.metrics["ratio_max"] == pytest.approx(e)
    # the mean of -log ratio
    assert result.metrics["approx_kl"] == pytest.approx(-1.5 / 5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_over_long_responses_keep_their_small_terms(dtype: torch.dtype) -> None:
    """5,000 equal terms: in bfloat16, their sum would stay 256 times a term, and in float16 2,048 times."""
    policy = torch.full((2, 5000), -1.0, dtype=dtype, requires_grad=True)
    old = torch.full((2, 5000), -1.0 - 2**-7, dtype=dtype)
    given = {"groups": torch.zeros(2, dtype=torch.long), "mask": torch.ones(2, 5000, dtype=torch.bool)}
    result = ansatz.policy_loss(policy, old, torch.tensor([1.0, 0.0]), algorithm="gspo", **given)
    assert result.metrics["approx_kl"] == pytest.approx(-(2**-7), rel=1e-3)
    assert result.metrics["ratio_max"] == pytest.approx(torch.tensor(2**-7).exp().item(), rel=1e-3)
    result.loss.backward()
    assert policy.grad is not None
    assert policy.grad.abs().sum() > 0


def test_a_kl_to_the_reference_is_added():
    # k3: exp(ref - policy) - (ref - policy) - 1 at every token; with ref = policy + ln 2: 2 - ln 2 - 1. All rows have
    # the same mean, so the term is 0.5 x that.
    spec = {"preset": "grpo", "advantage": "group_mean"}
    plain = step(algorithm=spec).loss.item()
    policy = torch.tensor([[-1.0, -2.0], [-1.0, 50.0], [-0.5, -0.5]], dtype=torch.float64)
    ln2 = torch.log(torch.tensor(2.0, dtype=torch.float64))
    with_kl = step(algorithm={**spec, "kl_coef": 0.5}, ref_logp=policy + ln2)
    assert with_kl.loss.item() - plain == pytest.approx(0.5 * (1 - ln2.item()))
    assert with_kl.metrics["kl_ref"] == pytest.approx(1 - ln2.item())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": {"kl_coef": 0.1}}, "Pass ref_logp"),
        ({"algorithm": "ppo"}, "needs a critic"),
        ({"algorithm": {"entropy_coef": 0.1}}, "takes no entropies"),
        ({"algorithm": {"masks": "not_truncated"}}, "truncated_N"),
        ({"algorithm": "dr_grpo"}, "give a number, such as algorithm: {weights: {max_tokens: 1024}}"),
        ({"rewards": torch.ones(2)}, r"rewards has the shape \(2,\); expected one per rollout, \[3\]"),
        ({"mask": torch.ones(3)}, r"mask has the shape \(3,\)"),
        ({"old_logp": torch.zeros(3, 1)}, r"log-probs have the shape \(3, 1\), but mask has \(3, 2\)"),
    ],
)
def test_what_the_loss_cannot_take_is_said_in_a_sentence(changes, message):
    with pytest.raises(ConfigError, match=message):
        step(**changes)


def test_sample_refuses_a_single_string_and_an_unknown_option():
    with pytest.raises(ConfigError, match="Give a list of prompts"):
        ansatz.sample(None, "2 + 3?")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="temperatur"):
        ansatz.sample(None, ["2 + 3?"], temperatur=1.0)  # pyright: ignore[reportArgumentType]


BOXED = r"so \boxed{5}"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: ansatz.verify("5", BOXED, mode="Strict"), r"mode = 'Strict'; expected .*Did you mean 'strict'\?"),
        (lambda: ansatz.verify("5", BOXED, mode=None), "mode = None; expected 'strict'"),
        (lambda: ansatz.verify("5", BOXED, join_boxes="no"), "join_boxes = 'no'; expected True or False"),
        (lambda: ansatz.verify("5", BOXED, digits="4"), "digits = '4'; expected an integer"),
        (lambda: ansatz.verify("5", BOXED, units=None), "units = None; expected a text"),
        (lambda: ansatz.verify("5", BOXED, strictt=1), "no option 'strictt'"),
        (lambda: ansatz.verify({"value": 5}, BOXED), r"the gold answer is \{'value': 5\}; .*Give the field"),
        (lambda: ansatz.verify(["5"], BOXED), r"the gold answer is \['5'\]; expected a text or a number"),
        (lambda: ansatz.verify(None, BOXED), "the gold answer is None; expected"),
        (lambda: ansatz.verify(True, BOXED), "the gold answer is True; expected"),
        (lambda: ansatz.verify(float("nan"), BOXED), "the gold answer is nan; expected"),
        (lambda: ansatz.verify("5", None), "the response is None; expected a text"),
        (lambda: ansatz.equivalent("5", {}), r"the answer is \{\}; expected a text or a number"),
        (lambda: ansatz.equivalent("5", "5", ordered=1), "ordered = 1; expected True or False"),
        (
            lambda: ansatz.load_policy("m", dtype="float16"),
            "dtype = 'float16'; .*Did you mean 'bfloat16'",
        ),
        (lambda: ansatz.load_policy("m", device="gpu"), "device = 'gpu'; expected a device such as 'cpu'"),
        (lambda: ansatz.load_policy(5), "path = 5; expected a folder"),
        (lambda: ansatz.sample("model", ["q"]), r"policy = 'model'; expected what ansatz\.load_policy returns"),
        (lambda: ansatz.train_recipe("x", fresh="no"), "fresh = 'no'; expected True or False"),
        (lambda: ansatz.train_recipe("x", overlays="o.yaml"), "overlays = 'o.yaml' is a single file"),
        (lambda: step(rewards=[1.0, 0.0, 1.0]), r"policy_loss: rewards = \[1.0, 0.0, 1.0\]; expected a tensor"),
    ],
)
def test_every_function_refuses_what_it_would_not_understand(call, sentence):
    with pytest.raises(ConfigError, match=sentence):
        call()


@pytest.mark.parametrize("k", ["2", 1.0, True])
def test_k_is_an_integer_and_verdicts_are_right_or_wrong(k):
    with pytest.raises(ValueError, match="expected an integer"):
        ansatz.pass_at_k([[1, 0]], k=k)
    with pytest.raises(ValueError, match="expected whether each sample is correct"):
        ansatz.pass_at_k([[0.5, 0]], k=1)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (5, "5"),
        (-3, "-3"),
        (0.5, r"\frac{1}{2}"),
        (1e-7, "0.0000001"),
        (2.0, "2"),
        (1e22, "10^22"),
        (Fraction(3, 4), "0.75"),
        (Decimal("1.50"), "1.5"),
        (np.int64(7), "7"),
        (np.float32(0.1), "0.1"),
    ],
)
def test_numbers_are_gold_answers(gold, answer):
    assert ansatz.verify(gold, rf"\boxed{{{answer}}}").correct
    assert ansatz.equivalent(gold, answer).correct
    assert not ansatz.verify(gold, r"\boxed{99}").correct
