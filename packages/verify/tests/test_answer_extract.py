from __future__ import annotations

import pytest
from ansatz_verify import extract, verify
from ansatz_verify.marks import boxed_answer

from tests.cpu_time import least_cpu_s


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed{5}.", "5"),
        (r"\boxed{4} no, \boxed{5}", "5"),
        (r"\boxed{4} or \boxed{5}", "4 or 5"),
        (r"$\boxed{4} \quad\textrm{or}\quad \boxed{5}$", "4 or 5"),
        (r"\boxed{4} \mbox{ and } \boxed{5}", "4, 5"),
        (r"\boxed{4} \mbox{ then } \boxed{5}", "5"),
        (r"\boxed{4}, \boxed{5}, and \boxed{6}", "4, 5, 6"),
        (r"$x = \boxed{4}$, $y = \boxed{6}$", "x =4, y =6"),
        (r"\boxed{x=1}，\boxed{y=2}", "x=1, y=2"),
        (r"\boxed{5} and then \boxed{6}", "6"),
        (r"4 or \boxed{5}", "5"),
        (r"\boxed{5}. The answer is 6.", "5"),
        (r"The answer is not \boxed{5}", "5"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed 7.", "7"),
        (r"\fbox{7}", "7"),
        ("<answer> 5 </answer>", "5"),
        ("<answer>5", "5"),
        (r"<answer>it is \boxed{5}</answer>", "5"),
        (r"<answer>5</answer>, \boxed{6}", "5, 6"),
        (r"\boxed{6} then <answer>5</answer>", "5"),
        (r"<think>\boxed{4}</think> \boxed{5}", "5"),
        (r"\boxed{\boxed{5}}", "{5}"),
        (r"\boxed{x = \boxed{5}}", "x = {5}"),
        (r"$-\boxed{5}$", "-5"),
        (r"$= 2\boxed{5}$", r"2(5)"),
        ("24+6=30\n\\boxed{30}", "30"),
        ("It is\n-\n\\boxed{30}", "30"),
        (r"\boxed{5}\text{ cm}", r"5\text{ cm}"),
        (r"\boxed{5}\%", r"5\%"),
        (r"$\boxed{5}^\circ$", r"5^\circ"),
        (r"\boxed{5} dozens of eggs", "5"),
        (r"So it is \boxed{5}!", "5"),
        (r"**It is \boxed{5}!!** Done.", "5"),
        (r"$\boxed{5}!$", "5!"),
        (r"\[ \boxed{5}! = 120 \]", "5!"),
        (r"\(n = \boxed{5}!\)", "5!"),
    ],
)
def test_strict_reads_the_last_mark_with_its_neighbours_and_what_touches_it(response: str, answer: str):
    assert extract(response) == answer


@pytest.mark.parametrize(
    "response",
    [
        *("", "5", "the answer is 5", "#### 5", r"\boxed{}", r"\boxed{5", r"\boxed{5} and \boxed{", r"\boxedly{5}"),
        *(r"<think>\boxed{5}", r"<think>\boxed{5}</think>", "<answer></answer>", r"<answer>5</answer> <answer>"),
        *(r"8+2=10+\boxed{10}", r"$3-\boxed{5}$", r"x^2*\boxed{5}"),
    ],
)
def test_strict_finds_no_answer_and_never_falls_back_to_an_earlier_one(response: str):
    assert extract(response) is None


def test_anchors_are_read_in_their_order():
    text = "the answer is 1\n#### 2"
    assert extract(text, mode="anchored") == "2"
    assert extract(text + r" \boxed{3}", mode="anchored") == "3"
    assert extract(r"\boxed{", mode="anchored") is None


def test_joined_boxes_are_a_list_and_inner_boxes_belong_to_the_outer_one():
    assert extract(r"\boxed{1}, but \boxed{\boxed{2}}", join_boxes=True) == "1, {2}"


