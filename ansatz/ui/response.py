"""The parts of the page of one response besides its text: the verdicts of other graders, and its tokens, coloured by
the effect of the update on them, by probability or by mismatch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ansatz.files import read_yaml
from ansatz.track.rollout_table import cut_observations
from ansatz.track.step_files import tokens_path
from ansatz.track.svg import Chart, Series
from ansatz.track.token_file import read_tokens
from ansatz.types import Verdict

WORDS = read_yaml(Path(__file__).with_name("words.yaml"))
GRADERS: Mapping[str, str] = WORDS["graders"]
COLOURS: Mapping[str, tuple[str, str, tuple[float, float, float]]] = WORDS["colours"]
_FIELDS = dict(zip(COLOURS, ("d_after", "behavior_logp", "d_behavior", "entropy", "d_ref"), strict=True))
MAX_TOKENS = 4096
"""Tokens of one page; of a longer response, `w` says where its window begins."""


class ShownToken(NamedTuple):
    """place: from 0. colour: u1 to u3 for a value above 0, d1 to d3 below; empty near 0."""

    place: int
    text: str
    value: float
    colour: str


class Strip(NamedTuple):
    """colour: the name of the quantity that the values measure. colours: the quantities that are known for the
    response. total: sum of the values of the whole response. first: place of the first token shown. num_tokens: of
    all."""

    colour: str
    colours: list[str]
    tokens: list[ShownToken]
    chart: Chart
    total: float
    first: int
    num_tokens: int

    @property
    def largest(self) -> list[ShownToken]:
        """Return the tokens with the largest absolute values."""
        return sorted(self.tokens, key=lambda token: -abs(token.value))[:8]

    @property
    def windows(self) -> dict[str, int]:
        """Return where the windows before and after this one begin, by the name of their link."""
        before = {"Previous": max(self.first - MAX_TOKENS, 0)} if self.first else {}
        after = self.first + len(self.tokens)
        return {**before, "Next": after} if after < self.num_tokens else before


def read_strip(row: Mapping[str, Any], run: Path, colour: str, *, first: int = 0) -> Strip | None:
    """Return the tokens of a row, coloured by the effect of the update if the colour is not known; None if they are not
    stored. Raise DataError if their file was changed."""
    if not row["tokens_at"]:
        return None
    records = read_tokens(tokens_path(run / row["file"]), *map(int, row["tokens_at"]))
    sampled = records[records["sampled"] != 0]  # forced tokens have 0 where the others are not known, which is nan
    known = [name for name, field in _FIELDS.items() if (sampled[field] == sampled[field]).any()]
    colour = colour if colour in known else "after"
    values = [float(value) for value in records[_FIELDS[colour]]]
    first = first if first < len(values) else 0
    shown = mark_tokens(row["text"], map(int, records["end"]), values, colour)[first : first + MAX_TOKENS]
    series = Series(name="", points=[(float(token.place), token.value) for token in shown])
    chart = Chart(title=COLOURS[colour][1], series=[series], x_label="token")
    return Strip(colour, known, shown, chart, sum(values), first, len(values))


def mark_tokens(text: str, ends: Iterable[int], values: Sequence[float], colour: str) -> list[ShownToken]:
    """Return the tokens of a text. ends: where each of them ends. colour: the name of the quantity that the values
    measure."""
    texts = [text[start:end] for start, end in pairwise([0, *ends])]
    steps = COLOURS[colour][2]
    return [
        ShownToken(place, texts[place] or ("[end]" if place + 1 == len(texts) else "◌"), value, _shade(value, steps))
        for place, value in enumerate(values)
    ]


def _shade(value: float, steps: tuple[float, float, float]) -> str:
    strength = sum(abs(value) >= step for step in steps)
    return f"{'u' if value > 0 else 'd'}{strength}" if strength else ""


def grade_row(row: Mapping[str, Any], mode: str) -> bool:
    """Return whether the verifier calls a row correct in a mode."""
    return _verify(row, mode).correct


def explain_verdict(row: Mapping[str, Any]) -> list[tuple[str, str, Verdict, str]]:
    """Return (mode, where it looks, verdict, meaning of its reason) for every mode."""
    found = [(mode, places, _verify(row, mode)) for mode, places in GRADERS.items()]
    return [(mode, places, verdict, WORDS["meanings"][verdict.reason.value]) for mode, places, verdict in found]


def _verify(row: Mapping[str, Any], mode: str) -> Verdict:
    from ansatz_verify.grade import verify  # which takes a third of a second to load

    return verify(row["answer"] or "", cut_observations(row), mode=mode)  # pyright: ignore[reportArgumentType]
