"""Number theory with worked steps. Each level is one kind of problem.

Level 1: greatest common divisor (Euclid). Level 2: least common multiple. Level 3: number of divisors. Level 4:
remainder of a power, by repeated squaring. Level 5: least integer with two given remainders.
"""

from __future__ import annotations

from math import gcd

from ansatz.data.generated import Task, generator
from ansatz.data.keyed_random import KeyedRandom

MAX_LEVEL = 5


def _common_divisor(rng: KeyedRandom) -> Task:
    low, high = _two_multiples(rng, rng.between(2, 40), largest=25)
    divisor, lines = _euclid(high, low)
    return Task(
        question=f"What is the greatest common divisor of {high} and {low}?",
        answer=str(divisor),
        steps=lines,
        key=f"gcd {low} {high}",
    )


def _common_multiple(rng: KeyedRandom) -> Task:
    low, high = _two_multiples(rng, rng.between(1, 20), largest=15)
    divisor, lines = _euclid(high, low)
    value = low // divisor * high
    return Task(
        question=f"What is the least common multiple of {low} and {high}?",
        answer=str(value),
        steps=[*lines, f"{low} / {divisor} = {low // divisor}", f"{low // divisor} * {high} = {value}"],
        key=f"lcm {low} {high}",
    )


def _divisor_count(rng: KeyedRandom) -> Task:
    number = rng.between(12, 9999)
    powers = _factorise(number)
    product, value = " * ".join(f"({power} + 1)" for _, power in powers), 1
    for _, power in powers:
        value *= power + 1
    return Task(
        question=f"How many positive divisors does {number} have?",
        answer=str(value),
        steps=[f"{number} = {' * '.join(f'{prime}^{power}' for prime, power in powers)}", f"{product} = {value}"],
        key=f"divisors {number}",
    )


def _power_remainder(rng: KeyedRandom) -> Task:
    """Go through the binary digits of the exponent from the left: square, and multiply if the digit is 1."""
    modulus = rng.between(7, 60)
    base, exponent = rng.between(2, modulus - 1), rng.between(5, 60)
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


def _two_remainders(rng: KeyedRandom) -> Task:
    while True:
        modulus, divisor = rng.between(5, 30), rng.between(3, 15)
        first, second = rng.between(1, modulus - 1), rng.between(0, divisor - 1)
        if modulus > divisor and gcd(modulus, divisor) == 1 and first % divisor != second:
            break
    lines, value = list[str](), first
    while value % divisor != second:
        lines.append(f"{value} = {value // divisor} * {divisor} + {value % divisor}")
        value += modulus
    lines.append(f"{value} = {value // divisor} * {divisor} + {value % divisor}")
    return Task(
        question=(
            f"What is the least positive integer that leaves remainder {first} when divided by {modulus} and remainder "
            f"{second} when divided by {divisor}?"
        ),
        answer=str(value),
        steps=lines,
        key=f"remainders {first} {modulus} {second} {divisor}",
    )


_KINDS = (_common_divisor, _common_multiple, _divisor_count, _power_remainder, _two_remainders)


def _two_multiples(rng: KeyedRandom, common: int, *, largest: int) -> tuple[int, int]:
    """Return two different multiples of `common`, the smaller first."""
    low = rng.between(2, largest - 1)
    return common * low, common * rng.between(low + 1, largest)


def _euclid(high: int, low: int) -> tuple[int, list[str]]:
    lines: list[str] = []
    while low:
        lines.append(f"{high} = {high // low} * {low} + {high % low}")
        high, low = low, high % low
    return high, lines


def _factorise(number: int) -> list[tuple[int, int]]:
    """Return (prime, power) pairs in ascending order of the primes."""
    factors: list[tuple[int, int]] = []
    prime = 2
    while number > 1:
        power = 0
        while number % prime == 0:
            number, power = number // prime, power + 1
        if power:
            factors.append((prime, power))
        prime += 1
    return factors


@generator(max_level=MAX_LEVEL)
def number_theory(rng: KeyedRandom, level: int) -> Task:
    """Ask a question of number theory. Each level is one kind of problem."""
    return _KINDS[level - 1](rng)
