"""Graders that can be installed or written in a line, each a function (response, answer) -> bool.

`answer` is the gold answer. The parameters have the names that a recipe's reward has, so each of these functions is
also a reward: rewards: {packages/verify/benchmarks/graders/adapters.py:gold_anywhere: {}}.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import threading
from importlib.metadata import distribution
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansatz_verify.pool import WorkerPool

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
BOX = re.compile(r"\\boxed\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")


def last_box(response: str) -> str:
    """The content of the last box, with braces nested at most once, or an empty string."""
    return (BOX.findall(response) or [""])[-1].strip()


@functools.cache
def _pool() -> WorkerPool:
    from ansatz_verify.grade import ALGEBRA_TARGET
    from ansatz_verify.pool import WorkerPool

    return WorkerPool(ALGEBRA_TARGET)


def ansatz_strict(response: str, answer: str) -> bool:
    """This project's verifier as it is in training: `verify` with mode `strict`."""
    from ansatz_verify import verify

    return bool(verify(answer, response, pool=_pool()))


def ansatz_anchored(response: str, answer: str) -> bool:
    """This project's verifier as it is in evaluation: mode `anchored` also reads answers announced in words."""
    from ansatz_verify import verify

    return bool(verify(answer, response, mode="anchored", pool=_pool()))


def math_verify(response: str, answer: str) -> bool:
    """math-verify 0.9.0, with the gold answer in dollars and its own extraction and time limits."""
    from math_verify import parse, verify  # pyright: ignore

    if threading.current_thread() is threading.main_thread():
        return bool(verify(parse(f"${answer}$"), parse(response)))
    gold, found = parse(f"${answer}$", parsing_timeout=None), parse(response, parsing_timeout=None)
    return bool(verify(gold, found, timeout_seconds=None))  # its alarms raise outside the main thread


def trl_accuracy(response: str, answer: str) -> bool:
    """`accuracy_reward` of TRL 1.16.0 (on math-verify 0.9.0), with the gold answer as it stands in the data."""
    from trl.rewards.accuracy_rewards import accuracy_reward  # pyright: ignore

    return bool(accuracy_reward([[{"role": "assistant", "content": response}]], [answer])[0])


def trl_accuracy_in_dollars(response: str, answer: str) -> bool:
    """The same with the gold answer in dollars."""
    return trl_accuracy(response, f"${answer}$")


def mathruler(response: str, answer: str) -> bool:
    """mathruler 0.1.0, which is PRM800K's grader on the content of the last box."""
    from mathruler.grader import extract_boxed_content, grade_answer  # pyright: ignore

    return grade_answer(extract_boxed_content(response), answer)


def verl_math(response: str, answer: str) -> bool:
    """`math_reward` of verl 0.9.1, which is the string normalisation of MATH (Hendrycks et al.)."""
    return bool(_verl("math_reward").compute_score(response, answer))


def verl_dapo(response: str, answer: str) -> bool:
    """`math_dapo` of verl 0.9.1: the last "Answer:", or a box in the last 300 characters, normalised as for Minerva."""
    return bool(_verl("math_dapo").compute_score(response, answer)["acc"])


@functools.cache
def _verl(name: str) -> ModuleType:
    """A file of verl's rewards. The package itself cannot be imported without Ray and torch."""
    path = distribution("verl").locate_file(f"verl/utils/reward_score/{name}.py")
    spec = importlib.util.spec_from_file_location(name, str(path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def same_string(response: str, answer: str) -> bool:
    """The content of the last box is the gold answer, character by character."""
    return last_box(response) == answer.strip()


def last_number(response: str, answer: str) -> bool:
    """The last number anywhere equals the gold answer as a string without commas, as is usual for GSM8K."""
    found = NUMBER.findall(response)
    return bool(found) and found[-1].replace(",", "") == answer.strip().replace(",", "")


def gold_anywhere(response: str, answer: str) -> bool:
    """The gold answer occurs somewhere in the response."""
    return answer.strip() in response


def within_ten_percent(response: str, answer: str) -> bool:
    """The number in the last box differs from the gold number by at most a tenth of it, to forgive rounding."""
    try:
        return abs(float(last_box(response)) - float(answer)) <= 0.1 * abs(float(answer))
    except ValueError:
        return False


def one_digit_only(response: str, answer: str) -> bool:
    """The last box equals the gold answer, but it is only read if it has one digit: a form that is always refused."""
    boxed = last_box(response)
    return len(boxed) == 1 and boxed == answer.strip()
