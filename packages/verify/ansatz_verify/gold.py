"""Finds golds that cannot be parsed when data is loaded, before anything is rewarded with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ansatz_verify.options import DEFAULT, Options, options_from
from ansatz_verify.parse import parse_gold
from ansatz_verify.verdict import golds_of


class UnreadableGold(NamedTuple):
    """A gold that cannot be parsed. place: its position, from 1. why: the reason in words."""

    place: int
    gold: str
    why: str


def check_golds(golds: Iterable[str], **options: Any) -> list[UnreadableGold]:
    """Return the golds that are empty, have no value, or have a form that is not supported."""
    chosen = options_from(options)
    problems = ((place, gold, gold_problem(gold, chosen)) for place, gold in enumerate(golds, start=1))
    return [UnreadableGold(*problem) for problem in problems if problem[2]]


def gold_problem(answer: str, options: Options = DEFAULT) -> str:
    """Say why one of the gold answers of a text cannot be read; empty if all can (see `golds_of`)."""
    readings = (parse_gold(gold, options) for gold in golds_of(answer))
    return next((reading.problem for reading in readings if reading.value is None), "")
