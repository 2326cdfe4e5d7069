"""Number theory with worked steps, one kind of problem a level.

Level 1: greatest common divisor (Euclid). Level 2: least common multiple. Level 3: number of divisors. Level 4: the
remainder of a power, by squaring. Level 5: the least number with two given remainders.
"""

from __future__ import annotations

from math import gcd

from ansatz.data.generated import Task, generator
from ansatz.data.keyed_random import KeyedRandom

MOST_LEVELS = 5


def _divisor(draw: KeyedRandom) -> Task:
    low, high = _two_multiples(draw, draw.between(2, 40), most=25)
    found, lines = _euclid(high, low)
    return Task(
        question=f"What is the greatest common divisor of {high} and {low}?",
        answer=str(found),
        steps=lines,
        key=f"gcd {low} {high}",
    )


def _multiple(draw: KeyedRandom) -> Task:
    low, high = _two_multiples(draw, draw.between(1, 20), most=15)
    found, lines = _euclid(high, low)
    value = low // found * high
    return Task(
        question=f"What is the least common multiple of {low} and {high}?",
        answer=str(value),
        steps=[*lines, f"{low} / {found} = {low // found}", f"{low // found} * {high} = {value}"],
        key=f"lcm {low} {high}",
    )


def _divisors(draw: KeyedRandom) -> Task:
    number = draw.between(12, 9999)
    powers = _factorised(number)
    product, value = " * ".join(f"({power} + 1)" for _, power in powers), 1
    for _, power in powers:
        value *= power + 1
    return Task(
        question=f"How many positive divisors does {number} have?",
        answer=str(value),
        steps=[f"{number} = {' * '.join(f'{prime}^{power}' for prime, power in powers)}", f"{product} = {value}"],
        key=f"divisors {number}",
    )


def _remainder(draw: KeyedRandom) -> Task:
    """Left to right through the exponent's binary digits: square, and multiply where the digit is 1."""
    modulus = draw.between(7, 60)
    base, exponent = draw.between(2, modulus - 1), draw.between(5, 60)
    lines, power, value = list[str](), 1, base
    for digit in f"{exponent:b}"[1:]:
        power, squared = 2 * power, value * value
        lines.append(f"{base}^{power}: {value} * {value} = {squared}, remainder {squared % modulus}")
        value = squared % modulus
        if digit == "1":
            power += 1
            lines.append(f"{base}^{power}: {value} * {base} = {value * base}, remainder {value * base % modulus}")
            value = value * base % modulus
    return Task(
        question=f"What is the remainder when {base}^{exponent} is divided by {modulus}?",
        answer=str(value),
        steps=lines,
        key=f"power {base} {exponent} {modulus}",
    )


def _two_remainders(draw: KeyedRandom) -> Task:
    while True:
        step, other = draw.between(5, 30), draw.between(3, 15)
        first, second = draw.between(1, step - 1), draw.between(0, other - 1)
        if step > other and gcd(step, other) == 1 and first % other != second:
            break
    lines, value = list[str](), first
    while value % other != second:
        lines.append(f"{value} = {value // other} * {other} + {value % other}")
        value += step
    lines.append(f"{value} = {value // other} * {other} + {value % other}")
    return Task(
        question=(
            f"What is the least positive integer that leaves remainder {first} when divided by {step} and remainder "
            f"{second} when divided by {other}?"
        ),
        answer=str(value),
        steps=lines,
        key=f"remainders {first} {step} {second} {other}",
    )


_KINDS = (_divisor, _multiple, _divisors, _remainder, _two_remainders)


def _two_multiples(draw: KeyedRandom, common: int, *, most: int) -> tuple[int, int]:
    """The smaller and the larger, which differ."""
    low = draw.between(2, most - 1)
    return common * low, common * draw.between(low + 1, most)


def _euclid(high: int, low: int) -> tuple[int, list[str]]:
    lines: list[str] = []
    while low:
        lines.append(f"{high} = {high // low} * {low} + {high % low}")
        high, low = low, high % low
    return high, lines


def _factorised(number: int) -> list[tuple[int, int]]:
    """(prime, power), the primes ascending."""
    found: list[tuple[int, int]] = []
    prime = 2
    while number > 1:
        power = 0
        while number % prime == 0:
            number, power = number // prime, power + 1
        if power:
            found.append((prime, power))
        prime += 1
    return found


@generator(most=MOST_LEVELS)
def number_theory(draw: KeyedRandom, level: int) -> Task:
    """One kind of problem a level."""
    return _KINDS[level - 1](draw)
