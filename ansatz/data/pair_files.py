"""Preference pairs of files and of data sets of the hub, in the record shapes of published data.

TRL            {"prompt", "chosen", "rejected"}, each text or messages; without "prompt", the messages of "chosen" and
               "rejected" begin with the same turns
UltraFeedback  {"prompt", "chosen": messages, "rejected": messages, "score_chosen", ...} (binarized)
               {"instruction", "completions": [{"response", "overall_score"}, ...]}
scored         {"prompt", "responses": [text, ...], "scores": [number, ...]}

Of several scored responses, the best is chosen and the worst is rejected. Which fields are used is recognised from each
row; a row without one of these shapes cannot be used (`data.unfit`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

from ansatz.data.conversations import (
    FIELD,
    check_one_turn,
    check_turns_after,
    earlier_turns,
    template_fields,
)
from ansatz.data.given_rows import GivenRows
from ansatz.data.pairs import pair_of
from ansatz.data.record_formats import turns_of
from ansatz.data.row_problems import find_lost_fields
from ansatz.data.rows import ABSENT, Row, worked_text
from ansatz.data.unfit import note_lost, read_each, short
from ansatz.types import Problem

PROMPTS = ("prompt", "question", "instruction", "problem", "query")
RESPONSES = ("completions", "responses", "candidates", "answers")
TEXTS = ("response", "text", "content", "completion", "answer", "output")
SCORES = ("scores", "ratings", "rewards", "score", "overall_score", "rating", "reward", "fine-grained_score")
"""Field names, in order of preference. A score is in the response itself, or in a list as long as the responses."""


class _Scored(NamedTuple):
    text: str
    score: float


def read_pairs(given: GivenRows) -> list[Problem | None]:
    """Return the pairs of the rows that a recipe names; None for one whose scores are too close.

    Raise DataError at the first row that is not a pair; within `collect_unfit`, such rows are recorded there and left
    out.
    """
    return list(read_each(given.rows(), lambda row: read_pair(row, source=given.name, min_gap=given.min_gap)))


def read_pair(row: Row, *, source: str, min_gap: float) -> Problem | None:
    """Return the pair of a row; None if the scores of its responses are too close."""
    chosen, rejected, gap = _responses(row)
    if gap is None and min_gap:
        row.fail(f"min_gap = {min_gap:g} needs the scores of both responses (score_chosen and score_rejected).")
    return _pair(row, chosen, rejected, source) if gap is None or gap >= min_gap else None


def _responses(row: Row) -> tuple[Any, Any, float | None]:
    """Return (chosen, rejected, difference of their scores or None), as text or messages."""
    if (key := row.first(RESPONSES)) is not None and row.first(("chosen",)) is None:
        scored = sorted(_read_scored(row, key), key=lambda each: each.score)
        worst, best = scored[0], scored[-1]
        if best.score == worst.score:
            row.fail(
                f"all {len(scored)} responses in {key!r} have the score {best.score:g}, expected a best and worst."
            )
        return best.text, worst.text, best.score - worst.score
    values = {name: row.find(name) for name in ("chosen", "rejected")}
    for name, value in values.items():
        if value is ABSENT:
            kto = " Labelled responses need preference.losses: {kto: {}}, or reward_model.kind: correctness."
            row.fail(
                f"the row has no field {name!r} (its fields: {', '.join(map(repr, row.values)) or 'none'}). A pair has "
                "prompt, chosen and rejected, or a list of responses with scores." + kto * ("label" in row.values)
            )
    given = {name: row.find(name) for name in ("score_chosen", "score_rejected")}
    scores = [_number(row, name, score) for name, score in given.items() if score not in (ABSENT, None, "")]
    return values["chosen"], values["rejected"], scores[0] - scores[1] if len(scores) == 2 else None


def _pair(row: Row, chosen: Any, rejected: Any, source: str) -> Problem:
    turns, other = turns_of(chosen), turns_of(rejected)
    implicit = turns is not None and any(turn.role == "user" for turn in turns)
    if implicit and (turns or [])[:-1] != (other or [])[:-1]:
        row.fail("the messages of 'chosen' and 'rejected' differ before their last turn. Remove the row.")
    key = "chosen" if implicit else row.first(PROMPTS)
    if key is None:
        row.fail(
            f"the row has no prompt (its fields: {', '.join(map(repr, row.values))}). Expected {PROMPTS[0]!r}, or "
            "messages in 'chosen' that begin with the user's turn."
        )
    if not implicit:
        check_turns_after(row, key, ())
    for name in ("chosen", "rejected") if row.first(("chosen",)) is not None else ():
        check_one_turn(row, name, after_question=implicit)
    texts = {name: worked_text(value) for name, value in (("chosen", chosen), ("rejected", rejected))}
    for name, text in texts.items():
        if not text:
            row.fail(
                f"the {name} response is {short(chosen if name == 'chosen' else rejected)}, expected text or a chat."
            )
    if texts["chosen"] == texts["rejected"]:
        row.fail("the chosen and the rejected response are the same text. Remove the row.")
    context = earlier_turns(row, key)
    problem = Problem(
        id=f"{source}-{row.line}",
        question=row.question(key),
        source=source,
        split="pairs",
        meta={"line": row.line, **template_fields(row), **({FIELD: context} if context else {})},
    )
    note_lost(lambda: find_lost_fields(row, [key, "chosen", "rejected", *RESPONSES, *SCORES], problem))
    return pair_of(problem, chosen=texts["chosen"], rejected=texts["rejected"])


def _read_scored(row: Row, key: str) -> list[_Scored]:
    value, listed_key = row.find(key), row.first(SCORES)
    items = cast("list[Any]", value) if isinstance(value, list) else []
    scores = row.find(listed_key) if listed_key is not None else None
    listed = cast("list[Any]", scores) if isinstance(scores, list) and len(scores) == len(items) else None
    scored = [_one_scored(row, key, item, listed[place] if listed else None) for place, item in enumerate(items)]
    if len(scored) < 2:
        row.fail(f"the field {key!r} has {len(scored)} responses, expected two or more with scores.")
    return scored


def _one_scored(row: Row, key: str, item: Any, score: Any) -> _Scored:
    inner = Row(row.file, row.line, cast("dict[str, Any]", item), unit=row.unit) if isinstance(item, dict) else None
    text = item if inner is None else inner.find(inner.first(TEXTS) or "")
    if score is None and inner is not None:
        score = inner.find(inner.first(SCORES) or "")
    return _Scored(worked_text(text), _number(row, f"score of a response in {key}", score))


def _number(row: Row, name: str, value: Any) -> float:
    try:
        number = float(cast("Any", value))
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        row.fail(f"the {name} is {short(value)}, expected a number.")
    return number
