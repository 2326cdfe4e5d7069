"""Tells a chain of numbers as a story: names, things, places, and the sentences for each kind of move.

At every point of a story one person holds things of one kind: {p} holds {o} (singular {s}). A sentence can move the
focus to a new person {q}, or turn to a new kind of thing {r} (singular {rs}). {bags} is a kind of container, {place} a
place, and {a} and {b} are the move's numbers. All plurals are regular.
"""

from __future__ import annotations

from typing import NamedTuple

from ansatz.data.chains import Chain, Move
from ansatz.data.keyed_random import KeyedRandom


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES = _words(
    """
    Ana Ben Cara Dan Ella Finn Gus Hana Ian Jill Ken Lena Max Nina Omar Pia Quinn Rosa Sam Tara Uma Vera Will Xena
    Yara Zoe Ali Bea Carl Dina Eva Fred Gina Hugo Iris Jack Kim Leo Mia Noah Olga Paul Rita Sara Tom Ugo Viola Walt
    """
)
THINGS = _words(
    """
    apple book coin pen card shell stone egg ball stamp cup plum pear nut doll car kite ring rose bean bead hat toy
    lemon melon cookie button sticker marble ticket pencil flower candle block bell seed
    """
)
CONTAINERS = _words("bag pack jar tray basket crate tin sack case pot")
PLACES = _words("market school farm park shop fair beach garden zoo club lake station")


class Saying(NamedTuple):
    """A sentence, and the state of the story after it: who holds ("p", "q") what ("o", "r", "bags").

    only: the value of {a} for which the sentence can be used; None for any value.
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


OPENINGS = (
    "{p} has {n} {o}.",
    "{p} starts with {n} {o}.",
    "{p} owns {n} {o}.",
    "At the {place}, {p} has {n} {o}.",
    "{p} brings {n} {o} to the {place}.",
    "{p} buys {n} {o} at the {place}.",
    "{p} counts {n} {o}.",
)

SAYINGS: dict[str, tuple[Saying, ...]] = {
    "add": (
        Saying("{p} buys {a} more {o}."),
        Saying("{p} finds {a} {o} at the {place}."),
        Saying("{p} gets {a} {o} from {q}."),
        Saying("{q} gives {p} {a} {o}."),
        Saying("Then {p} wins {a} more."),
        Saying("{q} has {a} {o} and gives all of them to {p}."),
        Saying("{q} has {a} more {o} than {p}.", holder="q"),
        Saying("{q} has {a} more than {p}.", holder="q"),
        Saying("{p} has {a} fewer {o} than {q}.", holder="q"),
    ),
    "take": (
        Saying("{p} gives {a} {o} to {q}."),
        Saying("{p} loses {a} {o}."),
        Saying("{p} sells {a} of them."),
        Saying("{p} leaves {a} {o} at the {place}."),
        Saying("Then {p} uses {a} of the {o}."),
        Saying("{q} takes {a} {o} from {p}."),
        Saying("{q} has {a} fewer {o} than {p}.", holder="q"),
        Saying("{q} has {a} fewer than {p}.", holder="q"),
        Saying("{p} has {a} more {o} than {q}.", holder="q"),
    ),
    "times": (
        Saying("{p} trades each {s} for {a} {r}.", thing="r"),
        Saying("{p} swaps each {s} for {a} {r}.", thing="r"),
        Saying("{p} gets {a} {r} for each {s}.", thing="r"),
        Saying("Soon {p} has {a} times as many."),
        Saying("{q} has {a} times as many {o} as {p}.", holder="q"),
        Saying("{q} has twice as many {o} as {p}.", holder="q", only=2),
        Saying("{p} doubles the number of {o}.", only=2),
        Saying("{p} triples the number of {o}.", only=3),
    ),
    "share": (
        Saying("{p} packs them into {bags} of {a}.", thing="bags"),
        Saying("{p} trades every {a} {o} for one {rs}.", thing="r"),
        Saying("{p} splits them into {a} equal groups and keeps one."),
        Saying("{p} shares them equally among {a} friends, and {q} is one.", holder="q"),
        Saying("{p} has {a} times as many {o} as {q}.", holder="q"),
        Saying("{p} gives half of the {o} to {q}.", only=2),
        Saying("{p} loses half of them.", only=2),
        Saying("{q} has half as many {o} as {p}.", holder="q", only=2),
    ),
    "add_groups": (
        Saying("{p} buys {a} {bags} of {b} {o}."),
        Saying("{p} finds {a} {bags} with {b} {o} each."),
        Saying("{q} gives {p} {a} {bags} of {b} {o}."),
        Saying("Each of {a} friends gives {p} {b} {o}."),
    ),
    "take_groups": (
        Saying("{p} sells {a} {bags} of {b} {o}."),
        Saying("{p} gives {b} {o} to each of {a} friends."),
        Saying("{p} fills {a} {bags} with {b} {o} each and gives them to {q}."),
        Saying("{p} loses {a} {bags} of {b} {o}."),
    ),
    "join_times": (
        Saying("{q} has {a} times as many {o} as {p} and gives all of them to {p}."),
        Saying("{q} brings {a} times as many {o} as {p} has and gives them to {p}."),
        Saying("{q} has twice as many {o} as {p} and gives all of them to {p}.", only=2),
    ),
    "join_more": (
        Saying("{q} has {a} more {o} than {p} and gives all of them to {p}."),
        Saying("{q} brings {a} more {o} than {p} has and gives them to {p}."),
    ),
    "join_fewer": (
        Saying("{q} has {a} fewer {o} than {p} and gives all of them to {p}."),
        Saying("{q} brings {a} fewer {o} than {p} has and gives them to {p}."),
    ),
}

QUESTIONS = (
    "How many {o} does {p} have now?",
    "How many {o} does {p} have in the end?",
    "How many {o} has {p} now?",
    "So how many {o} does {p} have?",
)


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
