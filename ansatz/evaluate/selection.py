"""Which graded responses to teach: the settings of the selection, and its filters by language and form.

The responses are those that a model gave to problems, or existing ones of whatever origin that `ansatz score` graded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from ansatz.data.files import source_name
from ansatz.data.formats import open_rows
from ansatz.data.hygiene.select import Candidate, Reject, SelectedResponses, check_selection, select_responses
from ansatz.data.row_problems import RowSettings, rows_with_problems
from ansatz.data.rows import Row
from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.responses import Response, fields_of, from_row
from ansatz.registry import suggest
from ansatz.rewards.format import Shape, well_formed
from ansatz.rewards.language import AMONG, detector, language_frac
from ansatz.track.jsonl import read_jsonl
from ansatz.types import Finish, Problem, Reason, Verdict, gold_value

SHAPES: tuple[Shape, ...] = get_args(Shape)
MIN_LANGUAGE_FRAC = 0.9
"""A response counts as being in a language if at least this fraction of its words is: names and technical terms often
are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which responses are taught (see `data.hygiene.select`).

    per_prompt: most responses to one problem. pick: which of them, "random" or "shortest". language: ISO 639-1, such as
    en; drops responses with less than 0.9 of their words in it (needs the extra `language`). shape: a form of
    `rewards.format`, such as think_boxed or boxed; drops responses without it. drop_longer_than: in tokens; 0: off.

    Raises ConfigError for a setting out of its range. Raises MissingExtraError if a language is given and the detector
    is missing.
    """

    per_prompt: int = 4
    pick: str = "random"
    language: str | None = None
    shape: str | None = None
    drop_longer_than: int = 0

    def __post_init__(self) -> None:
        check_selection(per_prompt=self.per_prompt, pick=self.pick)
        if self.shape is not None and self.shape not in SHAPES:
            raise ConfigError(f"shape = {self.shape!r} is unknown.{suggest(self.shape, SHAPES)}")
        if self.drop_longer_than < 0:
            raise ConfigError(f"drop_longer_than = {self.drop_longer_than}: expected 1 or more, or 0 for no limit.")
        if self.language is not None:
            _detect(self.language)

    def choose(
        self, responses: Iterable[Response], *, seed: int, mode: str = "", filters: Sequence[Reject] = ()
    ) -> SelectedResponses:
        """Select the responses of a folder or file. mode: the verdict that counts, by default the first one. filters:
        further filters, which run first."""
        candidates = (candidate(response, mode=mode) for response in responses)
        all_filters = (*filters, self._reject_length, self._reject_shape, self._reject_language)
        return select_responses(candidates, per_prompt=self.per_prompt, pick=self.pick, seed=seed, filters=all_filters)

    def _reject_length(self, response: Candidate) -> str | None:
        return "too_long" if 0 < self.drop_longer_than < response.tokens else None

    def _reject_shape(self, response: Candidate) -> str | None:
        fits = self.shape is None or well_formed(response.text, shape=cast("Shape", self.shape))
        return None if fits else "shape"

    def _reject_language(self, response: Candidate) -> str | None:
        if self.language is None:
            return None
        frac = language_frac(response.text, self.language, _detect(self.language))
        return None if frac >= MIN_LANGUAGE_FRAC else "language"


def _detect(language: str) -> Any:
    return detector(tuple(sorted({language, *AMONG})))


def candidate(response: Response, *, mode: str = "") -> Candidate:
    """Return the response as `data.hygiene.select` takes it. Raise ConfigError for a mode without a verdict."""
    name = mode or next(iter(response.verdicts))
    if name not in response.verdicts:
        raise ConfigError(f"the responses have no verdict {mode!r}.{suggest(mode, response.verdicts)}")
    return Candidate(
        problem_id=response.id,
        sample=response.sample,
        text=response.response,
        tokens=response.tokens,
        correct=response.verdicts[name].correct,
        finished=not response.truncated,
        transcript=response.transcript,
        observations=response.observations,
        token_ids=response.token_ids,
    )


def read_responses(
    place: Path, *, question_key: str | None = None, count_tokens: Callable[[str], int] | None = None
) -> list[Response]:
    """Return the responses in a folder with rollouts.jsonl, in a file of such rows, or in a file that `ansatz score`
    wrote.

    question_key, count_tokens: for a scored file, see `read_traces`. Raise DataError if there are none, or if they have
    no verdicts.
    """
    file = place / "rollouts.jsonl" if place.is_dir() else place
    if not file.is_file():
        raise DataError(f"{place} is neither a file nor a folder with rollouts.jsonl; expected {_EXPECTED}.")
    first = next(open_rows(file))
    if "verdicts" in first.values:
        return [from_row(row, where=str(file)) for row in read_jsonl(file)]
    if "verdict" not in first.values:
        raise DataError(f"{file} has no verdicts. Grade its responses first: ansatz score {file}.")
    return read_traces(file, question_key=question_key, count_tokens=count_tokens)


_EXPECTED = "a folder of `ansatz sample` or `ansatz eval`, its rollouts.jsonl, or a file of `ansatz score`"


def taught_rows(selected: SelectedResponses, responses: Iterable[Response]) -> list[dict[str, Any]]:
    """Return the selected responses as rows for SFT, which the source `jsonl` reads: the response is the solution."""
    by_key = {(response.id, response.sample): response for response in responses}
    return [_row(by_key[kept.problem_id, kept.sample]) for kept in selected.kept]


def _row(response: Response) -> dict[str, Any]:
    return {
        "id": f"{response.id}#{response.sample}",
        "question": response.question,
        "answer": gold_value(response.answer),
        "solution": response.transcript or response.response,
        **({"observations": response.observations} if response.observations else {}),
        **({"response_ids": response.token_ids} if response.token_ids else {}),
        **({"level": response.level} if response.level else {}),
        **({"earlier_turns": response.earlier_turns} if response.earlier_turns else {}),
        **({"tokens": response.tokens} if response.tokens else {}),
        **response.meta,
    }


def taught_problems(selected: SelectedResponses, problems: Iterable[Problem]) -> list[Problem]:
    """Return the selected responses as problems with the response as solution, each with its own id."""
    by_id = {problem.id: problem for problem in problems}
    return [
        dataclasses.replace(
            by_id[kept.problem_id].answered(kept.transcript or kept.text, kept.observations, kept.token_ids),
            id=f"{kept.problem_id}#{kept.sample}",
        )
        for kept in selected.kept
    ]


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
        responses.append(_read_trace(row, problem, problem_id, sample, count_tokens))
    return responses


def _read_trace(
    row: Row, problem: Problem, problem_id: str, sample: int, count_tokens: Callable[[str], int] | None
) -> Response:
    text = str(problem.solution)
    stated = (row.find(key) for key in TOKENS)
    tokens = next((value for value in stated if isinstance(value, int) and not isinstance(value, bool)), 0)
    cut_off = any(row.find(key) in CUT_OFF for key in ("finish", "finish_reason"))
    return Response(
        **{**fields_of(problem), "id": problem_id},
        sample=sample,
        response=text,
        tokens=tokens if count_tokens is None else count_tokens(text),
        finish=Finish.LENGTH if cut_off else Finish.STOP,
        verdicts={MODE: _read_verdict(row)},
    )


def _read_verdict(row: Row) -> Verdict:
    correct, reason = row.find("verdict.correct"), row.find("verdict.reason")
    try:
        return Verdict(correct=correct is True, reason=Reason(reason))
    except ValueError as error:
        raise DataError(
            f"{row.place}: the field 'verdict' is not one that `ansatz score` wrote. Grade the file: ansatz score FILE."
        ) from error
