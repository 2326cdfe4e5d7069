"""The reasoning steps of a response: where they end, which of them are right, and the tokens at which they end.

A step is a line of the response that is not blank, together with the line ends after it. For example,
"12+3=15\\n15*2=30\\n\\\\boxed{30}" has three steps, which end at the characters 8, 16 and 26.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ansatz.errors import DataError
from ansatz.types import Problem

_STEP = re.compile(r"\s*\S[^\n]*\n*")
_EQUATION = re.compile(r"(\d+)([-+*/])(\d+)=(\d+)")
_BOX = re.compile(r"\\boxed\{(.*)\}")
COMMUTATIVE = "+*"


def step_ends(text: str) -> tuple[int, ...]:
    """The number of characters up to the end of each step, in rising order. A text without a step has none."""
    return tuple(match.end() for match in _STEP.finditer(text))


def exact_labels(problem: Problem, text: str) -> list[bool]:
    """Whether each step of a response is right, by the generator's true equations (`meta["steps"]`).

    Step n is right if it is the n-th true equation, or after the last of them the boxed answer. Everything after the
    first wrong step is wrong too, because it builds on a wrong number. `check_steps` must accept the problem.
    """
    true_steps, labels, right = problem.meta["steps"], list[bool](), True
    for index, match in enumerate(_STEP.finditer(text)):
        line = match.group().strip()
        if index < len(true_steps):
            right = right and _same_equation(line, true_steps[index])
        else:
            box = _BOX.fullmatch(line)
            right = right and index == len(true_steps) and box is not None and box.group(1) == problem.answer
        labels.append(right)
    return labels


def check_steps(problems: Iterable[Problem]) -> None:
    """DataError for a problem whose steps cannot be checked."""
    for problem in problems:
        if "steps" not in problem.meta:
            raise DataError(
                f"problem {problem.id!r} of {problem.source!r} has no meta.steps, so its reasoning steps cannot be "
                "checked. Use the source word_problems, or labels from rollouts (reward_model.labels: hard)."
            )


def first_error(labels: Sequence[bool]) -> int | None:
    """The index of the first wrong step; None if every step is right."""
    return next((index for index, right in enumerate(labels) if not right), None)


def _same_equation(line: str, equation: Sequence[Any]) -> bool:
    match = _EQUATION.fullmatch(line)
    if match is None:
        return False
    left, op, right, value = match.groups()
    written, true = [left, right], [str(equation[0]), str(equation[2])]
    same_terms = written == true or (op in COMMUTATIVE and written == true[::-1])
    return op == equation[1] and value == str(equation[3]) and same_terms


class EncodedSteps(NamedTuple):
    """Prompt and response in the tokens of a reward model.

    token_ids: of both together. num_prompt: how many of them belong to the prompt only.
    at: for each step, the index in token_ids of the token with its last character. A model reads its value there.
    """

    token_ids: tuple[int, ...]
    num_prompt: int
    at: tuple[int, ...]


def encode_steps(tokenizer: Any, prompt: str, response: str) -> EncodedSteps:
    """Tokenise prompt and response as one text, as `rewards.learned` does. tokenizer: a fast one of transformers."""
    text = (prompt + response).encode(errors="replace").decode()  # tokenizers refuse halves of characters
    encoded = tokenizer(text, return_offsets_mapping=True)
    ids, ends = tuple(encoded["input_ids"]), [end for _, end in encoded["offset_mapping"]]
    num_prompt = sum(end <= len(prompt) for end in ends)
    at = tuple(
        next(index for index, end in enumerate(ends) if end >= len(prompt) + step_end)
        for step_end in step_ends(response)
    )
    return EncodedSteps(ids, num_prompt, at)
