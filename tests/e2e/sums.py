"""A source of a user's own: one sum a story, in few tokens, so that a policy learns it in a minute."""

import random

from ansatz.types import Problem

NAMES = ("Ada", "Ben", "Cy", "Dot", "Eli", "Fay", "Gus", "Ida")
THINGS = ("pens", "cups", "figs", "hats", "jars", "keys", "maps", "nuts")


def sums(*, split: str, count: int, largest: int = 12, slip_rate: float = 0.0, seed: int = 0):
    """`count` problems; a name and a thing that meet in one split never meet in the other. slip_rate: share of
    demonstrations with a wrong sum."""
    draw = random.Random(f"{seed}/{split}")
    told = [
        (name, thing)
        for i, name in enumerate(NAMES)
        for j, thing in enumerate(THINGS)
        if ((i + j) % 4 == 0) == (split == "heldout")
    ]
    problems = []
    for index in range(count):
        (name, thing), a, b = draw.choice(told), draw.randint(1, largest), draw.randint(1, largest)
        shown = a + b + (draw.choice((-2, -1, 1, 2)) if draw.random() < slip_rate else 0)
        problems.append(
            Problem(
                id=f"sums-{split}-{seed}-{index}",
                question=f"{name} has {a} {thing} and gets {b}.",
                answer=str(a + b),
                source="sums",
                split=split,
                solution=f"{a}+{b}=\\boxed{{{shown}}}",
            )
        )
    return problems
