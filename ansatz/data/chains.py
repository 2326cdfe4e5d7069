"""Chains of dependent arithmetic steps: the numbers behind a word problem, and typical human slips in them.

A chain is a starting number and a list of moves. A move is one equation on the amount so far, or two equations if it
first computes a quantity ("3 bags of 4": 3*4=12, 20+12=32). All values are integers from 2 to `max_value`, and all
divisions are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ansatz.data.keyed_random import KeyedRandom

SMALLEST = 2  # of any value and operand: adding 0 or multiplying by 1 is not a step
LARGEST_START = 60
LARGEST_TERM = 60  # default for the largest number that is added or subtracted at once
LARGEST_SIZE = 9  # of one group: the 4 in "3 bags of 4"


class Amount(NamedTuple):
    """A number in an equation, and the index of the equation whose result it is; None if the text states the number."""

    value: int
    origin: int | None = None


class Equation(NamedTuple):
    left: Amount
    op: str  # one of + - * /
    right: Amount
    value: int

    def __str__(self) -> str:
        return f"{self.left.value}{self.op}{self.right.value}={self.value}"


class Move(NamedTuple):
    """A change of the amount. kind: a key of MOVES. numbers: the numbers that the text states, in order."""

    kind: str
    numbers: tuple[int, ...]
    equations: tuple[Equation, ...]


class Chain(NamedTuple):
    start: int
    moves: tuple[Move, ...]

    @property
    def equations(self) -> tuple[Equation, ...]:
        return tuple(equation for move in self.moves for equation in move.equations)

    @property
    def answer(self) -> int:
        return self.moves[-1].equations[-1].value


def compute(left: int, op: str, right: int) -> int | None:
    """Return the exact result; None if it is not a non-negative integer."""
    if op == "+":
        return left + right
    if op == "-":
        return left - right if left >= right else None
    if op == "*":
        return left * right
    return left // right if right and left % right == 0 else None


def random_chain(
    rng: KeyedRandom, *, steps: int, max_value: int, max_term: int = LARGEST_TERM, kinds: Collection[str] | None = None
) -> Chain:
    """Return a chain of exactly `steps` equations, 2 or more.

    max_term: largest number that is added or subtracted at once. kinds: the keys of MOVES to use; None for all.
    """
    bounds = Bounds(max_value, max_term)
    weighted = [kind for kind in _WEIGHTED_KINDS if kinds is None or kind in kinds]
    start = rng.between(SMALLEST + 1, min(LARGEST_START, max_value))
    amount, moves, done = Amount(start), list[Move](), 0
    while done < steps:
        kind = rng.choice(weighted)
        if done + MOVES[kind].steps > steps:
            continue
        numbers = MOVES[kind].numbers(rng, amount.value, bounds)
        if numbers is None:
            continue
        equations = _equations(MOVES[kind].plan, amount, numbers, first=done)
        if not all(SMALLEST <= e.value <= max_value for e in equations):
            continue
        moves.append(Move(kind, numbers, equations))
        done += len(equations)
        amount = Amount(equations[-1].value, done - 1)
    return Chain(start, tuple(moves))


class Bounds(NamedTuple):
    """The largest value in a chain, and the largest number that is added or subtracted at once."""

    value: int
    term: int


class MoveKind(NamedTuple):
    """One kind of move.

    plan: the equations in letters. x is the amount so far, y the result of the previous equation, and a and b are the
    move's numbers. numbers: draws a and b for an amount; None if no numbers fit the amount.
    """

    plan: tuple[str, ...]
    weight: int
    numbers: Callable[[KeyedRandom, int, Bounds], tuple[int, ...] | None]

    @property
    def steps(self) -> int:
        return len(self.plan)


def _term(room: int, rng: KeyedRandom, bounds: Bounds) -> tuple[int, ...] | None:
    high = min(room, bounds.term)
    return (rng.between(SMALLEST, high),) if high >= SMALLEST else None


def _factor(rng: KeyedRandom) -> int:
    """Draw a number from 2 to 5, or one time in eight from 6 to 9."""
    return rng.between(6, 9) if rng.uniform() < 0.125 else rng.between(2, 5)


def _divisor(rng: KeyedRandom, amount: int) -> tuple[int, ...] | None:
    divisors = [k for k in range(2, 10) if amount % k == 0 and amount // k >= SMALLEST]
    return (rng.choice(divisors),) if divisors else None


def _groups(rng: KeyedRandom) -> tuple[int, ...]:
    return rng.between(2, 5), rng.between(2, LARGEST_SIZE)


MOVES = {
    "add": MoveKind(("x+a",), 4, lambda rng, x, bounds: _term(bounds.value - x, rng, bounds)),
    "take": MoveKind(("x-a",), 4, lambda rng, x, bounds: _term(x - SMALLEST, rng, bounds)),
    "times": MoveKind(("x*a",), 4, lambda rng, x, bounds: (_factor(rng),)),
    "share": MoveKind(("x/a",), 4, lambda rng, x, bounds: _divisor(rng, x)),
    "add_groups": MoveKind(("a*b", "x+y"), 2, lambda rng, x, bounds: _groups(rng)),
    "take_groups": MoveKind(("a*b", "x-y"), 2, lambda rng, x, bounds: _groups(rng)),
    "join_times": MoveKind(("x*a", "x+y"), 1, lambda rng, x, bounds: (rng.between(2, 4),)),
    "join_more": MoveKind(("x+a", "x+y"), 1, lambda rng, x, bounds: _term(bounds.value - 2 * x, rng, bounds)),
    "join_fewer": MoveKind(("x-a", "x+y"), 1, lambda rng, x, bounds: _term(x - SMALLEST, rng, bounds)),
}
_WEIGHTED_KINDS = tuple(kind for kind, move in MOVES.items() for _ in range(move.weight))


def _equations(plan: Sequence[str], x: Amount, numbers: Sequence[int], *, first: int) -> tuple[Equation, ...]:
    amounts = {"x": x, **{letter: Amount(n) for letter, n in zip("ab", numbers, strict=False)}}
    equations: list[Equation] = []
    for index, (left, op, right) in enumerate(plan):
        value = compute(amounts[left].value, op, amounts[right].value)
        if value is None:
            return (Equation(amounts[left], op, amounts[right], -1),)
        equations.append(Equation(amounts[left], op, amounts[right], value))
        amounts["y"] = Amount(value, first + index)
    return tuple(equations)


# --- slips -----------------------------------------------------------------------------------------------------------

_OTHER_OP = {"+": "-", "-": "+", "*": "+", "/": "-"}


def _drop_carry(left: int, op: str, right: int) -> int | None:
    """Return column addition or subtraction without carries or borrows; None for any other operation."""
    if op not in "+-":
        return None
    value, place = 0, 1
    while left or right:
        digit = (left % 10 + right % 10) % 10 if op == "+" else (left % 10 - right % 10) % 10
        value += digit * place
        left, right, place = left // 10, right // 10, place * 10
    return value


def _slip(equation: Equation, kind: str) -> Equation | None:
    left, op, right = equation.left.value, equation.op, equation.right.value
    match kind:
        case "wrong_operation":
            op = _OTHER_OP[op]
            value = compute(left, op, right)
        case "dropped_carry":
            value = _drop_carry(left, op, right)
        case _:
            value = equation.value + {"one_more": 1, "one_less": -1, "ten_more": 10, "ten_less": -10}[kind]
    if value is None or value < 0 or value == equation.value:
        return None
    return equation._replace(op=op, value=value)


CARRY_SLIP_FRAC = 2 / 3
"""Fraction of slipped chains that forget every carry and borrow, if that leads to a wrong answer. People's errors are
habits more often than accidents. A policy that learns a habit is sometimes wrong in its most likely answer."""

SLIPS = ("one_more", "one_less", "ten_more", "ten_less", "wrong_operation", "dropped_carry")


def slip(equations: Sequence[Equation], rng: KeyedRandom) -> tuple[Equation, ...]:
    """Return the chain with slips that end in a wrong answer.

    Either every carry is forgotten, or one random step has a slip of a random kind and all later steps are computed
    correctly from the wrong value. A single slip always changes the last value, because every move is one-to-one in the
    amount so far. If a later division would leave a remainder, or a value would fall below 0, another slip is drawn;
    "one_more" at the last step is always possible.
    """
    if rng.uniform() < CARRY_SLIP_FRAC:
        careless = _recompute(equations, 0, forget_carries=True)
        if careless and careless[-1].value != equations[-1].value:
            return careless
    options = [(step, kind) for step in range(len(equations)) for kind in SLIPS]
    for step, kind in rng.shuffled(options):
        wrong = _slip(equations[step], kind)
        slipped = wrong and _recompute([*equations[:step], wrong, *equations[step + 1 :]], step + 1)
        if slipped:
            return slipped
    raise AssertionError("one_more at the last step is possible for every chain")


def _recompute(
    equations: Sequence[Equation], first: int, *, forget_carries: bool = False
) -> tuple[Equation, ...] | None:
    """Return the equations, recomputed from index `first` on from the values before them; None if one has no result."""
    done = list(equations[:first])
    for equation in equations[first:]:
        left, right = (
            amount if amount.origin is None else amount._replace(value=done[amount.origin].value)
            for amount in (equation.left, equation.right)
        )
        value = compute(left.value, equation.op, right.value)
        if forget_carries and value is not None and equation.op in "+-":
            value = _drop_carry(left.value, equation.op, right.value)
        if value is None:
            return None
        done.append(Equation(left, equation.op, right, value))
    return tuple(done)
