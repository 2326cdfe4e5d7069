"""A source of a user: stories with one sum and few tokens, which a policy learns in a minute."""

import random

from ansatz.types import Problem

NAMES = ("Ada", "Ben", "Cy", "Dot", "Eli", "Fay", "Gus", "Ida")
THINGS = ("pens", "cups", "figs", "hats", "jars", "keys", "maps", "nuts")


def sums(*, split: str, count: int, largest: int = 12, slip_rate: float = 0.0, seed: int = 0):
    """`count` problems. A name and a thing that occur together in one split never do in the other.

    slip_rate: fraction of the demonstrations that have a wrong sum.
    """
    rng = random.Random(f"{seed}/{split}")
    pairs = [
        (name, thing)
        for i, name in enumerate(NAMES)
        for j, thing in enumerate(THINGS)
        if ((i + j) % 4 == 0) == (split == "heldout")
    ]
    problems = []
    for index in range(count):
        (name, thing), a, b = rng.choice(pairs), rng.randint(1, largest), rng.randint(1, largest)
        shown = a + b + (rng.choice((-2, -1, 1, 2)) if rng.random() < slip_rate else 0)
        problems.append(
            Problem(
                id=f"sums-{split}-{seed}-{index}",
                question=f"{name} has {a} {thing} and gets {b}.",
                answers=(str(a + b),),
                source="sums",
                split=split,
                solution=f"{a}+{b}=\\boxed{{{shown}}}",
            )
        )
    return problems
