"""Multiple choice: a question with its correct and wrong answers gets lettered options, and a letter as its gold.

Rows have the fields of GPQA (arXiv:2311.12022): "Correct Answer" and "Incorrect Answer 1", 2, 3. The order of the
options depends only on the texts, so it is the same for every model, run and machine. It varies between questions: if
the correct answer always came first, a model that prefers the letter A would seem to know it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from string import ascii_uppercase

from ansatz.data.rows import Row
from ansatz.types import Problem
from ansatz.visible import whole

CORRECT, WRONG = "Correct Answer", "Incorrect Answer"
REQUEST = "Answer with the letter of the right option."


def with_choices(problem: Problem, row: Row, answer_key: str) -> Problem:
    """Return the problem with the row's options and the letter of the correct one.

    Unchanged if the answer comes from another field than "Correct Answer", or if the row has no field for wrong
    answers. Raise RowError if two options are the same or none is wrong.
    """
    names = [name for name in row.values if is_choice(name)]
    if answer_key.casefold() != CORRECT.casefold() or not names:
        return problem
    values = (row.values[name] for name in names)
    wrong = [text for value in values if value is not None and (text := str(value).strip())]
    options = [problem.answer.strip(), *wrong]
    if not wrong or len(set(options)) < len(options):
        row.fail(f"the options are {options}; expected at least two, all different. Repair the row.")
    order = shuffled(problem.question, options)
    lines = [f"{letter}) {option}" for letter, option in zip(ascii_uppercase, order, strict=False)]
    return replace(
        problem,
        question="\n".join([problem.question, "", *lines, "", REQUEST]),
        answers=(ascii_uppercase[order.index(options[0])],),
    )


def is_choice(name: str) -> bool:
    """Return whether a field holds a wrong answer."""
    return name.strip().casefold().startswith(WRONG.casefold())


def without_choices(question: str) -> str:
    """Return the question without the options that `with_choices` adds, so that it can be compared with open
    questions."""
    start = question.find("\n\nA) ")
    return question[:start] if start >= 0 and question.endswith(f"\n\n{REQUEST}") else question


def shuffled(question: str, options: Sequence[str]) -> list[str]:
    """Return the options in an order that depends only on their texts and the question."""
    return sorted(options, key=lambda option: hashlib.sha256(whole(f"{question}\0{option}").encode()).digest())
