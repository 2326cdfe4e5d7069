"""Small functions to write, with tests: the training problems of the reward `code_tests`.

Level 1: a linear function of one number. Level 2: of two numbers. Level 3: a sum over some items of a list.

`meta["tests"]` holds assertions that the question does not show, and `solution` is a program that passes them. The gold
answer is the expression that the function returns.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansatz.data.generated import Task, generator
from ansatz.data.keyed_random import KeyedRandom

NUM_TESTS = 3
_SIGNS = {"plus": "+", "minus": "-"}
_CHOICES = {"greater than": ">", "less than": "<"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTask(Task):
    """answer: the expression that the function f returns. arguments: its parameters."""

    arguments: str

    @property
    def solution(self) -> str:
        return f"```python\ndef f({self.arguments}):\n    return {self.answer}\n```"


@generator(max_level=3)
def code_tasks(rng: KeyedRandom, level: int) -> Task:
    """Ask for a function of small whole numbers, with three assertions as tests."""
    factor, term = rng.between(2, 19), rng.between(1, 19)
    word = rng.choice(tuple(_SIGNS))
    sign, signed = _SIGNS[word], term if word == "plus" else -term
    if level == 1:
        asked, arguments, answer = f"{factor} times x {word} {term}", "x", f"{factor} * x {sign} {term}"
        tests = [f"assert f({x}) == {factor * x + signed}" for x in _numbers(rng)]
    elif level == 2:
        asked, arguments, answer = f"{factor} times x {word} {term} times y", "x, y", f"{factor} * x {sign} {term} * y"
        pairs = zip(_numbers(rng), _numbers(rng), strict=True)
        tests = [f"assert f({x}, {y}) == {factor * x + signed * y}" for x, y in pairs]
    else:
        comparison = rng.choice(tuple(_CHOICES))
        compare = _CHOICES[comparison]
        asked = f"{factor} times the sum of the items of the list x that are {comparison} {term}"
        arguments, answer = "x", f"{factor} * sum(n for n in x if n {compare} {term})"
        lists = [_numbers(rng, count=5, smallest=0) for _ in range(NUM_TESTS)]
        chosen = [[n for n in items if (n > term if compare == ">" else n < term)] for items in lists]
        tests = [f"assert f({items}) == {factor * sum(part)}" for items, part in zip(lists, chosen, strict=True)]
    return CodeTask(
        question=f"Write a function f({arguments}) that returns {asked}.",
        answer=answer,
        steps=(),
        key=f"{arguments}: {answer}",
        meta={"tests": tests},
        arguments=arguments,
    )


def _numbers(rng: KeyedRandom, *, count: int = NUM_TESTS, smallest: int = -20) -> list[int]:
    return [rng.between(smallest, 40) for _ in range(count)]
