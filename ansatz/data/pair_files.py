"""Files of preference pairs, in the record shapes of published data sets.

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
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

from ansatz.data.conversations import FIELD, earlier_turns
from ansatz.data.files import source_name
from ansatz.data.formats import open_rows
from ansatz.data.pairs import pair_of
from ansatz.data.record_formats import turns_of
from ansatz.data.rows import ABSENT, Row, short, worked_text
from ansatz.data.unfit import RowError, unfit_rows
from ansatz.types import Problem

PROMPTS = ("prompt", "question", "instruction", "problem", "query")
RESPONSES = ("completions", "responses", "candidates", "answers")
TEXTS = ("response", "text", "content", "completion", "answer", "output")
SCORES = ("scores", "ratings", "rewards", "score", "overall_score", "rating", "reward", "fine-grained_score")
"""Field names, in order of preference. A score is in the response itself, or in a list as long as the responses."""


class _Scored(NamedTuple):
    text: str
    score: float


def read_pairs(path: str | Path, *, limit: int | None = None, min_gap: float = 0.0) -> list[Problem]:
    """The pairs of a file. limit: most rows that are read. min_gap: rows whose scores differ by less are left out.

    DataError at the first row that is not a pair; within `collect_unfit`, such rows are recorded there and left out.
    """
    return list(_pairs(islice(open_rows(path), limit), source=source_name(Path(path)), min_gap=min_gap))


def _pairs(rows: Iterable[Row], *, source: str, min_gap: float) -> Iterator[Problem]:
    unfit = unfit_rows()
    for row in rows:
        try:
            chosen, rejected, gap = _responses(row)
            if gap is None or gap >= min_gap:
                yield _pair(row, chosen, rejected, source)
        except RowError as error:
            if unfit is None:
                raise
            unfit.append(error.row)


def _responses(row: Row) -> tuple[Any, Any, float | None]:
    """(chosen, rejected, difference of their scores or None), as text or messages."""
    if (key := _first(row, RESPONSES)) is not None and _first(row, ("chosen",)) is None:
        scored = sorted(_scored(row, key), key=lambda each: each.score)
        worst, best = scored[0], scored[-1]
        if best.score == worst.score:
            row.fail(
                f"all {len(scored)} responses in {key!r} have the score {best.score:g}, expected a best and worst."
            )
        return best.text, worst.text, best.score - worst.score
    values = {name: row.find(name) for name in ("chosen", "rejected")}
    for name, value in values.items():
        if value is ABSENT:
            row.fail(
                f"the row has no field {name!r} (its fields: {', '.join(map(repr, row.values)) or 'none'}). A pair has "
                "prompt, chosen and rejected, or a list of responses with scores."
            )
    scores = [row.find(name) for name in ("score_chosen", "score_rejected")]
    known = [float(score) for score in scores if isinstance(score, int | float)]
    return values["chosen"], values["rejected"], known[0] - known[1] if len(known) == 2 else None


def _pair(row: Row, chosen: Any, rejected: Any, source: str) -> Problem:
    turns, other = turns_of(chosen), turns_of(rejected)
    implicit = turns is not None and any(turn.role == "user" for turn in turns)
    if implicit and (turns or [])[:-1] != (other or [])[:-1]:
        row.fail("the messages of 'chosen' and 'rejected' differ before their last turn. Remove the row.")
    key = "chosen" if implicit else _first(row, PROMPTS)
    if key is None:
        row.fail(
            f"the row has no prompt (its fields: {', '.join(map(repr, row.values))}). Expected {PROMPTS[0]!r}, or "
            "messages in 'chosen' that begin with the user's turn."
        )
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
        answer="",
        source=source,
        split="pairs",
        meta={"line": row.line, **({FIELD: context} if context else {})},
    )
    return pair_of(problem, name="", chosen=texts["chosen"], rejected=texts["rejected"])


def _scored(row: Row, key: str) -> list[_Scored]:
    value, listed_key = row.find(key), _first(row, SCORES)
    items = cast("list[Any]", value) if isinstance(value, list) else []
    scores = row.find(listed_key) if listed_key is not None else None
    listed = cast("list[Any]", scores) if isinstance(scores, list) and len(scores) == len(items) else None
    scored = [_one_scored(row, key, item, listed[place] if listed else None) for place, item in enumerate(items)]
    if len(scored) < 2:
        row.fail(f"the field {key!r} has {len(scored)} responses, expected two or more with scores.")
    return scored


def _one_scored(row: Row, key: str, item: Any, score: Any) -> _Scored:
    inner = Row(row.file, row.line, cast("dict[str, Any]", item), unit=row.unit) if isinstance(item, dict) else None
    text = item if inner is None else inner.find(_first(inner, TEXTS) or "")
    if score is None and inner is not None:
        score = inner.find(_first(inner, SCORES) or "")
    try:
        number = float(cast("Any", score))
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        row.fail(f"a response in {key!r} has the score {short(score)}, expected a number.")
    return _Scored(worked_text(text), number)


def _first(row: Row, names: Iterable[str]) -> str | None:
    return next((name for name in names if row.find(name) is not ABSENT), None)
