from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ansatz_verify.pool import JobCrashed, JobTimeout, WorkerPool

TARGET = "pool_jobs:run"


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    made = WorkerPool(TARGET, workers=2, timeout_s=0.6)
    made.start()
    yield made
    made.close()


def echo(pool: WorkerPool, value: object) -> object:
    return pool.call({"kind": "echo", "value": value})["value"]


def test_no_process_starts_before_the_first_job():
    pool = WorkerPool(TARGET)
    assert pool.started == 0
    pool.close()


def test_workers_can_start_before_the_first_job_without_a_wait():
    pool = WorkerPool(TARGET)
    pool.start(wait=False)
    assert pool.started == 1
    assert echo(pool, 5) == 5
    pool.close()


def test_an_answer_comes_back_whatever_its_size_and_signs(pool: WorkerPool):
    value = "\u221e\n" * 100_000
    assert echo(pool, value) == value


@pytest.mark.parametrize("kind", ["sleep", "hog"])
def test_a_job_that_does_not_end_is_killed_when_its_time_is_used_and_the_next_one_runs(pool: WorkerPool, kind: str):
    with pytest.raises(JobTimeout):
        pool.call({"kind": kind, "seconds": 600})
    assert [echo(pool, n) for n in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("kind", ["memory", "exit", "raise"])
def test_a_job_that_breaks_its_worker_is_a_crash_and_the_next_one_runs(pool: WorkerPool, kind: str):
    with pytest.raises(JobCrashed):
        pool.call({"kind": kind})
    assert [echo(pool, n) for n in range(3)] == [0, 1, 2]
    assert pool.started == 3  # two and the spare


def test_what_a_job_prints_does_not_get_into_the_answer(pool: WorkerPool):
    assert pool.call({"kind": "print"}) == {}


def test_workers_do_not_load_torch(pool: WorkerPool):
    assert "torch" not in pool.call({"kind": "modules"})["modules"]


def test_many_threads_get_their_own_answers_while_one_job_hangs(pool: WorkerPool):
    with ThreadPoolExecutor(8) as threads:
        hung = threads.submit(pool.call, {"kind": "sleep", "seconds": 60})
        assert list(threads.map(lambda n: echo(pool, n), range(200))) == list(range(200))
        with pytest.raises(JobTimeout):
            hung.result()


def test_calls_from_asyncio_run_side_by_side(pool: WorkerPool):
    async def main() -> list[object]:
        return await asyncio.gather(*(asyncio.to_thread(echo, pool, n) for n in range(20)))

    assert asyncio.run(main()) == list(range(20))


def test_closing_ends_the_processes_and_a_later_call_starts_anew():
    pool = WorkerPool(TARGET)
    first = pool.call({"kind": "echo", "value": 1})["pid"]
    pool.close()
    pool.close()
    assert not os.path.exists(f"/proc/{first}")
    assert echo(pool, 2) == 2
    pool.close()


def test_closing_while_a_job_runs_ends_the_job():
    pool = WorkerPool(TARGET, timeout_s=30)
    pool.start()
    outcome: list[type[BaseException]] = []

    def hang() -> None:
        try:
            pool.call({"kind": "sleep", "seconds": 60})
        except (JobCrashed, JobTimeout) as error:
            outcome.append(type(error))

    thread = threading.Thread(target=hang)
    thread.start()
    time.sleep(0.2)
    pool.close()
    thread.join(5)
    assert outcome == [JobCrashed]
    assert pool.started == 0


@pytest.mark.parametrize("settings", [{"workers": 0}, {"timeout_s": 0.05}])
def test_a_pool_that_cannot_work_is_refused(settings):
    with pytest.raises(ValueError, match=r"workers|timeout_s"):
        WorkerPool(TARGET, **settings)


def children() -> set[int]:
    """The processes that this one has started."""
    return {int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


def test_a_spare_takes_the_job_after_a_killed_one():
    """Without it, that job would wait for a new interpreter; the pids say that it was there before."""
    pool = WorkerPool(TARGET, timeout_s=0.4)
    pool.start()
    first = pool.call({"kind": "echo", "value": 0})["pid"]
    before = children()
    with pytest.raises(JobTimeout):
        pool.call({"kind": "sleep", "seconds": 60})
    assert pool.call({"kind": "echo", "value": 0})["pid"] in before - {first}
    pool.close()
