"""Existing responses of whatever origin, graded by `ansatz score`, as responses to select from.

A row is a response with its verdict; the question and all else are read as from any problem file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ansatz.data.files import source_name
from ansatz.data.formats import open_rows
from ansatz.data.row_problems import RowSettings, rows_with_problems
from ansatz.data.rows import Row
from ansatz.errors import DataError
from ansatz.evaluate.responses import Response
from ansatz.types import Finish, Problem, Reason, Verdict

MODE = "score"
"""The name of the verdict of such a response."""
TOKENS = ("tokens", "num_tokens")
CUT_OFF = ("length", "max_tokens")
"""Values of `finish` or `finish_reason` of a response that was cut off."""


def read_traces(
    file: Path, *, question_key: str | None = None, count_tokens: Callable[[str], int] | None = None
) -> list[Response]:
    """Return the responses of a file that `ansatz score` wrote, in its order.

    Rows with the same conversation and gold answer are samples of one problem. count_tokens: the length of a response;
    by default that in the row's field `tokens`, or 0 if there is none. Raise DataError for a row without question or
    verdict.
    """
    settings = RowSettings(
        question_key=question_key, answer_key="verdict.gold", answer_from="field", solution_key="response"
    )
    ids: dict[tuple[str, ...], str] = {}
    num_samples: dict[str, int] = {}
    responses: list[Response] = []
    for row, problem in rows_with_problems(open_rows(file), settings, source=source_name(file)):
        said = (f"{turn['role']}:{turn['content']}" for turn in problem.earlier_turns)
        problem_id = ids.setdefault((*said, problem.question, problem.answer), problem.id)
        sample = num_samples.get(problem_id, 0)
        num_samples[problem_id] = sample + 1
        responses.append(_response(row, problem, problem_id, sample, count_tokens))
    return responses


def _response(
    row: Row, problem: Problem, problem_id: str, sample: int, count_tokens: Callable[[str], int] | None
) -> Response:
    text = str(problem.solution)
    stated = (row.find(key) for key in TOKENS)
    tokens = next((value for value in stated if isinstance(value, int) and not isinstance(value, bool)), 0)
    cut_off = any(row.find(key) in CUT_OFF for key in ("finish", "finish_reason"))
    return Response(
        id=problem_id,
        sample=sample,
        level=problem.level,
        subject="",
        question=problem.question,
        answer=problem.answer,
        response=text,
        tokens=tokens if count_tokens is None else count_tokens(text),
        finish=Finish.LENGTH if cut_off else Finish.STOP,
        verdicts={MODE: _verdict(row)},
        earlier_turns=problem.earlier_turns,
    )


def _verdict(row: Row) -> Verdict:
    correct, reason = row.find("verdict.correct"), row.find("verdict.reason")
    try:
        return Verdict(correct=correct is True, reason=Reason(reason))
    except ValueError as error:
        raise DataError(
            f"{row.place}: the field 'verdict' is not one that `ansatz score` wrote. Grade the file: ansatz score FILE."
        ) from error
