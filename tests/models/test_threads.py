from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from ansatz.models.threads import SMALL_MODEL, one_thread, parallel_map, parallel_microbatches


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_as_many_items_at_a_time_as_there_are_threads_and_results_in_order() -> None:
    meeting = threading.Barrier(3)

    def work(item: int) -> tuple[int, int]:
        meeting.wait(timeout=10)  # passed by three at once or not at all
        time.sleep(0.01 * (2 - item % 3))
        return item, torch.get_num_threads()

    found = list(parallel_map(work, list(range(9)), 3))
    assert found == [(item, 1) for item in range(9)]
    assert torch.get_num_threads() == 3


def test_one_item_alone_has_all_threads_and_so_has_each_where_one_goes_at_a_time() -> None:
    assert list(parallel_map(lambda _: torch.get_num_threads(), [0], 3)) == [3]
    main = threading.get_ident()
    assert set(parallel_map(lambda _: threading.get_ident(), [0, 1, 2], 1)) == {main}


def test_slices_of_a_small_model_on_a_cpu_go_side_by_side_and_no_others() -> None:
    assert parallel_microbatches(SMALL_MODEL - 1, on_cpu=True, threads=3) == 3
    assert parallel_microbatches(SMALL_MODEL, on_cpu=True, threads=3) == 1
    assert parallel_microbatches(1, on_cpu=False, threads=3) == 1


def test_no_thread_waits_for_its_neighbours_item_and_no_result_for_its_taker() -> None:
    """One long item: meanwhile the other threads go on, to width + 1 results ahead and no further."""
    begun, release = list[int](), threading.Event()

    def work(item: int) -> int:
        begun.append(item)
        if item == 0:
            release.wait(10)
        return item

    found = parallel_map(work, list(range(9)), 3)
    taker = threading.Thread(target=lambda: begun.append(100 + next(found)))
    taker.start()
    while len(begun) < 4:
        time.sleep(0.001)
    time.sleep(0.05)
    assert begun == [0, 1, 2, 3]
    release.set()
    taker.join()
    assert begun[-1] == 100
    assert list(found) == list(range(1, 9))


def test_what_is_left_of_the_work_is_not_done_after_an_error() -> None:
    done = list[int]()

    def work(item: int) -> int:
        if item == 1:
            raise ValueError("one")
        time.sleep(0.02)
        done.append(item)
        return item

    with pytest.raises(ValueError, match="one"):
        list(parallel_map(work, list(range(20)), 2))
    before = len(done)
    time.sleep(0.1)
    assert len(done) == before <= 4


def test_an_error_comes_out_and_the_threads_are_as_before() -> None:
    def work(item: int) -> int:
        return 1 // item

    with pytest.raises(ZeroDivisionError):
        list(parallel_map(work, [1, 0, 2, 3], 3))
    assert torch.get_num_threads() == 3


def test_one_thread_lasts_for_its_block() -> None:
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
