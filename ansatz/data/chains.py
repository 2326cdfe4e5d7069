"""Chains of dependent arithmetic steps: the numbers behind a word problem, and the slips that people make in them.

A chain starts from one number and is a list of moves. A move is one equation on the amount so far, or two where it
takes a quantity of its own ("3 bags of 4": 3*4=12, 20+12=32). All values are whole numbers from 2 to `max_value`, all
divisions exact.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ansatz.data.keyed_random import KeyedRandom

SMALLEST = 2  # of any value and operand: adding 0 or multiplying by 1 is no step
LARGEST_START = 60
LARGEST_TERM = 60  # of what is added or taken away at once, unless told
LARGEST_SIZE = 9  # of one group in "3 bags of 4"


class Amount(NamedTuple):
    """A number in an equation and the index of the equation that it is the result of, None if it stands in the text."""

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
    """What happens to the amount. kind: a key of MOVES; numbers: those that the text names, in order."""

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
    """The exact result, None where there is none in the whole numbers from 0."""
    if op == "+":
        return left + right
    if op == "-":
        return left - right if left >= right else None
    if op == "*":
        return left * right
    return left // right if right and left % right == 0 else None


def draw_chain(
    draw: KeyedRandom, *, steps: int, max_value: int, max_term: int = LARGEST_TERM, kinds: Collection[str] | None = None
) -> Chain:
    """A chain of exactly that many equations (2 or more). max_term: the most that is added or taken away at once;
    kinds: the keys of MOVES to draw from, None: all."""
    limits = Limits(max_value, max_term)
    weighted = [kind for kind in _WEIGHTED_KINDS if kinds is None or kind in kinds]
    start = draw.between(SMALLEST + 1, min(LARGEST_START, max_value))
    amount, moves, done = Amount(start), list[Move](), 0
    while done < steps:
        kind = draw.pick(weighted)
        if done + MOVES[kind].steps > steps:
            continue
        numbers = MOVES[kind].numbers(draw, amount.value, limits)
        if numbers is None:
            continue
        equations = _equations(MOVES[kind].plan, amount, numbers, first=done)
        if not all(SMALLEST <= e.value <= max_value for e in equations):
            continue
        moves.append(Move(kind, numbers, equations))
        done += len(equations)
        amount = Amount(equations[-1].value, done - 1)
    return Chain(start, tuple(moves))


class Limits(NamedTuple):
    """The largest value of a chain, and the largest number that is added or taken away at once."""

    value: int
    term: int


class MoveKind(NamedTuple):
    """plan: equations in letters; x is the amount so far, y the result of the equation before, a and b the numbers.
    numbers: draws a and b for an amount, None where the amount allows none."""

    plan: tuple[str, ...]
    weight: int
    numbers: Callable[[KeyedRandom, int, Limits], tuple[int, ...] | None]

    @property
    def steps(self) -> int:
        return len(self.plan)


def _term(room: int, draw: KeyedRandom, top: Limits) -> tuple[int, ...] | None:
    high = min(room, top.term)
    return (draw.between(SMALLEST, high),) if high >= SMALLEST else None


def _factor(draw: KeyedRandom) -> int:
    """Mostly 2 to 5, one time in eight 6 to 9."""
    return draw.between(6, 9) if draw.uniform() < 0.125 else draw.between(2, 5)


def _divisor(draw: KeyedRandom, amount: int) -> tuple[int, ...] | None:
    found = [k for k in range(2, 10) if amount % k == 0 and amount // k >= SMALLEST]
    return (draw.pick(found),) if found else None


def _groups(draw: KeyedRandom) -> tuple[int, ...]:
    return draw.between(2, 5), draw.between(2, LARGEST_SIZE)


MOVES = {
    "add": MoveKind(("x+a",), 4, lambda draw, x, top: _term(top.value - x, draw, top)),
    "take": MoveKind(("x-a",), 4, lambda draw, x, top: _term(x - SMALLEST, draw, top)),
    "times": MoveKind(("x*a",), 4, lambda draw, x, top: (_factor(draw),)),
    "share": MoveKind(("x/a",), 4, lambda draw, x, top: _divisor(draw, x)),
    "add_groups": MoveKind(("a*b", "x+y"), 2, lambda draw, x, top: _groups(draw)),
    "take_groups": MoveKind(("a*b", "x-y"), 2, lambda draw, x, top: _groups(draw)),
    "join_times": MoveKind(("x*a", "x+y"), 1, lambda draw, x, top: (draw.between(2, 4),)),
    "join_more": MoveKind(("x+a", "x+y"), 1, lambda draw, x, top: _term(top.value - 2 * x, draw, top)),
    "join_fewer": MoveKind(("x-a", "x+y"), 1, lambda draw, x, top: _term(x - SMALLEST, draw, top)),
}
_WEIGHTED_KINDS = tuple(kind for kind, move in MOVES.items() for _ in range(move.weight))


def _equations(plan: Sequence[str], x: Amount, numbers: Sequence[int], *, first: int) -> tuple[Equation, ...]:
    amounts = {"x": x, **{letter: Amount(n) for letter, n in zip("ab", numbers, strict=False)}}
    found: list[Equation] = []
    for index, (left, op, right) in enumerate(plan):
        value = compute(amounts[left].value, op, amounts[right].value)
        if value is None:
            return (Equation(amounts[left], op, amounts[right], -1),)
        found.append(Equation(amounts[left], op, amounts[right], value))
        amounts["y"] = Amount(value, first + index)
    return tuple(found)


# --- slips -----------------------------------------------------------------------------------------------------------

_OTHER_OP = {"+": "-", "-": "+", "*": "+", "/": "-"}


def _dropped_carry(left: int, op: str, right: int) -> int | None:
    """Column addition or subtraction in which the carry or borrow is forgotten; None where there is none to forget."""
    if op not in "+-":
        return None
    value, place = 0, 1
    while left or right:
        digit = (left % 10 + right % 10) % 10 if op == "+" else (left % 10 - right % 10) % 10
        value += digit * place
        left, right, place = left // 10, right // 10, place * 10
    return value


def _slipped(equation: Equation, kind: str) -> Equation | None:
    left, op, right = equation.left.value, equation.op, equation.right.value
    match kind:
        case "wrong_operation":
            op = _OTHER_OP[op]
            value = compute(left, op, right)
        case "dropped_carry":
            value = _dropped_carry(left, op, right)
        case _:
            value = equation.value + {"one_more": 1, "one_less": -1, "ten_more": 10, "ten_less": -10}[kind]
    if value is None or value < 0 or value == equation.value:
        return None
    return equation._replace(op=op, value=value)


FORGETS_CARRIES = 2 / 3
"""Share of slipped chains that forget every carry and borrow, where that leads to a wrong answer: people's errors are
habits more often than accidents, and a policy that learns from them is sometimes wrong in its likeliest answer."""

SLIPS = ("one_more", "one_less", "ten_more", "ten_less", "wrong_operation", "dropped_carry")


def slip(equations: Sequence[Equation], draw: KeyedRandom) -> tuple[Equation, ...]:
    """The chain with slips that end in a wrong answer: every carry forgotten, or one slip of any kind at a drawn step,
    carried on from the wrong value without a further mistake.

    After one slip the last value differs from the true one, since every move is one-to-one in the amount so far. A slip
    after which a later division would leave a rest, or a value fall under 0, is drawn again; one more at the last step
    is always possible.
    """
    if draw.uniform() < FORGETS_CARRIES:
        careless = _carry_on(equations, 0, forget_carries=True)
        if careless and careless[-1].value != equations[-1].value:
            return careless
    options = [(step, kind) for step in range(len(equations)) for kind in SLIPS]
    for step, kind in draw.shuffled(options):
        wrong = _slipped(equations[step], kind)
        carried = wrong and _carry_on([*equations[:step], wrong, *equations[step + 1 :]], step + 1)
        if carried:
            return carried
    raise AssertionError("one more at the last step is a slip of every chain")


def _carry_on(
    equations: Sequence[Equation], first: int, *, forget_carries: bool = False
) -> tuple[Equation, ...] | None:
    """The equations from `first` on computed anew from the values before them; None where one has no result."""
    done = list(equations[:first])
    for equation in equations[first:]:
        left, right = (
            amount if amount.origin is None else amount._replace(value=done[amount.origin].value)
            for amount in (equation.left, equation.right)
        )
        value = compute(left.value, equation.op, right.value)
        if forget_carries and value is not None and equation.op in "+-":
            value = _dropped_carry(left.value, equation.op, right.value)
        if value is None:
            return None
        done.append(Equation(left, equation.op, right, value))
    return tuple(done)
