"""Finds how a reward function wants to be called, by its parameters' names and by trying.

TRL hands lists of completions and columns, verl a solution and its ground truth, others a response and a gold answer in
some order, as texts or as conversations. Which response states its answer in the right form is found the same way.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansatz_verify.responses import is_a

Pair = tuple[str, Any]
"""A gold answer and a response, which is a text or None."""

_RESPONSES = {
    "completion", "response", "solution_str", "prediction", "pred", "predict_str", "model_output", "output",
    "generation", "text",
}  # fmt: skip
_GOLDS = {
    "ground_truth", "gold", "gold_answer", "reference", "reference_answer", "target", "label", "answer", "solution",
    "expected", "truth",
}  # fmt: skip
_PROMPTS = ("prompt", "question", "problem", "query", "querie", "input")
_OTHERS: dict[str, Any] = dict.fromkeys(_PROMPTS, "What is the answer?")
_OTHERS.update(data_source="math", task="math", extra_info={}, info={}, state={}, completion_id=[1], trainer_state=None)
ALL_COLUMNS = "**columns"

FORMS = (
    "\\boxed{{{}}}",
    "<answer>{}</answer>",
    "<think>\nSo.\n</think>\n\\boxed{{{}}}",
    "<think>\nSo.\n</think>\n<answer>{}</answer>",
    "<think>\nSo.\n</think>\n<answer>\\boxed{{{}}}</answer>",
    "#### {}",
    "The answer is {}.",
    "Answer: {}",
    "{}",
)
"""Forms of a response that states its answer, the most usual first. The last one is tried when nothing else is paid."""
_AS_GOLD: dict[str, Callable[[str], Any]] = {
    "text": str,
    "text in dollars": "${}$".format,
    "text in a box": "\\boxed{{{}}}".format,
    "number": lambda gold: float(gold) if gold.replace(".", "", 1).lstrip("-").isdecimal() else gold,
    "list": lambda gold: [gold],
}


@dataclass(frozen=True, kw_only=True)
class Convention:
    """How a function is called. response, gold: the parameters that take them, or ALL_COLUMNS for the gold.

    batched: every value is a list. chat: a response is a list of messages. form: the response around the answer.
    """

    response: str
    gold: str
    batched: bool
    chat: bool
    as_gold: str = "text"
    form: str = FORMS[0]

    def describe(self, name: str) -> str:
        shown = "[{}, ...]" if self.batched else "{}"
        response = shown.format("messages" if self.chat else "text")
        return f"{name}({self.response}={response}, {self.gold}={shown.format(f'gold as {self.as_gold}')})"

    def call(self, function: Callable[..., Any], pairs: Sequence[Pair]) -> list[float | None]:
        """Return the rewards of some pairs, of a single one unless the function is batched. Its errors pass through."""
        golds = [_AS_GOLD[self.as_gold](gold) for gold, _ in pairs]
        responses = [[{"role": "assistant", "content": text}] if self.chat else text for _, text in pairs]
        values = {self.response: responses, self.gold: golds}
        if self.gold == ALL_COLUMNS:
            values |= dict.fromkeys(_GOLDS, golds) | {"prompts": [self._other("prompts")] * len(pairs)}
        given = {name: column if self.batched else column[0] for name, column in values.items() if name != ALL_COLUMNS}
        for parameter in parameters_of(function):
            if parameter.name not in values and parameter.default is parameter.empty:
                other = self._other(parameter.name)
                given[parameter.name] = [other] * len(pairs) if self.batched else other
        first = [p.name for p in parameters_of(function) if p.kind is p.POSITIONAL_ONLY]
        result = function(*[given.pop(name) for name in first], **given)
        if inspect.isawaitable(result):
            result = asyncio.run(_awaited(result))
        return [_number(each) for each in _listed(result)] if self.batched else [_number(result)]

    def _other(self, name: str) -> Any:
        value = _OTHERS.get(_single(name))
        return [{"role": "user", "content": value}] if self.chat and _single(name) in _PROMPTS else value


async def _awaited(result: Any) -> Any:
    return await result


def candidates(function: Callable[..., Any]) -> list[Convention]:
    """Return the conventions that fit the parameters, the likeliest first."""
    named = [p for p in parameters_of(function) if _single(p.name) not in _OTHERS]
    required = {p.name for p in named if p.default is p.empty}
    takes_all = any(p.kind is p.VAR_KEYWORD for p in _signature(function).parameters.values())
    pairs = [*itertools.permutations([p.name for p in named], 2), *((p.name, ALL_COLUMNS) for p in named if takes_all)]

    def likelihood(response: str, gold: str) -> int:
        fits = (_single(response) in _RESPONSES) + (_single(gold) in _GOLDS or gold == ALL_COLUMNS)
        return fits - 2 * (_single(gold) in _RESPONSES) - 2 * len(required - {response, gold})

    pairs.sort(key=lambda pair: -likelihood(*pair))
    plural = any(_single(p.name) in _RESPONSES and p.name.endswith("s") for p in named)
    return [
        Convention(response=response, gold=gold, batched=batched, chat=chat)
        for response, gold in pairs[:6]
        for batched in (plural, not plural)
        for chat in (False, True)
    ]


def attempts(convention: Convention) -> Iterator[Convention]:
    """Yield a convention with each way to write a gold and a response."""
    for forms in (FORMS[:-1], FORMS[-1:]):
        yield from (replace(convention, as_gold=gold, form=form) for gold in _AS_GOLD for form in forms)


def _single(name: str) -> str:
    return name.casefold().removesuffix("s")


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # of a builtin
        return inspect.signature(operator.contains)  # two, by position


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    signature = _signature(function).parameters.values()
    return [p for p in signature if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _listed(result: Any) -> list[Any]:
    """Return the rewards of a batch. Raise TypeError if they are not a list."""
    if is_a(result, dict):
        result = next((result[name] for name in ("rewards", "reward", "scores", "score") if name in result), result)
    result = result.tolist() if hasattr(result, "tolist") else result
    if not is_a(result, list, tuple):
        raise TypeError(f"returns {type(result).__name__} for a batch; expected a list of rewards")
    return list(result)


def _number(result: Any) -> float | None:
    """Return a reward as a number. None stays, as TRL's mark for a reward that does not apply. Raise TypeError."""
    if is_a(result, dict):
        result = next((result[name] for name in ("score", "reward", "acc", "correct") if name in result), result)
    if is_a(result, tuple):
        result = next((item for item in result if is_a(item, int, float)), result)
    result = getattr(result, "correct", result)
    if result is None:
        return None
    if is_a(result, str, list, tuple, dict) or math.isnan(float(result)):
        raise TypeError(f"returns {result!r:.40}; expected a number")
    return float(result)
