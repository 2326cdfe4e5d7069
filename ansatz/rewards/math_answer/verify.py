"""The entry points: extract, parse, compare. A pair that pure Python cannot decide goes to a worker process."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any

from ansatz.rewards.math_answer.boxed_parts import without_labels
from ansatz.rewards.math_answer.decide import Decision, decide_pair
from ansatz.rewards.math_answer.extract import Mode, extract, extract_parts, stated_answer
from ansatz.rewards.math_answer.options import Options, options_from
from ansatz.rewards.math_answer.parse import is_choice, parts_of
from ansatz.rewards.math_answer.restated import with_decimal_comma
from ansatz.rewards.pool import JobCrashed, JobTimeout, WorkerPool
from ansatz.types import Reason, Verdict, golds_of

ALGEBRA_TARGET = "ansatz.rewards.math_answer.algebra:decide"

_default_pool: WorkerPool | None = None
_default_lock = threading.Lock()


def default_pool() -> WorkerPool:
    """Return the pool for calls without one: a single worker, started by the first answer that needs algebra."""
    global _default_pool
    with _default_lock:
        if _default_pool is None:
            _default_pool = WorkerPool(ALGEBRA_TARGET, timeout_s=0.8)
        return _default_pool


def verify(
    gold: str,
    response: str,
    *,
    mode: Mode = "strict",
    join_boxes: bool = False,
    require_think: bool = False,
    ignore_unclosed_think: bool = False,
    pool: WorkerPool | None = None,
    **options: Any,
) -> Verdict:
    """Return whether the response ends in the gold answer, or in one of several (`golds_of`). Never raises for
    any text; wrong options raise a ConfigError.

    mode: "strict" reads a box or an answer tag. "anchored" also reads announcements such as `####` and "the answer is".
    "last_number" also reads the last number, for evaluation only, because it pays for guesses.
    join_boxes: several boxes are one list. require_think: a response without `</think>` has no answer.
    ignore_unclosed_think: a thought that is never closed does not hide its content.
    options: see `Options`.
    """
    begin = time.perf_counter()
    asked = options_from(options)
    count, point = parts_of(gold) if response.count("\\boxed") > 1 and not join_boxes else (1, False)
    if count > 1:
        parts = extract_parts(response, count)
        if parts and (not point or ("=" in parts[0] and "(" not in parts[0])):  # x = 3, y = 4
            return _judge(
                without_labels(gold, count) if parts[1] else gold,
                parts[0],
                dataclasses.replace(asked, ordered=parts[1] or asked.ordered),
                pool,
                begin,
            )
    answer = extract(
        response,
        mode=mode,
        choice=mode != "strict" and "\\boxed" not in response and any(map(is_choice, golds_of(gold))),
        join_boxes=join_boxes,
        require_think=require_think,
        ignore_unclosed_think=ignore_unclosed_think,
    )
    if answer is not None and "," in gold:
        answer = with_decimal_comma(gold, answer, response)
    return _judge(gold, answer, asked, pool, begin)


def equivalent(gold: str, answer: str, *, pool: WorkerPool | None = None, **options: Any) -> Verdict:
    """Return whether a bare answer equals the gold answer.

    Never raises for any text; wrong options raise a ConfigError.
    """
    begin = time.perf_counter()
    return _judge(gold, stated_answer(answer).strip() or None, options_from(options), pool, begin)


def _judge(gold: str, answer: str | None, options: Options, pool: WorkerPool | None, begin: float) -> Verdict:
    """Return the verdict on the first of the gold answers that the answer equals; if there is none, on the first
    that the
    grader could not decide, else on the first."""
    if answer is None:
        decision = Decision(Reason.NO_ANSWER, "extract")
    else:
        decisions = list[Decision]()
        for each in golds_of(gold):
            decisions.append(_decided(each, answer, options, pool))
            if decisions[-1].reason is Reason.EQUAL:
                break
        undecided = [each for each in decisions if each.reason in (Reason.TIMEOUT, Reason.CRASHED)]
        equal = [each for each in decisions if each.reason is Reason.EQUAL]
        decision = (equal or undecided or decisions)[0]
    assert decision.reason is not None
    return Verdict(
        correct=decision.reason is Reason.EQUAL,
        reason=decision.reason,
        extracted=answer,
        stage=decision.stage,
        seconds=time.perf_counter() - begin,
    )


def _decided(gold: str, answer: str, options: Options, pool: WorkerPool | None) -> Decision:
    try:
        decision = decide_pair(gold, answer, options)
    except RecursionError:  # the caller can be deep in the stack already
        return Decision(Reason.UNPARSED, "parse")
    return decision if decision.reason is not None else _ask(pool or default_pool(), gold, answer, options)


def _ask(pool: WorkerPool, gold: str, answer: str, options: Options) -> Decision:
    try:
        reply = pool.call({"gold": gold, "answer": answer, "options": dataclasses.asdict(options)})
    except JobTimeout:
        return Decision(Reason.TIMEOUT, "algebra")
    except JobCrashed:
        return Decision(Reason.CRASHED, "algebra")
    return Decision(Reason(reply["reason"]), "algebra")
