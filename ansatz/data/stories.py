"""Tells a chain of numbers as a story: names, things, places, and the sentences for each kind of move.

At every point of a story one person holds things of one kind: {p} holds {o} (singular {s}). A sentence can move the
focus to a new person {q}, or turn to a new kind of thing {r} (singular {rs}). {bags} is a kind of container, {place} a
place, and {a} and {b} are the move's numbers. All plurals are regular.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from ansatz.data.chains import Chain, Move
from ansatz.data.keyed_random import KeyedRandom
from ansatz.files import read_yaml


class Saying(NamedTuple):
    """A sentence, and the state of the story after it: the holder ("p", "q") and the things held ("o", "r", "bags").

    only: the only value of {a} that fits the sentence; None for any value.
    """

    text: str
    holder: str = "p"
    thing: str = "o"
    only: int | None = None

    @property
    def plain(self) -> bool:
        """Return whether the sentence only changes the number of the holder's things, and holder and thing stay the
        same.

        Comparisons, trades for something else, and counts in groups are not plain.
        """
        not_plain = (" than ", "{q} has", "{q} brings", "{b}")
        return (self.holder, self.thing) == ("p", "o") and not any(word in self.text for word in not_plain)


_TABLE: dict[str, Any] = read_yaml(Path(__file__).with_suffix(".yaml"))
NAMES, THINGS, CONTAINERS, PLACES, OPENINGS, QUESTIONS = (
    tuple[str, ...](_TABLE[key]) for key in ("names", "things", "containers", "places", "openings", "questions")
)
SAYINGS = {kind: tuple(Saying(**row) for row in rows) for kind, rows in _TABLE["sayings"].items()}
PLAIN_MOVES = tuple(kind for kind, sayings in SAYINGS.items() if any(saying.plain for saying in sayings))
"""Kinds of move that have a plain sentence."""


def tell(chain: Chain, rng: KeyedRandom, *, plain: bool = False) -> str:
    """Return the question text of a chain. plain: use only plain sentences; every move must then be one of
    PLAIN_MOVES."""
    names, things, containers = iter(rng.shuffled(NAMES)), iter(rng.shuffled(THINGS)), iter(rng.shuffled(CONTAINERS))
    holder, thing = next(names), next(things)
    opening = rng.choice(OPENINGS).format(p=holder, o=thing + "s", n=chain.start, place=rng.choice(PLACES))
    sentences = [opening]
    for move in chain.moves:
        saying = _saying(move, rng, plain=plain)
        words = {"p": holder, "s": thing, "o": thing + "s", "place": rng.choice(PLACES)}
        words |= dict(zip("ab", map(str, move.numbers), strict=False))
        if "{q}" in saying.text:
            words["q"] = next(names)
        if "{r" in saying.text:
            words["rs"] = next(things)
            words["r"] = words["rs"] + "s"
        if "{bags}" in saying.text:
            words["bags"] = next(containers) + "s"
        sentences.append(saying.text.format_map(words))
        holder = words[saying.holder]
        thing = words[saying.thing].removesuffix("s")
    return " ".join([*sentences, rng.choice(QUESTIONS).format(o=thing + "s", p=holder)])


def _saying(move: Move, rng: KeyedRandom, *, plain: bool) -> Saying:
    while True:
        saying = rng.choice(SAYINGS[move.kind])
        if saying.only in (None, move.numbers[0]) and (saying.plain or not plain):
            return saying
