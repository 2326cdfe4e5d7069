"""Problems for tests, made of a question and little else."""

from __future__ import annotations

from ansatz.types import Problem


def problem(question: str, answer: str = "1", *, id: str = "p", solution: str | None = None) -> Problem:
    return Problem(id=id, question=question, answers=(answer,), source="test", split="train", solution=solution)
