from __future__ import annotations

import pytest

from ansatz.rewards.math_answer.extract import extract, stated_answer
from ansatz.rewards.math_answer.letters import asserted_letter
from tests.cpu_time import least_cpu_s


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed{5}.", "5"),
        (r"\boxed{4} no, \boxed{5}", "5"),
        (r"\boxed{4} or \boxed{5}", "4 or 5"),
        (r"\boxed{4}, \boxed{5}, and \boxed{6}", "4, 5, 6"),
        (r"4 or \boxed{5}", "4 or 5"),
        (r"\boxed{5}. The answer is 6.", "5 or 6"),
        (r"\boxed{5}. The answer is 5.", "5"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed 7.", "7"),
        (r"\fbox{7}", "7"),
        ("<answer> 5 </answer>", "5"),
        (r"<answer>it is \boxed{5}</answer>", "5"),
        (r"<think>\boxed{4}</think> \boxed{5}", "5"),
        (r"<answer>5</answer> \boxed{6}", "5 or 6"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{\boxed{5}, 6}", "{5}, 6"),
        (r"\boxed{6, \boxed{5}}", "6, {5}"),
        (r"\boxed{\fbox{5} + 1}", "{5} + 1"),
        (r"\boxed{x = \boxed{5}}", "x = {5}"),
        (r"\boxed{\fbox{\boxed{5}}, 6}", "{{5}}, 6"),
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
        *(r"not \boxed{5}", r"\boxed{5} is wrong", r"\boxed{5}. Wait, no.", r"at least \boxed{5}", r"$-\boxed{5}$"),
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
        "Answer: \\(",
        "Answer $",
        "Therefore, 5 is 5. ",
        "so 5 is our answer. ",
        "A, not ",
        "<|im_end|>",
        "\\boxed{1} or ",
        "no, ",
        "it is wrong ",
        "should be ",
        "答案是8。",
        "8이 ",
        "(",
        "```\n",
        '{"answer": ',
    ],
)
def test_time_is_linear_in_length(mode, piece: str):
    def read(count: int) -> None:
        for join in (False, True):
            extract(piece * count, mode=mode, join_boxes=join)
            extract("\\boxed{8}" + piece * count, mode=mode, join_boxes=join)
        extract(piece * count, mode=mode, choice=True)
        stated_answer(piece * count, gold=True)

    limit_s = 10 * least_cpu_s(lambda: read(3_000)) + 0.02
    # 4 times the length; a quadratic scan would take 16 times as long
    assert least_cpu_s(lambda: read(12_000), enough_s=limit_s) < limit_s


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("Answer $5$", "5"),
        ("**Answer**\n\n\\[5\\]", "5"),
        ("Final Answer: The largest $n$ is 34.", "34"),
        ("Final Answer: Ann left 3 hours ago.", "3 hours"),
        ("Final Answer: She paid $30 in total.", "\\$30"),
        ("Thus $x = 5$ is our answer.", "x = 5"),
        ("Answer: 5<|im_end|>\nAnswer: 6", "5"),
        ("<think>6</think>\n5", "5"),
        ("Work.\nTherefore, the area is $5$.", "5"),
        ("The answer is 5. Wait, it is 6.", None),
        ("Answer $ \n 5 \n $", None),
        ("Therefore, if $n$ is odd, it is 5.", None),
        ("I do not know whether it is 5.", None),
    ],
)
def test_announcements_are_read_and_doubts_are_not(response: str, answer: str | None):
    assert extract(response, mode="anchored") == answer


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("for sure D, it can't be A or B", "D"),
        ("A, B and C are wrong, so D", "D"),
        ("C or D", None),
        ("not D", None),
        ("A, not A", None),
        ("A triangle has three sides, so B", "B"),
    ],
)
def test_a_denied_letter_is_not_asserted(text: str, letter: str | None):
    assert asserted_letter(text) == letter


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"Since $a = 5$, the sum is $\boxed{7}$. Note that $a > 0$.", "7"),
        (r"\boxed{8}.\end{align*}", "8"),
        (r"x \in \boxed{[1,2]}.$", "[1,2]"),
        (r"or $\boxed{20}$ percent.", r"20\%"),
        ("48 + 24 = 72.\n#### 72", "72"),
        (r"-\boxed{5}", r"-\boxed{5}"),
        ("x^2 + 1", "x^2 + 1"),
    ],
)
def test_a_gold_that_is_a_solution_states_its_answer(gold: str, answer: str):
    assert stated_answer(gold, gold=True) == answer


@pytest.mark.parametrize("answer", [r"not \boxed{5}", r"\boxed{5} or 6", r"\boxed{5} or \boxed{6}"])
def test_a_bare_answer_with_a_hedge_around_its_box_is_left_alone(answer: str):
    assert stated_answer(answer) == answer
