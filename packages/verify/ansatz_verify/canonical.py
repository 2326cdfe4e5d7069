"""A normal form for expressions: a quotient of polynomials with rational coefficients, exact and bounded.

The variables of the polynomials are atoms: names, pi, e, i, roots of primes, and whatever else is kept whole (a sine, a
root of a sum). Equal normal forms prove equality. Unequal ones prove difference where all atoms are
independent ("pure"): names, values of unknown functions, pi or e, i, roots of primes. Source: the linear independence
over Q of products of square roots of distinct primes (Besicovitch 1940), which holds for real roots of any order.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from ansatz_verify import values as v
from ansatz_verify.values import Expr
from ansatz_verify.words import KNOWN_FUNCTIONS

MAX_TERMS = 60
MAX_COEFFICIENT_BITS = 6_000
MAX_PRODUCTS = 1_000  # of terms, in one multiplication
MAX_DEGREE = 40
_PRIMES = [p for p in range(2, 1000) if all(p % q for q in range(2, int(p**0.5) + 1))]

Atom = tuple[str, ...]
Monomial = tuple[tuple[Atom, Fraction], ...]
Polynomial = dict[Monomial, Fraction]

_UNIT = Fraction(1)
_ONE: Polynomial = {(): _UNIT}


class TooLarge(Exception):
    """The normal form would exceed the limit on its terms or on the size of its numbers."""


@dataclass(frozen=True, slots=True)
class Quotient:
    top: Polynomial
    bottom: Polynomial
    pure: bool


def canonical(value: Expr) -> Quotient:
    """Return the normal form. Raises TooLarge, or Undefined for a division by zero."""
    if isinstance(value, v.Num):
        return Quotient({(): value.value} if value.value else {}, _ONE, True)
    if isinstance(value, v.Name):
        return _atomic(("i",) if value.name == "i" else ("v", value.name), pure=True)
    if isinstance(value, v.Sum):
        total = canonical(value.terms[0])
        for term in value.terms[1:]:
            total = _added(total, canonical(term))
        return total
    if isinstance(value, v.Product):
        result = Quotient(_ONE, _ONE, True)
        for factor in value.factors:
            result = _multiplied(result, canonical(factor))
        return result
    if isinstance(value, v.Power):
        return _power(value)
    forms = [canonical(argument) for argument in value.arguments]
    atom = ("f", value.function, *map(key, forms))
    unknown = value.function not in KNOWN_FUNCTIONS | v.SPECIAL_FUNCTIONS  # x(0) and x(1) are independent
    return _atomic(atom, pure=unknown and all(form.pure and form.bottom == _ONE for form in forms))


def difference(left: Quotient, right: Quotient) -> Polynomial:
    """Return a polynomial that is zero exactly where the two are equal."""
    return plus(times(left.top, right.bottom), times(right.top, left.bottom), -1)


def plus(left: Polynomial, right: Polynomial, sign: int = 1) -> Polynomial:
    total = dict(left)
    for monomial, coefficient in right.items():
        signed = coefficient if sign == 1 else -coefficient
        value = total[monomial] + signed if monomial in total else signed
        if value:
            total[monomial] = value
        else:
            total.pop(monomial, None)
    if len(total) > MAX_TERMS:
        raise TooLarge
    return total


def times(left: Polynomial, right: Polynomial) -> Polynomial:
    if left is _ONE:
        return right
    if right is _ONE:
        return left
    if len(left) * len(right) > MAX_PRODUCTS:
        raise TooLarge
    total: Polynomial = {}
    for first, a in left.items():
        for second, b in right.items():
            monomial, scale = _joined(first, second)
            product = a * b if scale is _UNIT else a * b * scale
            total[monomial] = total[monomial] + product if monomial in total else product
    total = {monomial: c for monomial, c in total.items() if c}
    if len(total) > MAX_TERMS or any(c.numerator.bit_length() > MAX_COEFFICIENT_BITS for c in total.values()):
        raise TooLarge
    return total


def key(value: Quotient) -> str:
    """Return a text that is equal for equal normal forms, up to a common factor of numerator and denominator."""
    lead = value.bottom[min(value.bottom, key=str)] if value.bottom else Fraction(1)
    parts = [sorted(f"{m}:{c / lead}" for m, c in polynomial.items()) for polynomial in (value.top, value.bottom)]
    text = repr(parts)
    # Keys contain keys. Without a digest, each repr would double the backslashes of the key inside it.
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _multiplied(left: Quotient, right: Quotient) -> Quotient:
    return Quotient(times(left.top, right.top), times(left.bottom, right.bottom), left.pure and right.pure)


def _added(left: Quotient, right: Quotient) -> Quotient:
    pure = left.pure and right.pure
    if left.bottom == right.bottom:
        return Quotient(plus(left.top, right.top), left.bottom, pure)
    top = plus(times(left.top, right.bottom), times(right.top, left.bottom))
    return Quotient(top, times(left.bottom, right.bottom), pure)


def _joined(left: Monomial, right: Monomial) -> tuple[Monomial, Fraction]:
    """Return the product of two monomials, and a number that it produces: sqrt 2 * sqrt 2 = 2, i * i = -1."""
    if not left or not right:
        return left or right, _UNIT
    exponents = dict(left)
    scale = _UNIT
    for atom, exponent in right:
        exponents[atom] = exponents[atom] + exponent if atom in exponents else exponent
    for atom, exponent in list(exponents.items()):
        if atom == ("i",):
            turns = int(exponent) % 4
            scale *= -1 if turns >= 2 else 1
            exponents[atom] = Fraction(turns % 2)
        elif atom[0] == "n" and not 0 <= exponent < 1:
            whole = exponent.numerator // exponent.denominator
            scale *= Fraction(int(atom[1])) ** whole
            exponents[atom] = exponent - whole
    return tuple(sorted((atom, exponent) for atom, exponent in exponents.items() if exponent)), scale


def _power(value: v.Power) -> Quotient:
    base = canonical(value.base)
    if isinstance(value.exponent, v.Num):
        exponent = value.exponent.value
        if exponent.denominator == 1 and abs(exponent) <= MAX_DEGREE:
            return _repeated(base, int(exponent))
        if exponent.denominator <= MAX_DEGREE and abs(exponent) <= MAX_DEGREE:
            rooted = _rooted(base, exponent)
            if rooted is not None:
                return rooted
    return _atomic(("p", key(base), key(canonical(value.exponent))), pure=False)


def _repeated(base: Quotient, count: int) -> Quotient:
    if count < 0:
        if not base.top:
            raise v.Undefined("division by zero")
        if len(base.top) == 1:  # a single term divides: 1/sqrt 3 is sqrt 3 / 3
            (monomial, coefficient), *_ = base.top.items()
            inverse = tuple((atom, -exponent) for atom, exponent in monomial)
            joined, scale = _joined(inverse, ((("n", "2"), Fraction(0)),)) if inverse else ((), _UNIT)
            base = Quotient(times({joined: scale / coefficient}, base.bottom), _ONE, base.pure)
        else:
            base = Quotient(base.bottom, base.top, base.pure)
        count = -count
    if count > 1 and len(base.top) == 1 and base.bottom is _ONE:
        (monomial, coefficient), *_ = base.top.items()
        if coefficient == 1 and all(atom[0] not in ("i", "n") for atom, _ in monomial):  # x^26 in one step
            return Quotient({tuple((atom, exponent * count) for atom, exponent in monomial): _UNIT}, _ONE, base.pure)
    result = Quotient(_ONE, _ONE, True)
    for _ in range(count):
        result = _multiplied(result, base)
    return result


def _rooted(base: Quotient, exponent: Fraction) -> Quotient | None:
    """Return a rational power of a rational number or of a single name; None for other bases."""
    if base.bottom != _ONE or len(base.top) != 1:
        return None
    (monomial, number), *_ = base.top.items()
    if not monomial:
        return _root_of_number(number, exponent)
    if number == 1 and len(monomial) == 1 and monomial[0][1] == 1 and monomial[0][0][0] == "v":
        return Quotient({((monomial[0][0], exponent),): Fraction(1)}, _ONE, base.pure)
    return None


@lru_cache(maxsize=1_024)
def _root_of_number(number: Fraction, exponent: Fraction) -> Quotient | None:
    """Return a product of roots of primes. A negative number has a real odd root, and a square root that contains i."""
    if number < 0:
        if exponent.denominator % 2:
            sign = -1 if exponent.numerator % 2 else 1
        elif exponent.denominator == 2:
            sign = 1
        else:
            return None
        positive = _root_of_number(-number, exponent)
        if positive is None:
            return None
        turn: Monomial = ((("i",), Fraction(1)),) if exponent.denominator == 2 else ()
        if turn and exponent.numerator % 4 == 3:
            sign = -1
        return Quotient(times(positive.top, {turn: Fraction(sign)}), _ONE, positive.pure)
    result: Polynomial = _ONE
    pure = True
    for part, direction in ((number.numerator, 1), (number.denominator, -1)):
        for prime, count, known in _factors(part):
            joined, scale = _joined(((("n", str(prime)), exponent * count * direction),), ((("i",), Fraction(0)),))
            result = times(result, {joined: scale})
            pure &= known
    return Quotient(result, _ONE, pure)


def _factors(number: int) -> list[tuple[int, int, bool]]:
    """Return (factor, multiplicity, whether it is surely prime).

    The part without small primes stays whole, or is a square.
    """
    factors: list[tuple[int, int, bool]] = []
    if number.bit_length() > 4_000:
        raise TooLarge
    for prime in _PRIMES:
        if prime * prime > number:
            break
        count = 0
        while number % prime == 0:
            number //= prime
            count += 1
        if count:
            factors.append((prime, count, True))
    if number > 1:
        root = math.isqrt(number)
        if root * root == number:
            factors.append((root, 2, root < 1_000_000))
        else:
            factors.append((number, 1, number < 1_000_000))
    return factors


def _atomic(atom: Atom, *, pure: bool) -> Quotient:
    return Quotient({((atom, _UNIT),): _UNIT}, _ONE, pure)
