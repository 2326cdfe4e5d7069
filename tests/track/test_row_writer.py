"""Rows on a full disk: they wait, are written in order, and stop the run when the disk stays full."""

import pytest

from ansatz.errors import StorageError
from ansatz.track import row_writer
from ansatz.track.row_writer import RowWriter
from ansatz.track.tracker import Tracker


class Disk:
    """Writes that fail while the disk is full."""

    def __init__(self, monkeypatch):
        self.full = False
        for name in ("append_text", "write_text"):
            monkeypatch.setattr(row_writer, name, self.checked(getattr(row_writer, name)))

    def checked(self, write):
        def checked(path, text):
            if self.full:
                raise OSError(28, "No space left on device")
            write(path, text)

        return checked


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


def test_rows_of_a_full_disk_are_written_in_order_when_there_is_space_again(tmp_path, disk):
    said = []
    writer, path = RowWriter(lambda step, text: said.append((step, text))), tmp_path / "rows"
    writer.append(1, path, "one\n")
    disk.full = True
    writer.append(2, path, "two\n")
    writer.replace(2, tmp_path / "whole", lambda: "all")
    writer.append(3, path, "three\n")
    assert path.read_text() == "one\n"
    assert [step for step, _ in said] == [2, 3]
    assert "rows could not be written (No space left on device; 4 bytes are needed, " in said[0][1]
    disk.full = False
    writer.append(4, path, "four\n")
    assert path.read_text() == "one\ntwo\nthree\nfour\n"
    assert (tmp_path / "whole").read_text() == "all"
    writer.flush()


def test_the_third_failing_step_in_a_row_stops_the_run(tmp_path, disk):
    writer = RowWriter(lambda step, text: None)
    disk.full = True
    for step in (4, 5):
        writer.append(step, tmp_path / "rows", "x")
    with pytest.raises(StorageError, match=r"step 6: .*rows could not be written .* at 3 steps in a row"):
        writer.append(6, tmp_path / "rows", "x")
    with pytest.raises(StorageError, match="could not be written"):
        writer.flush()


def test_a_stage_does_not_end_without_its_rows(tmp_path, disk):
    tracker = Tracker(tmp_path, console=None, tensorboard=False, total_steps=1)
    disk.full = True
    tracker.log(1, {"train/loss": 1.0})
    with pytest.raises(StorageError, match=r"metrics\.jsonl could not be written"):
        tracker.flush()
    disk.full = False
    tracker.flush()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1
