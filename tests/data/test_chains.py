from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansatz.data.chains import MOVES, Amount, Chain, Equation, compute, random_chain, slip
from ansatz.data.keyed_random import KeyedRandom


def chain_of(seed: int, steps: int = 5) -> Chain:
    return random_chain(KeyedRandom(seed), steps=steps, max_value=200)


def one_step(left: int, op: str, right: int) -> list[Equation]:
    value = compute(left, op, right)
    assert value is not None
    return [Equation(Amount(left), op, Amount(right), value)]


def slips_of(equations: list[Equation]) -> set[str]:
    """All first-step slips that turn up in many draws."""
    return {str(slip(equations, KeyedRandom(seed))[0]) for seed in range(200)}


@pytest.mark.parametrize(
    ("left", "op", "right", "result"),
    [(5, "+", 12, 17), (5, "-", 12, None), (12, "-", 5, 7), (6, "*", 7, 42), (42, "/", 6, 7), (43, "/", 6, None)],
)
def test_compute_is_exact_or_none(left: int, op: str, right: int, result: int | None) -> None:
    assert compute(left, op, right) == result


def test_every_kind_of_move_is_drawn_and_fills_its_plan() -> None:
    moves = [move for seed in range(300) for move in chain_of(seed).moves]
    assert {move.kind for move in moves} == set(MOVES)
    assert all(len(move.equations) == MOVES[move.kind].steps for move in moves)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**6), steps=st.integers(2, 10), max_value=st.integers(50, 1000))
def test_a_chain_has_the_requested_steps_and_stays_within_its_bounds(seed: int, steps: int, max_value: int) -> None:
    chain = random_chain(KeyedRandom(seed), steps=steps, max_value=max_value)
    assert len(chain.equations) == steps
    assert all(
        2 <= e.value <= max_value and compute(e.left.value, e.op, e.right.value) == e.value for e in chain.equations
    )
    assert chain.answer == chain.equations[-1].value


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_origins_point_to_the_equation_with_that_value_and_every_result_is_used(seed: int) -> None:
    equations = chain_of(seed).equations
    used = [a for e in equations for a in (e.left, e.right) if a.origin is not None]
    assert all(equations[a.origin].value == a.value for a in used if a.origin is not None)
    assert {a.origin for a in used} == set(range(len(equations) - 1))


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 10**6), steps=st.integers(2, 10))
def test_a_slip_always_ends_in_another_answer_and_keeps_the_form(seed: int, steps: int) -> None:
    true = chain_of(seed, steps).equations
    shown = slip(true, KeyedRandom(seed, "slip"))
    assert len(shown) == len(true)
    assert shown[-1].value != true[-1].value
    assert all(e.value >= 0 for e in shown)


def test_slips_in_a_sum_with_carry() -> None:
    # 27+15=42: without the carry 32, as a difference 12.
    assert slips_of(one_step(27, "+", 15)) == {"27+15=43", "27+15=41", "27+15=52", "27+15=32", "27-15=12"}


def test_slips_in_a_difference_with_borrow() -> None:
    # 32-17=15: column by column without borrowing 25, as a sum 49.
    assert slips_of(one_step(32, "-", 17)) == {"32-17=16", "32-17=14", "32-17=25", "32-17=5", "32+17=49"}


def test_slips_in_a_product_and_a_quotient() -> None:
    assert slips_of(one_step(12, "*", 3)) == {"12*3=37", "12*3=35", "12*3=46", "12*3=26", "12+3=15"}
    assert slips_of(one_step(12, "/", 3)) == {"12/3=5", "12/3=3", "12/3=14", "12-3=9"}


def test_two_in_three_forget_the_carry_and_the_others_may_too() -> None:
    shown = [str(slip(one_step(27, "+", 15), KeyedRandom(seed))[0]) for seed in range(2000)]
    assert abs(shown.count("27+15=32") / 2000 - (2 / 3 + 1 / 3 * 2 / 6)) < 0.03  # ten less is the same


def test_forgotten_carries_that_cancel_are_not_a_slip() -> None:
    # 27+15=42, 42-15=27; without carries 27+15=32, 32-15=27: right again, so a single slip takes its place.
    first = Equation(Amount(27), "+", Amount(15), 42)
    second = Equation(Amount(42, 0), "-", Amount(15), 27)
    outcomes = {slip([first, second], KeyedRandom(seed))[-1].value for seed in range(200)}
    assert 27 not in outcomes


def test_a_slip_is_carried_through_both_sides_of_later_equations() -> None:
    # x=5+2=7; y=7*3=21; 7+21=28. With 8 for 7: 8*3=24, 8+24=32.
    first = Equation(Amount(5), "+", Amount(2), 7)
    second = Equation(Amount(7, 0), "*", Amount(3), 21)
    third = Equation(Amount(7, 0), "+", Amount(21, 1), 28)
    outcomes = {"\n".join(map(str, slip([first, second, third], KeyedRandom(seed)))) for seed in range(300)}
    assert "5+2=8\n8*3=24\n8+24=32" in outcomes
