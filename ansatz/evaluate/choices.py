"""Multiple choice: a question with its correct and wrong answers gets lettered options, and a letter as its gold.

Rows have the fields of GPQA (arXiv:2311.12022): "Correct Answer" and "Incorrect Answer 1", 2, 3. The order of the
options depends only on the texts, so it is the same for every model, run and machine. It varies between questions: if
the correct answer always came first, a model that prefers the letter A would seem to know it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import ascii_uppercase
from typing import Any

from ansatz.errors import DataError
from ansatz.types import Problem

CORRECT, WRONG = "Correct Answer", "Incorrect Answer"
REQUEST = "Answer with the letter of the right option."


def with_choices(problem: Problem, row: Mapping[str, Any]) -> Problem:
    """The problem with the row's options and the letter of the correct one. Unchanged if the row has no options.

    DataError if two options are the same or none is wrong.
    """
    if CORRECT not in row:
        return problem
    wrong = [str(value).strip() for key, value in row.items() if key.startswith(WRONG) and str(value or "").strip()]
    options = [problem.answer.strip(), *wrong]
    if not wrong or len(set(options)) < len(options):
        raise DataError(
            f"problem {problem.id!r} has the options {options}; expected at least two, all different. Repair the row."
        )
    order = shuffled(problem.question, options)
    lines = [f"{letter}) {option}" for letter, option in zip(ascii_uppercase, order, strict=False)]
    return replace(
        problem,
        question="\n".join([problem.question, "", *lines, "", REQUEST]),
        answer=ascii_uppercase[order.index(options[0])],
    )


def shuffled(question: str, options: Sequence[str]) -> list[str]:
    """The options in an order that depends only on their texts and the question."""
    return sorted(options, key=lambda option: hashlib.sha256(f"{question}\0{option}".encode()).digest())