def test_options_about_thoughts():
    assert extract(r"\boxed{5}", require_think=True) is None
    assert extract(r"x</think>\boxed{5}", require_think=True) == "5"
    assert extract(r"<think>\boxed{5}", ignore_unclosed_think=True) == "5"
    assert extract("<think>The answer is 5", mode="anchored") is None


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
        boxed_answer(piece * count, gold=True)

    limit_s = 10 * least_cpu_s(lambda: read(3_000)) + 0.02
    # 4 times the length; a quadratic scan would take 16 times as long
    assert least_cpu_s(lambda: read(12_000), enough_s=limit_s) < limit_s


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("Answer: $5$", "5"),
        ("**Answer:**\n\n\\[5\\]", "5"),
        ("Final Answer: The largest $n$ is 34.", "34"),
        ("**Answer:** There are 1251 students at the school.", "1251"),
        ("**Answer:** The tank holds 1,000,000 drops, which is 50 litres.", "1,000,000"),
        ("**Answer:** 1,000 cents are equivalent to 10 dollars.", "10\\text{ dollars}"),
        ("**Answer:** The roots are \\(x = 3\\) and \\(x = 5\\).", "x = 3, x = 5"),
        ("**Answer:** The price falls by 10%.", "10%"),
        ("The answer is (C) Plane.", "(C) Plane"),
        ("The answer is No, because it does not converge.", "No"),
        ("Answer: 5<|im_end|>\nAnswer: 6", "5"),
        ("It is 5? No. The answer is 7.", "7"),
        ("#### Step 2: Add\n40 + 2 = 42\n\nThe answer is 42.", "42"),
        ("#### 1. Add\n40 + 2 = 42\n\n**42**", "42"),
        ("#### 2.1 Setup\nIt is 40 + 2.\n\n**42**", "42"),
        ("#### (a) First part\nIt is 40 + 2.\n\n**42**", "42"),
        ("#### Yes\n\nBecause 7 is prime.", "Yes"),
        ("The answer is 42.\n\n#### Explanation\nIt is 40 + 2.", "42"),
        ("#### 43\nThat is too much. The answer is 42.", "42"),
        ("#### 42 apples\nThey are 40 + 2.", "42 apples"),
        ("#### 72\n\nQuestion: Tom has 3 pens.\nAnswer: He buys 4 more, so", "72"),
        ("#### 71\nThat is too little. The answer is 72.\n\n**Problem 2**\nTom has 3 pens.\nAnswer: 7", "72"),
        ("The answer is 43.\n#### 42\n", "42"),
        ("<think>6</think>\n5", "5"),
        ("So the sum is\n\n**42**", "42"),
        ("答案是 12。", "12"),
        ("Die Antwort ist 12.", "12"),
        ("La réponse est 12.", "12"),
        ("Ответ: 12", "12"),
        ("答えは 12", "12"),
        ("La respuesta es 12.", "12"),
        ("The answer is not 5.", None),
        ("Maybe the answer is 5.", None),
        ("Is the answer 5 or 6", None),
        ("The answer is 5?", None),
        ("So, the answer is 5. Let me check. " + "And now another way. " * 30, None),
        ("Work with 3 apples and 4 pears.", None),
    ],
)
def test_announcements_are_read_and_doubts_are_not(response: str, answer: str | None):
    assert extract(response, mode="anchored") == answer


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"Since $a = 5$, the sum is $\boxed{7}$. Note that $a > 0$.", "7"),
        (r"\boxed{8}.\end{align*}", "8"),
        (r"x \in \boxed{[1,2]}.$", "[1,2]"),
        (r"-\boxed{5}", "-5"),
        ("x^2 + 1", "x^2 + 1"),
    ],
)
def test_a_gold_that_is_a_solution_states_its_answer(gold: str, answer: str):
    assert boxed_answer(gold, gold=True) == answer


