from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansatz.data.cursor import ProblemStream
from ansatz.errors import CheckpointError, DataError
from ansatz.types import Problem


def problems(n: int, name: str = "p") -> list[Problem]:
    return [
        Problem(id=f"{name}{i}", question=f"{i}?", answers=(str(i),), source="test", split="train") for i in range(n)
    ]


def ids(taken: list[Problem]) -> list[str]:
    return [p.id for p in taken]


@settings(deadline=None)
@given(
    size=st.integers(1, 12),
    seed=st.integers(0, 5),
    before=st.lists(st.integers(0, 9), max_size=5),
    after=st.lists(st.integers(0, 9), max_size=5),
)
def test_a_restored_stream_continues_like_the_first(size: int, seed: int, before: list[int], after: list[int]) -> None:
    first = ProblemStream(problems(size), seed=seed)
    for n in before:
        first.take(n)
    state = json.loads(json.dumps(first.state()))
    expected = [ids(first.take(n)) for n in after]
    second = ProblemStream(problems(size), seed=seed)
    second.take(3)
    second.restore(state)
    assert [ids(second.take(n)) for n in after] == expected
    assert second.state() == first.state()


@settings(deadline=None)
@given(size=st.integers(1, 12), seed=st.integers(0, 5), batch=st.integers(1, 9))
def test_every_problem_comes_once_per_epoch_for_any_batch_size(size: int, seed: int, batch: int) -> None:
    stream = ProblemStream(problems(size), seed=seed)
    taken = [p for _ in range(size) for p in ids(stream.take(batch))]
    for start in range(0, len(taken) - size + 1, size):
        assert sorted(taken[start : start + size]) == sorted(ids(problems(size)))
    assert taken == ids(ProblemStream(problems(size), seed=seed).take(size * batch))


def test_epochs_and_seeds_have_different_orders() -> None:
    stream = ProblemStream(problems(50), seed=0)
    first, second = ids(stream.take(50)), ids(stream.take(50))
    assert first != second
    assert first != ids(ProblemStream(problems(50), seed=1).take(50))
    assert first != ids(problems(50))


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (ProblemStream(problems(5), seed=0), "size"),
        (ProblemStream(problems(4, "q"), seed=0), "first_id"),
        (ProblemStream([*problems(3), *problems(1, "last")], seed=0), "last_id"),
        (ProblemStream(problems(4), seed=1), "seed"),
    ],
)
def test_the_state_of_another_stream_is_refused(other: ProblemStream, named: str) -> None:
    with pytest.raises(CheckpointError, match=f"has {named} = "):
        ProblemStream(problems(4), seed=0).restore(other.state())


def test_an_empty_stream_is_refused() -> None:
    with pytest.raises(DataError, match="at least one"):
        ProblemStream([], seed=0)


def test_problems_can_come_in_the_order_of_their_file_in_every_epoch():
    stream = ProblemStream(problems(5), seed=0, in_order=True)
    assert ids(stream.take(7)) == [f"p{number}" for number in (0, 1, 2, 3, 4, 0, 1)]
    again = ProblemStream(problems(5), seed=0, in_order=True)
    again.restore(stream.state())
    assert ids(again.take(4)) == ["p2", "p3", "p4", "p0"]
    with pytest.raises(CheckpointError, match="in_order = True, but this run has None"):
        ProblemStream(problems(5), seed=0).restore(stream.state())
