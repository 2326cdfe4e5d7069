from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_sampler import FakeSampler
from tiny_models import prompt

from ansatz.loop import ledger as ledger_module
from ansatz.loop.ledger import Ledger
from ansatz.rollout.base import Sampling
from ansatz.rollout.ticket import Kind, Landed, Ticket, issue_tickets, landed, sample_tickets

SAMPLING = Sampling(num_samples=2, max_response_tokens=9)


def tickets(step: int, *, weights: str = "w") -> list[Ticket]:
    prompts = [prompt(2, 3, name=f"{step}-{index}") for index in range(3)]
    return issue_tickets(prompts, (), key=(Kind.TRAIN, step, 0), version=step, weights=weights, sampling=SAMPLING)


def landing(ticket: Ticket) -> Landed:
    return landed(ticket, sample_tickets(FakeSampler(lambda prompt, sample: f"{sample}"), [ticket])[0])


def filled(folder: Path) -> list[Landed]:
    """A ledger with two steps of three tickets, of which all but the last has landed."""
    ledger = Ledger(folder)
    issued = [*tickets(4), *tickets(5)]
    ledger.issue(issued)
    landings = [landing(ticket) for ticket in issued[:-1]]
    for each in landings:
        ledger.land(each)
    ledger.close()
    return landings


def test_what_has_landed_is_read_back(tmp_path: Path) -> None:
    landings = filled(tmp_path)
    assert Ledger(tmp_path).landed() == {each.ticket.key: each for each in landings}
    assert Ledger(tmp_path / "none").landed() == {}


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_torn_last_line_is_dropped_and_the_file_can_be_continued(tmp_path: Path, cut: int) -> None:
    landings = filled(tmp_path)
    path = tmp_path / "step-000005.jsonl"
    os.truncate(path, path.stat().st_size - cut)
    whole = {each.ticket.key: each for each in landings[:-1]}
    assert Ledger(tmp_path).landed() == whole
    ledger = Ledger(tmp_path)
    ledger.land(landings[-1])
    ledger.close()
    assert Ledger(tmp_path).landed() == {**whole, landings[-1].ticket.key: landings[-1]}


def test_a_damaged_line_is_dropped(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / "step-000004.jsonl"
    text = path.read_text()
    path.write_text(text.replace('"behavior_logps":[-1.0', '"behavior_logps":[-1.5', 1))
    assert len(Ledger(tmp_path).landed()) == 4


def test_a_ticket_that_is_issued_again_with_other_weights_has_not_landed(tmp_path: Path) -> None:
    filled(tmp_path)
    ledger = Ledger(tmp_path)
    ledger.issue(tickets(4, weights="other")[:1])
    ledger.close()
    assert len(Ledger(tmp_path).landed()) == 4


def test_steps_that_a_checkpoint_covers_are_removed(tmp_path: Path) -> None:
    filled(tmp_path)
    ledger = Ledger(tmp_path)
    ledger.land(landing(tickets(5)[0]))
    ledger.forget(4)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000005.jsonl"]
    ledger.forget(5)
    assert list(tmp_path.iterdir()) == []
    ledger.close()


def test_lines_are_flushed_to_disk_within_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, intervals = list[int](), list[float]()

    def fsync(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == (tmp_path / "step-000001.jsonl").stat().st_ino:
            synced.append(descriptor)

    class RecordedTimer(threading.Timer):
        def __init__(self, interval: float, function: Callable[[], object]) -> None:
            intervals.append(interval)
            super().__init__(interval, function)

    monkeypatch.setattr(ledger_module.os, "fsync", fsync)
    monkeypatch.setattr(ledger_module.threading, "Timer", RecordedTimer)
    ledger, start = Ledger(tmp_path), time.monotonic()
    ledger.issue(tickets(1))
    while not synced and time.monotonic() < start + 60:
        time.sleep(0.01)
    assert len(synced) == 1
    assert 0 < intervals[0] < 1
    ledger.close()


def test_on_a_full_disk_the_ledger_leaves_steps_out_and_says_so_once(tmp_path: Path) -> None:
    failures = list[tuple[int, str]]()
    ledger = Ledger(tmp_path, on_failure=lambda step, text: failures.append((step, text)))
    first, second = tickets(4), tickets(5)
    ledger.issue(first)
    ledger.land(landing(first[0]))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (tmp_path.joinpath("step-000004.jsonl").stat().st_size + 20, hard))
    try:
        ledger.land(landing(first[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    ledger.land(landing(first[2]))  # after a line that is missing, no other may follow
    ledger.issue(second)
    ledger.issue(second)
    ledger.land(landing(second[0]))
    ledger.close()
    assert Ledger(tmp_path).landed().keys() == {first[0].key, second[0].key}
    ((step, text),) = failures
    assert step == 4
    assert "step-000004.jsonl could not be written" in text


def test_only_the_user_can_read_what_has_landed(tmp_path: Path):
    ledger = Ledger(tmp_path / "ledger")
    ledger.issue(tickets(1))
    ledger.close()
    assert (tmp_path / "ledger").stat().st_mode & 0o777 == 0o700
