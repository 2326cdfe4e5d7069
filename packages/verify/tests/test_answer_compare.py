"""The normal form, sets and the options. What is equal is worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ansatz_verify import Reason, equivalent, verify
from ansatz_verify.decide import compare_values
from ansatz_verify.grade import ALGEBRA_TARGET, ask_worker
from ansatz_verify.options import DEFAULT
from ansatz_verify.parse import parse_answer
from ansatz_verify.pool import WorkerPool


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    made = WorkerPool(ALGEBRA_TARGET, timeout_s=5.0)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("gold", "answer", "stage"),
    [
        ("5", "5", "string"),
        ("5", "5.0", "number"),
        (r"\frac{1}{2}", "0.5", "number"),
        ("x^2-1", "(x-1)(x+1)", "structure"),
        (r"2\sqrt{3}", r"\sqrt{12}", "structure"),
        ("(1,2)", "(1, 2.0)", "structure"),
        (r"\sec^2 x", r"1+\tan^2 x", "algebra"),
    ],
)
def test_each_pair_is_settled_by_the_cheapest_stage_that_can(gold: str, answer: str, stage: str, pool: WorkerPool):
    verdict = equivalent(gold, answer, pool=pool)
    assert verdict
    assert verdict.stage == stage


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [
        (r"\varphi", r"\phi", True),
        ("2φ+1", r"2\varphi+1", True),
        (r"\vartheta", "θ", True),
        (r"\varepsilon^2", r"\epsilon^2", True),
        (r"\varphi", r"\psi", False),
        (r"\varepsilon", "e", False),
    ],
)
def test_the_two_shapes_of_a_greek_letter_are_one_letter(gold: str, answer: str, same: bool):
    assert bool(equivalent(gold, answer)) is same


@pytest.mark.parametrize(
    ("gold", "answer"),
    [  # from solutions of MATH and OlympiadBench
        (r"\frac{10}{3}", r"\frac{|(2)(2)+(1)(1)+(2)(0)+5|}{\sqrt{2^2+1^2+2^2}} = \frac{10}{3}"),
        (r"\frac{5}{2}", r"\sqrt{6\frac14}=\frac{\sqrt{25}}{\sqrt{4}}=\frac52"),
        ("-1", r"i^{-26} = 1/i^{26} = 1/(i^{24}\cdot i^2) = 1/[1\cdot (-1)] = -1"),
        (r"44^\circ", r"C=180^{\circ}-(A+B)=44^{\circ}"),
        ("-2", r"m = \dfrac{y_2-y_1}{x_2-x_1} = \dfrac{-5-5}{2-(-3)} = -2"),
        ("192", r"[ABC] = \frac12\cdot AD\cdot BC = \frac12\cdot12\cdot32 = 192"),
        ("28", r"\dbinom{8}{2} = \dfrac{8!}{2!6!}=28"),
    ],
)
def test_a_chain_from_a_name_to_its_value_states_the_value(gold: str, answer: str, pool: WorkerPool):
    assert equivalent(gold, answer, pool=pool)
    assert not equivalent("17", answer, pool=pool)
    assert not equivalent(gold, f"{answer} = 17", pool=pool)


def test_answers_without_functions_start_no_worker():
    idle = WorkerPool(ALGEBRA_TARGET)
    for gold, answer in [
        ("5", "6"),
        (r"2\sqrt{10}", "2"),
        ("x^2+1", "x^2-1"),
        (r"\frac{3+\sqrt5}{2}", r"\frac{3-\sqrt5}{2}"),
        ("(0,1)", "[0,1)"),
    ]:
        assert not equivalent(gold, answer, pool=idle)
    assert idle.started == 0


@pytest.mark.parametrize(
    ("gold", "answer", "reason"),
    [
        ("5", "6", Reason.DIFFERENT),
        ("5", r"5 \text{ or } 6", Reason.HEDGED),
        ("5", "5, 6", Reason.HEDGED),
        ("6", "5=6", Reason.HEDGED),
        ("5", r"\unknown", Reason.UNPARSED),
        ("5", "9" * 3_000, Reason.UNPARSED),
        ("5", "", Reason.NO_ANSWER),
        (r"\boxed{}", r"\boxed{}", Reason.NO_ANSWER),
        (r"\boxed{}", "5", Reason.DIFFERENT),
        ("", "5", Reason.DIFFERENT),
    ],
)
def test_reasons(gold: str, answer: str, reason: Reason):
    assert equivalent(gold, answer).reason is reason


def test_a_worker_that_misses_its_deadline_is_a_timeout():
    """The first use of sympy takes a tenth of a second, far longer than the hundredth that this pool allows."""
    short = WorkerPool(ALGEBRA_TARGET, timeout_s=0.101)
    short.start()
    assert equivalent(r"\frac{1}{3}", r"\int_0^1 x^2 dx", pool=short).reason is Reason.TIMEOUT
    short.close()


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("1/3", r"\int_0^1 x^2 dx"),
        ("2", r"\sum_{k=0}^{\infty} \frac{1}{2^k}"),
        (r"\frac{n(n+1)}{2}", r"\sum_{k=1}^{n} k"),
        ("n!", r"\prod_{k=1}^{n} k"),
    ],
)
def test_sums_and_integrals_that_surely_end_are_worked_out(gold: str, answer: str, pool: WorkerPool):
    assert equivalent(gold, answer, pool=pool)


@pytest.mark.parametrize(
    "hard",
    [
        r"\int_0^1 \frac{\sin(x^x)}{\ln(x+\cos x)} dx",
        r"\int_0^{\infty} \frac{x^3}{e^x-1} dx",
        r"\sum_{n=1}^{\infty} \frac{1}{n^{3/2}+\sin n}",
        r"\prod_{k=1}^{\infty} (1+\frac{1}{k^3})",
    ],
)
def test_what_sympy_might_search_for_is_refused_without_a_search(hard: str, pool: WorkerPool):
    """sympy works on each of these for seconds; the verdict must not depend on a deadline."""
    assert equivalent(r"\frac{\pi^4}{15}", hard, pool=pool).reason is Reason.UNPARSED


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [
        (r"f(\sin^2 x + \cos^2 x)", "f(1)", True),
        (r"f(x+1) + \sin x", r"\sin x + f(1+x)", True),
        ("f(2x)", "2f(x)", False),
        ("f(x)", "g(x)", False),
        ("f(x)", "f(y)", False),
    ],
)
def test_unknown_functions_are_equal_for_equal_arguments_only(gold: str, answer: str, same: bool, pool: WorkerPool):
    assert bool(equivalent(gold, answer, pool=pool)) is same


def test_a_text_beyond_the_limit_still_equals_itself():
    assert equivalent("1" * 100_000, "1" * 100_000)
    assert not equivalent("1" * 100_000, "1" * 99_999 + "2")


@pytest.mark.parametrize(
    ("option", "gold", "answer"),
    [
        ({"percent_as_number": True}, "10", r"10\%"),
        ({"digits": 3, "rounded_decimals": True}, r"\pi", "3.14"),
        ({"digits": 2, "rounded_decimals": True}, "0.29", "0.2902"),
        ({"based_values": True}, "204_5", "54"),
        ({"decimal_comma": True}, "3.14", "3,14"),
        ({"decimal_comma": True}, "1234.5", "1.234,5"),
        ({"locale_thousands": True}, "1234567", "1'234'567"),
        ({"locale_thousands": True}, "1234567", "12,34,567"),
        ({"units": "ignore"}, r"10\text{ km}", r"10\text{ miles}"),
        ({"number_words": True}, "42", r"\text{forty-two}"),
    ],
)
def test_an_option_pays_what_the_default_does_not(option: dict[str, object], gold: str, answer: str, pool: WorkerPool):
    assert equivalent(gold, answer, pool=pool, **option)
    assert not equivalent(gold, answer, pool=pool)


@pytest.mark.parametrize(
    ("option", "gold", "answer"),
    [
        ({"ordered": True}, "1,2", "2,1"),
        ({"reduced": True}, r"\frac12", r"\frac24"),
        ({"same_form": True}, "(x-1)(x+1)", "x^2-1"),
        ({"units": "same"}, r"1\text{ km}", r"1000\text{ m}"),
        ({"case_sensitive": True}, r"\text{Tuesday}", "tuesday"),
    ],
)
def test_an_option_refuses_what_the_default_pays(option: dict[str, object], gold: str, answer: str, pool: WorkerPool):
    assert not equivalent(gold, answer, pool=pool, **option)
    assert equivalent(gold, answer, pool=pool)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ordred": True}, "Did you mean 'ordered'"),
        ({"digits": 0}, "whole number of 1 or more"),
        ({"digits": True}, "whole number of 1 or more"),
        ({"reduced": []}, "must be a single value"),
        ({"reduced": "yes"}, "must be true or false"),
        ({"units": "any"}, "same, convert or ignore"),
    ],
)
def test_wrong_options_are_config_errors(settings: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        verify("5", r"\boxed{5}", **settings)


def test_the_pure_stages_give_the_same_verdict_as_the_worker(pool: WorkerPool):
    gold, answer = (parse_answer(text).value for text in ("x+1", "1+x"))
    assert gold is not None
    assert answer is not None
    assert compare_values(gold, answer, DEFAULT, lambda *_: False) is Reason.EQUAL
    assert ask_worker(pool, gold, answer, DEFAULT) is Reason.EQUAL
