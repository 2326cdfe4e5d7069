from __future__ import annotations

import pytest

from ansatz.data.hygiene.filters import why_dropped
from ansatz.data.hygiene.row_filter import held_out
from ansatz.errors import ConfigError
from tests.data.hygiene.problems import problem


@pytest.mark.parametrize(
    ("question", "answer", "why"),
    [
        (r"Find it. $\textbf{(A)}\ 1\qquad\textbf{(B)}\ 2\qquad\textbf{(C)}\ 3$", "2", "multiple_choice"),
        ("Find it.\nA. 1\nB. 2\nC. 3", "B", "multiple_choice"),
        ("Which of the following is prime?", r"\text{(C)}", "multiple_choice"),
        ("Which of the following is a sum of the numbers 2 and 3?", "5", None),
        ("Triangle $ABC$ has f(A) = 1, f(B) = 2 and f(C) = 3. Find f(A) + f(B).", "3", None),
        ("Find the area. [asy] draw((A)--(B)); dot((C)); (A) (B) (C) [/asy]", "3", None),
        ("Is 7 prime?", r"\text{Yes}", "true_false"),
        ("True or false: 4 is prime.", "False.", "true_false"),
        ("How many are true?", "3", None),
        ("Let n be odd. Prove that n^2 is odd.", "-", "proof"),
        ("(a) Find x. (b) Show that x > 1.", "2", "proof"),
        ("Find the sum and prove your claim.", "2", "proof"),
        ("His report needs to show that he passed. What is his grade?", "80", None),
        ("It can be proved that the sum is finite. Find it.", "2", None),
    ],
)
def test_problems_without_a_fair_final_answer_are_dropped(question: str, answer: str, why: str | None) -> None:
    assert why_dropped(problem(question, answer)) == why


def test_only_the_selected_filters_and_the_length_apply() -> None:
    assert why_dropped(problem("Prove it."), drop=["true_false"]) is None
    assert why_dropped(problem("one two three four"), max_words=4) is None
    assert why_dropped(problem("one two three four"), max_words=3) == "too_long"
    with pytest.raises(ConfigError, match=r"'proofs' is unknown. Did you mean 'proof'"):
        why_dropped(problem("?"), drop=["proofs"])
    with pytest.raises(ConfigError, match="max_words = 0"):
        why_dropped(problem("?"), max_words=0)


QUESTIONS = [problem(f"What is {i} + {i}?", id=str(i)) for i in range(4000)]


def sides(**settings: object) -> list[bool]:
    return [held_out(row, **settings) for row in QUESTIONS]  # type: ignore[arg-type]


def test_the_fraction_is_held_out_and_a_larger_one_includes_it() -> None:
    tenth, third = sides(heldout_frac=0.1), sides(heldout_frac=0.3)
    assert abs(sum(tenth) / 4000 - 0.1) < 0.02
    assert abs(sum(third) / 4000 - 0.3) < 0.03
    assert all(more for less, more in zip(tenth, third, strict=True) if less)


def test_a_side_depends_only_on_seed_and_text() -> None:
    assert sides(heldout_frac=0.1) == sides(heldout_frac=0.1) != sides(heldout_frac=0.1, seed=1)
    assert sides(heldout_frac=0.5) != sides(heldout_frac=0.5, by="id")
    same = [problem(text, id=text) for text in ("Find $x+1$.", "find x + 1")]
    for seed in range(50):
        assert len({held_out(row, heldout_frac=0.5, seed=seed) for row in same}) == 1


@pytest.mark.parametrize(
    "settings", [{"heldout_frac": 0.0}, {"heldout_frac": 1.0}, {"heldout_frac": 0.1, "by": "line"}]
)
def test_settings_of_a_split_are_checked(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        sides(**settings)
