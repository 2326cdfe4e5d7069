"""A second, independent way to the answer of a word problem: reads the English and keeps the books of who has what.

It shares nothing with the generator but the language, so a sentence that says something else than its chain computes
(the wrong person, the wrong thing, more for fewer) comes out as another number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

P, Q, T, N = r"(?P<p>[A-Z]\w*)", r"(?P<q>[A-Z]\w*)", r"(?P<o>[a-z]+)", r"(?P<n>\d+)"
R = r"(?P<r>[a-z]+)"
GROUPS = r"(?P<a>\d+) [a-z]+ (?:of|with) (?P<b>\d+) (?P<o>[a-z]+)"


class Books:
    """has[person, thing], and the thing that was last spoken of."""

    def __init__(self) -> None:
        self.has: dict[tuple[str, str], int] = {}
        self.topic = ""

    def change(self, who: str, by: int) -> None:
        self.has[who, self.topic] = self.has.get((who, self.topic), 0) + by

    def set(self, who: str, value: int, thing: str | None = None) -> None:
        self.topic = thing or self.topic
        self.has[who, self.topic] = value

    def of(self, who: str) -> int:
        return self.has[who, self.topic]


def exact(left: int, right: int) -> int:
    assert left % right == 0
    return left // right


Rule = Callable[[Books, dict[str, Any]], None]
RULES: list[tuple[str, Rule]] = [
    (
        rf"{P} (?:buys|gets|finds) {N} (?:more )?{T}(?: from \w+| at the \w+)?",
        lambda w, m: w.change(m["p"], m["n"]),
    ),
    (rf"{Q} gives {P} {N} {T}", lambda w, m: w.change(m["p"], m["n"])),
    (rf"Then {P} wins {N} more", lambda w, m: w.change(m["p"], m["n"])),
    (rf"{Q} has {N} {T} and gives all of them to {P}", lambda w, m: w.change(m["p"], m["n"])),
    (rf"{Q} has {N} more (?:{T} )?than {P}", lambda w, m: w.set(m["q"], w.of(m["p"]) + m["n"])),
    (rf"{Q} has {N} fewer (?:{T} )?than {P}", lambda w, m: w.set(m["q"], w.of(m["p"]) - m["n"])),
    (rf"{P} has {N} fewer {T} than {Q}", lambda w, m: w.set(m["q"], w.of(m["p"]) + m["n"])),
    (rf"{P} has {N} more {T} than {Q}", lambda w, m: w.set(m["q"], w.of(m["p"]) - m["n"])),
    (rf"{P} (?:gives|loses|leaves) {N} {T}(?: to \w+| at the \w+)?", lambda w, m: w.change(m["p"], -m["n"])),
    (rf"{P} sells {N} of them", lambda w, m: w.change(m["p"], -m["n"])),
    (rf"Then {P} uses {N} of the {T}", lambda w, m: w.change(m["p"], -m["n"])),
    (rf"{Q} takes {N} {T} from {P}", lambda w, m: w.change(m["p"], -m["n"])),
    (
        rf"{P} (?:swaps|trades) each \w+ for {N} (?P<r>[a-z]+)",
        lambda w, m: w.set(m["p"], w.of(m["p"]) * m["n"], m["r"]),
    ),
    (rf"{P} gets {N} (?P<r>[a-z]+) for each \w+", lambda w, m: w.set(m["p"], w.of(m["p"]) * m["n"], m["r"])),
    (rf"{Q} has twice as many {T} as {P}", lambda w, m: w.set(m["q"], w.of(m["p"]) * 2)),
    (rf"{Q} has {N} times as many {T} as {P}", lambda w, m: w.set(m["q"], w.of(m["p"]) * m["n"])),
    (rf"{P} has {N} times as many {T} as {Q}", lambda w, m: w.set(m["q"], exact(w.of(m["p"]), m["n"]))),
    (rf"Soon {P} has {N} times as many", lambda w, m: w.set(m["p"], w.of(m["p"]) * m["n"])),
    (rf"{P} doubles the number of {T}", lambda w, m: w.set(m["p"], w.of(m["p"]) * 2)),
    (rf"{P} triples the number of {T}", lambda w, m: w.set(m["p"], w.of(m["p"]) * 3)),
    (rf"{P} packs them into {R} of {N}", lambda w, m: w.set(m["p"], exact(w.of(m["p"]), m["n"]), m["r"])),
    (
        rf"{P} trades every {N} {T} for one {R}",
        lambda w, m: w.set(m["p"], exact(w.of(m["p"]), m["n"]), m["r"] + "s"),
    ),
    (rf"{P} splits them into {N} equal groups and keeps one", lambda w, m: w.set(m["p"], exact(w.of(m["p"]), m["n"]))),
    (
        rf"{P} shares them equally among {N} friends, and {Q} is one",
        lambda w, m: w.set(m["q"], exact(w.of(m["p"]), m["n"])),
    ),
    (rf"{P} gives half of the {T} to {Q}", lambda w, m: w.set(m["p"], exact(w.of(m["p"]), 2))),
    (rf"{P} loses half of them", lambda w, m: w.set(m["p"], exact(w.of(m["p"]), 2))),
    (rf"{Q} has half as many {T} as {P}", lambda w, m: w.set(m["q"], exact(w.of(m["p"]), 2))),
    (rf"{P} (?:buys|finds) {GROUPS}(?: each)?", lambda w, m: w.change(m["p"], m["a"] * m["b"])),
    (rf"{Q} gives {P} {GROUPS}", lambda w, m: w.change(m["p"], m["a"] * m["b"])),
    (rf"Each of (?P<a>\d+) friends gives {P} (?P<b>\d+) {T}", lambda w, m: w.change(m["p"], m["a"] * m["b"])),
    (rf"{P} (?:sells|loses) {GROUPS}", lambda w, m: w.change(m["p"], -m["a"] * m["b"])),
    (rf"{P} gives (?P<b>\d+) {T} to each of (?P<a>\d+) friends", lambda w, m: w.change(m["p"], -m["a"] * m["b"])),
    (rf"{P} fills {GROUPS} each and gives them to {Q}", lambda w, m: w.change(m["p"], -m["a"] * m["b"])),
    (
        rf"{Q} (?:has|brings) (?P<k>\d+ times|twice) as many {T} as {P} (?:has )?and gives (?:all of )?them to (?P=p)",
        lambda w, m: w.change(m["p"], w.of(m["p"]) * (2 if m["k"] == "twice" else int(m["k"].split()[0]))),
    ),
    (
        rf"{Q} (?:has|brings) {N} more {T} than {P} (?:has )?and gives (?:all of )?them to (?P=p)",
        lambda w, m: w.change(m["p"], w.of(m["p"]) + m["n"]),
    ),
    (
        rf"{Q} (?:has|brings) {N} fewer {T} than {P} (?:has )?and gives (?:all of )?them to (?P=p)",
        lambda w, m: w.change(m["p"], w.of(m["p"]) - m["n"]),
    ),
]
OPENING = rf"(?:At the \w+, )?{P} (?:has|starts with|owns|brings|buys|counts) {N} {T}(?: (?:to|at) the \w+)?"
QUESTION = rf"(?:How|So how) many {T} (?:does {P} have|has (?P<p2>\w+))(?: now| in the end)?\?"


def solve(question: str) -> int:
    """The answer as the text states it. Raises AssertionError for a sentence that it cannot read in exactly one way."""
    opening, *sentences, asked = re.split(r"(?<=\.) ", question)
    books = Books()
    match = re.fullmatch(OPENING, opening.rstrip("."))
    assert match, opening
    books.set(match["p"], int(match["n"]), match["o"])
    for sentence in sentences:
        readings = [reading for rule in RULES if (reading := _read(books, sentence.rstrip("."), *rule))]
        assert len(readings) == 1, (sentence, len(readings))
        apply, groups = readings[0]
        assert groups.get("o") in (None, books.topic), (sentence, books.topic)
        apply(books, groups)
    match = re.fullmatch(QUESTION, asked)
    assert match, asked
    return books.has[match["p"] or match["p2"], match["o"]]


def _read(books: Books, sentence: str, pattern: str, apply: Rule) -> tuple[Rule, dict[str, Any]] | None:
    """The rule's reading; of the two people of a comparison, the one whose amount is known is {p}."""
    match = re.fullmatch(pattern, sentence)
    if not match or (match["p"], books.topic) not in books.has:
        return None
    groups = {key: int(text) if text and text.isdigit() else text for key, text in match.groupdict().items()}
    return apply, groups
