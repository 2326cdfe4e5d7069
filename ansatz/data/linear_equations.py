"""Linear equations and systems, solved by rearranging.

Level 1: ax + b = c. Level 2: ax + b = cx + d. Level 3: p(ax + b) + q = cx + d. Level 4: the same with a fractional
solution. Level 5: two equations in x and y.
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd

from ansatz.data.generated import Task, generator
from ansatz.data.keyed_random import KeyedRandom

MAX_LEVEL = 5
LARGEST_SOLUTION = 20
LARGEST_DENOMINATOR = 9

_QUESTIONS = ("Solve for x: {}", "Find x if {}.", "What is x in {}?")


@generator(max_level=MAX_LEVEL)
def linear_equations(rng: KeyedRandom, level: int) -> Task:
    """Ask for the solution of an equation or a system that has exactly one."""
    return _system(rng) if level == MAX_LEVEL else _equation(rng, level)


def _equation(rng: KeyedRandom, level: int) -> Task:
    """Ask for the solution of p(ax + b) + q = cx + d. At levels 1 and 2, p = 1 and q = 0; at level 1, c = 0 as well."""
    while True:
        a, b, c = _coefficient(rng, 9), _coefficient(rng, 30), _coefficient(rng, 9)
        p, q = (rng.between(2, 6), _coefficient(rng, 20)) if level >= 3 else (1, 0)
        c = c if level > 1 else 0
        if p * a == c:
            continue
        x = Fraction(_coefficient(rng, LARGEST_SOLUTION))
        if level == 4:
            x /= rng.between(2, LARGEST_DENOMINATOR)
        d = (p * a - c) * x + p * b + q
        if d.denominator == 1 and (level < 4 or x.denominator > 1):
            break
    right = _sum((c, "x"), (int(d), ""))
    lines = [f"{_sum((p * a, 'x'), (p * b + q, ''))} = {right}"]
    if c:
        lines.append(f"{_sum((p * a - c, 'x'), (p * b + q, ''))} = {int(d)}")
    lines.append(f"{_sum((p * a - c, 'x'))} = {int(d) - p * b - q}")
    left = f"{p}({_sum((a, 'x'), (b, ''))}){_write_signed(q)}" if level >= 3 else _sum((a, "x"), (b, ""))
    shown = f"{left} = {right}"
    lines = lines if lines[0] == shown else [shown, *lines]
    if lines[-1] != f"x = {x}":
        lines.append(f"x = {x}")
    return Task(
        question=rng.choice(_QUESTIONS).format(shown), answer=str(x), steps=list(dict.fromkeys(lines)), key=shown
    )


def _system(rng: KeyedRandom) -> Task:
    """Ask for the solution of ax + by = e, cx + dy = f. Multiplying the first equation by d and the second by b
    eliminates y."""
    while True:
        a, b, c, d = (_coefficient(rng, 9) for _ in range(4))
        if a * d != b * c:
            break
    x, y = _coefficient(rng, LARGEST_SOLUTION), _coefficient(rng, LARGEST_SOLUTION)
    rows = [(a, b, a * x + b * y), (c, d, c * x + d * y)]
    shown = [f"{_sum((row[0], 'x'), (row[1], 'y'))} = {row[2]}" for row in rows]
    common = gcd(b, d)
    scaled = [
        tuple(part * factor for part in row) for row, factor in zip(rows, (d // common, b // common), strict=True)
    ]
    lines = [f"{_sum((row[0], 'x'), (row[1], 'y'))} = {row[2]}" for row in scaled]
    lines.append(f"{_sum((scaled[0][0] - scaled[1][0], 'x'))} = {scaled[0][2] - scaled[1][2]}")
    question = f"If {shown[0]} and {shown[1]}, what is x?"
    steps = list(dict.fromkeys([*shown, *lines, f"x = {x}"]))
    return Task(question=question, answer=str(x), steps=steps, key=" and ".join(sorted(shown)))


def _coefficient(rng: KeyedRandom, largest: int) -> int:
    """Return a non-zero integer of either sign."""
    return rng.between(1, largest) * (1 if rng.uniform() < 0.6 else -1)


def _write_signed(number: int) -> str:
    return f" {'+' if number > 0 else '-'} {abs(number)}" if number else ""


def _sum(*terms: tuple[int, str]) -> str:
    """Return the non-zero terms with their signs, such as "-x + 3"; "0" if there are none."""
    text = ""
    for number, letter in terms:
        if number:
            size = letter if letter and abs(number) == 1 else f"{abs(number)}{letter}"
            sign = "-" if number < 0 else "+"
            text += f" {sign} {size}" if text else f"{'-' if number < 0 else ''}{size}"
    return text or "0"
