from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansatz.data.mixture import Shares, Stratum, apportioned, fits, max_rows, rows_per_stratum, shares_of
from ansatz.errors import ConfigError

ONE = {"": Fraction(1)}
weights = st.dictionaries(st.integers(0, 20), st.integers(1, 50) | st.sampled_from([0.1, 0.25, 2.5]), min_size=1)


@given(count=st.integers(0, 5000), weights=weights)
def test_all_rows_are_distributed_and_each_share_is_exact_to_within_one_row(
    count: int, weights: dict[int, float]
) -> None:
    shares = shares_of(weights, "part")
    assert sum(shares.values()) == 1
    rows = apportioned(count, shares)
    assert sum(rows.values()) == count
    assert all(abs(rows[key] - count * shares[key]) < 1 for key in rows)


def test_the_largest_remainder_gets_the_row_that_is_left() -> None:
    shares = shares_of({"a": 5, "b": 3, "c": 2}, "part")  # of 11: 5.5, 3.3, 2.2
    assert apportioned(11, shares) == {"a": 6, "b": 3, "c": 2}
    assert apportioned(1, shares_of({"a": 1, "b": 1}, "part")) == {"a": 1, "b": 0}


def test_decimal_weights_are_exact() -> None:
    assert shares_of({"a": 0.1, "b": 0.3}, "part") == {"a": Fraction(1, 4), "b": Fraction(3, 4)}


def strata(*sizes: int) -> list[Stratum]:
    return [Stratum(part=part, topic="", level="", rows=range(size)) for part, size in enumerate(sizes)]


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4), given=st.data(), repeat=st.integers(1, 3))
def test_the_maximum_number_of_rows_fits_and_one_more_does_not(
    sizes: list[int], given: st.DataObject, repeat: int
) -> None:
    some = given.draw(st.lists(st.integers(1, 9), min_size=len(sizes), max_size=len(sizes)))
    shares = Shares(part=shares_of(dict(enumerate(some)), "part"), topic=ONE, level=ONE)
    most = max_rows(strata(*sizes), shares, repeat=repeat)
    assert fits(most, strata(*sizes), shares, repeat=repeat)
    assert not any(fits(most + more, strata(*sizes), shares, repeat=repeat) for more in range(1, 60))


def test_an_empty_stratum_leaves_no_row() -> None:
    shares = Shares(part=shares_of({0: 1, 1: 1}, "part"), topic=ONE, level=ONE)
    assert max_rows(strata(5, 0), shares, repeat=1) == 0
    assert max_rows(strata(5, 2), shares, repeat=1) == 5  # 3 and 2


def test_rows_are_distributed_to_parts_then_topics_then_levels() -> None:
    shares = Shares(
        part=shares_of({0: 3, 1: 1}, "part"),
        topic=shares_of({"a": 1, "g": 1}, "topic"),
        level=shares_of({"1": 1, "2": 2}, "level"),
    )
    all_strata = [Stratum(part=p, topic=t, level=lv, rows=()) for p in (0, 1) for t in "ag" for lv in "12"]
    assert rows_per_stratum(24, all_strata, shares) == [3, 6, 3, 6, 1, 2, 1, 2]
    assert shares.of(all_strata[1]) == Fraction(6, 24)


@pytest.mark.parametrize("weight", [0, -1, float("inf"), float("nan"), True, "2"])
def test_an_invalid_weight_is_named(weight: object) -> None:
    with pytest.raises(ConfigError, match=r"the weight of topic algebra is .* expected a number above 0"):
        shares_of({"algebra": weight}, "topic")


def test_no_weights_at_all_are_refused() -> None:
    with pytest.raises(ConfigError, match="no part weights"):
        shares_of({}, "part")