@pytest.mark.parametrize(
    ("gold", "response", "right"),
    [
        (r"\frac{3\pi}{2}, 1", r"\boxed{\theta = \frac{3\pi}{2}\qquad f(\frac{2\pi}{3}) = 1}", True),
        (r"\frac{3\pi}{2}, 1", r"\boxed{\theta = \frac{3\pi}{2}}, \boxed{f(0) = 1}", True),
        (r"\frac{3\pi}{2}, 1", r"\boxed{\theta = 1, f = \frac{3\pi}{2}}", False),
        ("-3,0", r"b = \boxed{-3} and c = \boxed{0}", True),
        ("-3,0", r"b = \boxed{-3} and c = \boxed{1}", False),
        ("m=3, n=7", r"\boxed{(n, m) = (3, 7)}", False),
        ("ACD", r"\boxed{A、C、D}", True),
        ("ACD", r"\boxed{\text{A, C and D}}", True),
        ("ACD", r"\boxed{A, C}", False),
        ("B", r"\boxed{B\text{ (6)}}", True),
        ("A", r"\boxed{\text{A. }-\frac{1}{21}}", True),
        ("B", r"\boxed{B \text{ or } C}", False),
        ("B", r"\boxed{B, C}", False),
        (r"\frac12", r"\boxed{e = \frac{1}{2}}", True),
        ("2", r"\boxed{i = 2}", True),
        ("3", r"\boxed{\pi = 3}", False),
        ("15400", r"\boxed{15400}, \boxed{15,\!400}", True),
        ("5", r"\boxed{5} or \boxed{6}", False),
    ],
)
def test_parts_choices_and_names_are_read_as_people_write_them(gold: str, response: str, right: bool):
    assert verify(gold, response).correct is right


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("1/3", r"\int_0^1 x^2 dx"),
        ("5050", r"\sum_{k=1}^{100} k"),
        ("6", r"\gcd(54, 24)"),
        ("2", r"2^{100} \bmod 7"),
        ("391", r"17 \cdot 23"),
        ("391", "17×23"),
        ("391", r"17\ \cdot\,23"),
        ("100", r"12.5 \times 8"),
        ("6", r"\operatorname{gcd}(54, 24)"),
        ("6", "gcd(54, 24)"),
        ("12", r"\text{lcm}(4, 6)"),
        ("3", "min(3, 5)"),
        (r"10\text{ minutes}", r"\min(10, 12)"),
        ("5050", "∑_{k=1}^{100} k"),
        ("-2", r"\det \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}"),
    ],
)
def test_the_question_handed_back_is_not_paid_in_training(gold: str, answer: str):
    assert not verify(gold, f"\\boxed{{{answer}}}")
    assert verify(answer, f"\\boxed{{{answer}}}")


def test_a_chain_that_works_the_question_out_is_paid_in_training():
    assert verify("1/3", r"\boxed{\int_0^1 x^2 dx = \frac13}")
    assert not verify("1/3", r"\boxed{\frac13 = \int_0^1 x^2 dx}")


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("1024", "2^{10}"),
        (r"\sqrt{18}", r"3\sqrt{2}"),
        ("60", r"2^2 \cdot 3 \cdot 5"),
        ("7", "3+4"),
        ("2×3×7", r"2 \times 3 \times 7"),
        (r"So it is \boxed{2 \cdot 3 \cdot 7}.", r"2 \cdot 3 \cdot 7"),
        (r"\text{max}(a, b)", r"\operatorname{max}(a, b)"),
        (r"\gcd(a, b)", "gcd(a, b)"),
        ("3", r"3 = y_{\text{max}}"),
        (r"10\text{ minutes}", r"10\text{ min}"),
    ],
)
def test_what_people_leave_standing_is_paid_in_training(gold: str, answer: str):
    assert verify(gold, f"\\boxed{{{answer}}}")


def test_evaluation_forgives_what_training_does_not():
    assert verify("10", "The answer is 10%.", mode="anchored")
    assert not verify("10", r"\boxed{10\%}")
    assert verify("True", "The answer is Yes.", mode="anchored")
    assert not verify("True", "The answer is No.", mode="anchored")
    assert verify(r"\text{no solution}", r"\boxed{\text{There are no real solutions}}")


def test_an_option_that_is_null_is_the_default_of_its_mode():
    assert not verify("391", r"\boxed{17 \cdot 23}", worked_out=None)
    assert verify("391", r"\boxed{17 \cdot 23}", worked_out=False)
    assert verify("10", "The answer is 10%.", mode="anchored", percent_as_number=None)
    assert not verify("10", "The answer is 10%.", mode="anchored", percent_as_number=False)
