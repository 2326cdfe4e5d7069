"""The entry points: extract, parse, compare. A pair that pure Python cannot decide goes to a worker process."""

from __future__ import annotations

import base64
import functools
import pickle
import threading
import time
from typing import Any

from ansatz_verify.announce import value_said
from ansatz_verify.decide import Decision, decide_pair
from ansatz_verify.marks import Mode, boxed_answer, extract
from ansatz_verify.options import Options, options_from
from ansatz_verify.pool import JobCrashed, JobTimeout, WorkerPool
from ansatz_verify.values import Value
from ansatz_verify.verdict import Reason, Verdict, golds_of

BY_MODE: dict[str, dict[str, Any]] = {
    "strict": {"worked_out": True},
    "anchored": {"percent_as_number": True},
    "last_number": {"percent_as_number": True},
}
"""Options that training and evaluation differ in."""
_RANKS = {Reason.EQUAL: 0, Reason.TIMEOUT: 1, Reason.CRASHED: 1}
"""The ranks of the reasons when there are several gold answers. The decision with the lowest rank counts."""
ALGEBRA_TARGET = "ansatz_verify.algebra:decide"

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
    """Return whether the response ends in the gold answer, or in one of several (`golds_of`).

    No text raises; wrong options raise a ValueError.

    mode: "strict" reads a box or an answer tag. "anchored" also reads announcements such as `####` and "the answer is".
    "last_number" also reads the last number, for evaluation only, because it pays for guesses.
    join_boxes: several boxes are one list. require_think: a response without `</think>` has no answer.
    ignore_unclosed_think: a thought that is never closed does not hide its content.
    options: see `Options`.
    """
    begin = time.perf_counter()
    if mode not in BY_MODE:
        raise ValueError(f"mode = {mode!r}: expected {', '.join(BY_MODE)}.")
    unset = {name: value for name, value in BY_MODE[mode].items() if options.get(name) is None}
    asked = options_from(options | unset)
    answer = extract(
        response,
        mode=mode,
        join_boxes=join_boxes,
        require_think=require_think,
        ignore_unclosed_think=ignore_unclosed_think,
    )
    return _judge(gold, answer, asked, pool, begin)


def equivalent(gold: str, answer: str, *, pool: WorkerPool | None = None, **options: Any) -> Verdict:
    """Return whether a bare answer equals the gold answer. Of a sentence, the only value counts.

    No text raises; wrong options raise a ValueError.
    """
    begin = time.perf_counter()
    asked, answer = options_from(options), boxed_answer(answer).strip()
    verdict = _judge(gold, answer or None, asked, pool, begin)
    said = value_said(answer) if verdict.reason is Reason.UNPARSED and " " in answer else None
    return _judge(gold, said, asked, pool, begin) if said and said != answer else verdict


def _judge(gold: str, answer: str | None, options: Options, pool: WorkerPool | None, begin: float) -> Verdict:
    """Return the verdict on the first of the gold answers that the answer equals; if there is none, on the first that
    the grader could not decide, else on the first."""
    decisions = [Decision(Reason.NO_ANSWER, "extract")] if answer is None else []
    for each in golds_of(gold) if answer is not None else ():
        try:
            decisions.append(decide_pair(each, answer or "", options, functools.partial(ask_worker, pool)))
        except RecursionError:  # the caller can be deep in the stack already
            decisions.append(Decision(Reason.UNPARSED, "parse"))
        if decisions[-1].reason is Reason.EQUAL:
            break
    decision = min(decisions, key=lambda each: _RANKS.get(each.reason, len(_RANKS)))
    return Verdict(
        correct=decision.reason is Reason.EQUAL,
        reason=decision.reason,
        extracted=answer,
        stage=decision.stage,
        seconds=time.perf_counter() - begin,
    )


def ask_worker(pool: WorkerPool | None, gold: Value, answer: Value, options: Options) -> Reason:
    """Compare two trees with algebra, in a worker. The parent packs them, and nobody else."""
    pair = base64.b64encode(pickle.dumps((gold, answer, options))).decode()
    try:
        return Reason((pool or default_pool()).call({"pair": pair})["reason"])
    except JobTimeout:
        return Reason.TIMEOUT
    except JobCrashed:
        return Reason.CRASHED
