"""Limits on the time of another process: what a busy machine takes does not count."""

from __future__ import annotations

import pytest
from ansatz_verify import own_time
from ansatz_verify.own_time import OwnTime
from ansatz_verify.pool import WorkerPool

from tests.cpu_time import busy_machine


def test_on_a_busy_machine_a_worker_gets_its_whole_time() -> None:
    pool = WorkerPool("pool_jobs:run", timeout_s=1.6)
    try:
        with busy_machine():
            assert pool.call({"kind": "spin", "seconds": 0.4})["wall_s"] >= 0.4  # its own time, whatever the wall shows
    finally:
        pool.close()


class Clock:
    """The parent's clock, and what /proc says of a process, in seconds."""

    def __init__(self, folder, monkeypatch) -> None:
        self.now_s, self._folder = 100.0, folder
        monkeypatch.setattr(own_time, "clock", lambda: self.now_s)
        monkeypatch.setattr(own_time, "_PROC", folder)
        self.show(ran_s=50.0, waited_s=20.0)

    def show(self, *, ran_s: float, waited_s: float, state: str = "S", after_s: float = 0.0) -> None:
        self.now_s += after_s
        (self._folder / "7").mkdir(exist_ok=True)
        (self._folder / "7" / "schedstat").write_text(f"{ran_s * 1e9:.0f} {waited_s * 1e9:.0f} 3\n")
        (self._folder / "7" / "stat").write_text(f"7 () R 1 )) {state} 1 7 7 0\n")


@pytest.fixture
def clock(tmp_path, monkeypatch) -> Clock:
    return Clock(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("after_s", "ran_s", "waited_s", "state", "over"),
    [
        (0.9, 0.0, 0.0, "S", False),
        (1.0, 0.0, 0.0, "S", True),  # it sleeps
        (1.0, 1.0, 0.0, "R", True),  # it runs
        (5.0, 0.5, 4.2, "S", False),  # 0.3 s of sleep
        (5.0, 0.5, 3.9, "S", True),
        (5.0, 0.5, 0.0, "R", False),  # it has been waiting for 4.5 s, which is not counted yet
        (5.0, 1.0, 4.0, "R", True),
        (1.0, 0.0, 0.0, "T", True),  # it is stopped
    ],
)
def test_time_counts_while_a_process_runs_or_sleeps(clock: Clock, after_s, ran_s, waited_s, state, over) -> None:
    limit = OwnTime(7, 1.0)
    clock.show(ran_s=50.0 + ran_s, waited_s=20.0 + waited_s, state=state, after_s=after_s)
    assert limit.is_over() is over


def test_without_the_count_it_is_wall_time(clock: Clock) -> None:
    limit = OwnTime(8, 1.0)
    assert (limit.is_over(), limit.patience_s()) == (False, 1.0)
    clock.now_s += 1.0
    assert limit.is_over()
    assert limit.used_s() == 1.0
