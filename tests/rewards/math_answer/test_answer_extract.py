from __future__ import annotations

import time

import pytest

from ansatz.rewards.math_answer.extract import extract


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed{5}.", "5"),
        (r"\boxed{4} no, \boxed{5}", "5"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed 7.", "7"),
        (r"\fbox{7}", "7"),
        ("<answer> 5 </answer>", "5"),
        (r"<answer>it is \boxed{5}</answer>", "5"),
        (r"<think>\boxed{4}</think> \boxed{5}", "5"),
        (r"<answer>5</answer> \boxed{6}", "5"),
    ],
)
def test_strict_reads_the_last_tag_or_box(response: str, answer: str):
    assert extract(response) == answer


@pytest.mark.parametrize(
    "response",
    [
        *(
            "",
            "5",
            "the answer is 5",
            "#### 5",
            r"\boxed{}",
            r"\boxed{5",
            r"\boxed{5} and \boxed{",
            r"<think>\boxed{5}",
        ),
        *(r"<think>\boxed{5}</think>", "<answer></answer>", "<answer>5", r"\boxedly{5}"),
    ],
)
def test_strict_finds_no_answer_and_never_falls_back_to_an_earlier_one(response: str):
    assert extract(response) is None


def test_anchors_are_read_in_their_order():
    text = "the answer is 1\n#### 2"
    assert extract(text, mode="anchored") == "2"
    assert extract(text + r" \boxed{3}", mode="anchored") == "3"
    assert extract(text + r" \boxed{3} <answer>4</answer>", mode="anchored") == "4"


def test_a_formula_after_an_anchor_may_be_followed_by_a_harmless_remark_only():
    assert extract("The answer is $5$ as we saw.", mode="anchored") == "5"
    assert extract("The answer is $5$ or $6$.", mode="anchored") == "$5$ or $6$"


def test_joined_boxes_are_a_list_and_inner_boxes_belong_to_the_outer_one():
    assert extract(r"\boxed{1}, \boxed{\boxed{2}} \boxed{", join_boxes=True) == r"1, \boxed{2}"


def test_options_about_thoughts():
    assert extract(r"\boxed{5}", require_think=True) is None
    assert extract(r"x</think>\boxed{5}", require_think=True) == "5"
    assert extract(r"<think>\boxed{5}", ignore_unclosed_think=True) == "5"


@pytest.mark.parametrize("mode", ["strict", "anchored", "last_number"])
@pytest.mark.parametrize(
    "piece",
    [
        "\\boxed{",
        "\\boxed{1}",
        "<answer>",
        "</answer>",
        "the answer is ",
        "#### ",
        "$",
        "{",
        " ",
        "1,",
        "a",
        "</think>",
        "<think>",
    ],
)
@pytest.mark.parametrize("join", [False, True])
def test_time_is_linear_in_length(mode, piece: str, join: bool):
    begin = time.thread_time()
    extract(piece * 50_000, mode=mode, join_boxes=join)
    assert time.thread_time() - begin < 2.0  # of this thread alone; quadratic would take minutes
