from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys

import pytest

from ansatz.errors import ConfigError
from ansatz.locks import folder_lock, is_held

HOLD = """
import sys, time; from pathlib import Path; from ansatz.locks import folder_lock
with folder_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_process_is_refused_and_told_the_pid_of_the_first(tmp_path, holder):
    with pytest.raises(ConfigError, match=rf"is in use by the process with pid {holder.pid}\."), folder_lock(tmp_path):
        pass


def test_a_killed_process_leaves_the_folder_free(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with folder_lock(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"


def test_a_folder_is_held_while_the_process_lives_that_has_its_lock(tmp_path, holder):
    assert is_held(tmp_path)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert not is_held(tmp_path)
    (tmp_path / ".lock").write_text(f"{os.getpid()}\n")  # another process has this number now
    assert not is_held(tmp_path)


def test_the_lock_is_released_at_the_end_of_the_block(tmp_path):
    taken = 0
    for _ in range(2):
        with folder_lock(tmp_path / "new"):
            taken += 1
    assert taken == 2


@pytest.mark.parametrize("replaced", [False, True])
def test_a_removed_lock_file_lets_no_second_process_in(tmp_path, holder, replaced):
    (tmp_path / ".lock").unlink()
    if replaced:
        (tmp_path / ".lock").write_text("12345\n")
    with pytest.raises(ConfigError, match="is in use by the process with pid"), folder_lock(tmp_path):
        pass


def test_a_held_folder_says_what_happened_to_it(tmp_path):
    folder = tmp_path / "run"
    with folder_lock(folder) as lock:
        assert lock.check() is None
        (folder / ".lock").unlink()
        assert "was removed or replaced" in lock.check()
        assert lock.check() is None
        assert (folder / ".lock").read_text() == f"{os.getpid()}\n"
        folder.rename(tmp_path / "other")
        with pytest.raises(ConfigError, match="was moved, removed or replaced"):
            lock.check()
        folder.mkdir()  # a new folder with the old name is not the one that is held
        with pytest.raises(ConfigError, match="was moved, removed or replaced"):
            lock.check()


def test_where_folders_cannot_be_locked_a_lock_file_of_another_process_ends_the_use(tmp_path, monkeypatch):
    flock = fcntl.flock

    def only_files(descriptor, operation):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(9, "Bad file descriptor")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", only_files)
    with folder_lock(tmp_path) as lock:
        (tmp_path / ".lock").unlink()
        assert "has been made again" in lock.check()
        (tmp_path / ".lock").unlink()
        (tmp_path / ".lock").write_text("12345\n")
        with pytest.raises(ConfigError, match="names the process with pid 12345"):
            lock.check()
