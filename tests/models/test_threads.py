from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from ansatz.models.threads import (
    PARALLEL_GRADIENTS,
    SMALL_MODEL,
    one_thread,
    parallel_map,
    parallel_microbatches,
    tokens_of_each,
)


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_items_run_in_parallel_and_results_come_in_order() -> None:
    meeting = threading.Barrier(3)

    def work(item: int) -> tuple[int, int]:
        meeting.wait(timeout=60)  # opens only if three threads wait at the same time
        time.sleep(0.01 * (2 - item % 3))
        return item, torch.get_num_threads()

    results = list(parallel_map(work, list(range(9)), 3))
    assert results == [(item, 1) for item in range(9)]
    assert torch.get_num_threads() == 3


def test_a_single_item_has_all_threads() -> None:
    assert list(parallel_map(lambda _: torch.get_num_threads(), [0], 3)) == [3]
    main = threading.get_ident()
    assert set(parallel_map(lambda _: threading.get_ident(), [0, 1, 2], 1)) == {main}


def test_only_microbatches_of_a_small_model_on_a_cpu_run_in_parallel() -> None:
    def parallel(num_parameters: int, *, dtype_bytes: int = 4, on_cpu: bool = True, threads: int = 3) -> int:
        return parallel_microbatches(num_parameters, dtype_bytes=dtype_bytes, on_cpu=on_cpu, threads=threads)

    assert parallel(SMALL_MODEL - 1) == 3
    assert parallel(SMALL_MODEL - 1, threads=1000) == 1000
    assert parallel(SMALL_MODEL - 1, dtype_bytes=2) == 3
    assert parallel(SMALL_MODEL, dtype_bytes=2) == 1
    assert parallel(PARALLEL_GRADIENTS // 3) == 3
    assert parallel(PARALLEL_GRADIENTS // 3 + 1) == 1
    assert parallel(1, on_cpu=False) == 1


def test_parallel_microbatches_of_a_larger_model_share_the_limit_of_tokens() -> None:
    assert tokens_of_each(100, SMALL_MODEL - 1, 3) == 100
    assert tokens_of_each(100, SMALL_MODEL, 3) == 33
    assert tokens_of_each(100, SMALL_MODEL, 1) == 100
    assert tokens_of_each(2, SMALL_MODEL, 3) == 1


def test_threads_work_ahead_of_a_slow_item_but_not_too_far() -> None:
    """While one item is slow, the other threads continue until width + 1 results wait, and no further."""
    started, release = list[int](), threading.Event()

    def work(item: int) -> int:
        started.append(item)
        if item == 0:
            release.wait(10)
        return item

    results = parallel_map(work, list(range(9)), 3)
    taker = threading.Thread(target=lambda: started.append(100 + next(results)))
    taker.start()
    while len(started) < 4:
        time.sleep(0.001)
    time.sleep(0.05)
    assert started == [0, 1, 2, 3]
    release.set()
    taker.join()
    assert started[-1] == 100
    assert list(results) == list(range(1, 9))


def test_remaining_items_are_not_started_after_an_error() -> None:
    done = list[int]()

    def work(item: int) -> int:
        if item == 1:
            raise ValueError("item 1")
        time.sleep(0.02)
        done.append(item)
        return item

    with pytest.raises(ValueError, match="item 1"):
        list(parallel_map(work, list(range(20)), 2))
    before = len(done)
    time.sleep(0.1)
    assert len(done) == before <= 4


def test_an_error_is_raised_and_the_thread_count_restored() -> None:
    def work(item: int) -> int:
        return 1 // item

    with pytest.raises(ZeroDivisionError):
        list(parallel_map(work, [1, 0, 2, 3], 3))
    assert torch.get_num_threads() == 3


def test_one_thread_applies_to_its_block() -> None:
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
