"""From graded responses to a set to be taught: the settings of the choice, and its filters by language and form."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ansatz.data.hygiene.select import Candidate, Reject, SelectedResponses, check_selection, select_responses
from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.responses import Response, from_row
from ansatz.registry import suggest
from ansatz.rewards.format import Shape, well_formed
from ansatz.rewards.language import AMONG, detector, share
from ansatz.track.jsonl import read_jsonl
from ansatz.types import Problem

SHAPES: tuple[Shape, ...] = ("think", "think_answer", "think_boxed", "answer", "boxed")
LANGUAGE_SHARE = 0.9
"""A response is in a language where this share of its words is, or more: names and terms are often another's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which responses are learned from (see `data.hygiene.select`).

    per_prompt: at most so many of a problem. pick: which of them, "random" or "shortest". language: ISO 639-1, such as
    en; a response with less than 0.9 of its words in it goes (extra `language`). shape: a form of `rewards.format`,
    such as think_boxed or boxed; a response without it goes. drop_longer_than: longer ones go, in tokens; 0: off.

    ConfigError for a setting out of its range; MissingExtraError where a language is asked for and cannot be told.
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
        """mode: the verdict that counts, by default the first one. filters: further filters, which run first."""
        candidates = (candidate(one, mode=mode) for one in responses)
        all_filters = (*filters, self._too_long, self._other_shape, self._other_language)
        return select_responses(candidates, per_prompt=self.per_prompt, pick=self.pick, seed=seed, filters=all_filters)

    def _too_long(self, one: Candidate) -> str | None:
        return "too_long" if 0 < self.drop_longer_than < one.tokens else None

    def _other_shape(self, one: Candidate) -> str | None:
        fits = self.shape is None or well_formed(one.text, shape=cast("Shape", self.shape))
        return None if fits else "shape"

    def _other_language(self, one: Candidate) -> str | None:
        if self.language is None:
            return None
        return None if share(one.text, self.language, _detect(self.language)) >= LANGUAGE_SHARE else "language"


def _detect(language: str) -> Any:
    return detector(tuple(sorted({language, *AMONG})))


def candidate(response: Response, *, mode: str = "") -> Candidate:
    """ConfigError for a mode that the response has no verdict of."""
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
    )


def read_responses(place: Path) -> list[Response]:
    """Those of a folder with rollouts.jsonl in it, or of a file of such rows. DataError where there are none."""
    file = place / "rollouts.jsonl" if place.is_dir() else place
    rows = read_jsonl(file)
    if not rows:
        raise DataError(
            f"{file} has no responses; expected a folder of `ansatz sample` or `ansatz eval`, or its rollouts.jsonl."
        )
    return [from_row(row, where=str(file)) for row in rows]


def taught_rows(selected: SelectedResponses, responses: Iterable[Response]) -> list[dict[str, Any]]:
    """What is kept as rows to be taught, which the source `jsonl` reads: the response is the solution."""
    place = {(one.id, one.sample): one for one in responses}
    return [_row(place[one.problem_id, one.sample]) for one in selected.kept]


def _row(one: Response) -> dict[str, Any]:
    row = {"id": f"{one.id}#{one.sample}", "question": one.question, "answer": one.answer, "solution": one.response}
    return {**row, "level": one.level, "tokens": one.tokens} if one.level else {**row, "tokens": one.tokens}


def taught_problems(selected: SelectedResponses, problems: Iterable[Problem]) -> list[Problem]:
    """What is kept as problems whose solution is the response, each with an id of its own."""
    place = {problem.id: problem for problem in problems}
    return [
        dataclasses.replace(place[one.problem_id], id=f"{one.problem_id}#{one.sample}", solution=one.text)
        for one in selected.kept
    ]
