from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from ansatz.errors import ConfigError
from ansatz.locks import folder_lock

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


def test_the_lock_is_released_at_the_end_of_the_block(tmp_path):
    taken = 0
    for _ in range(2):
        with folder_lock(tmp_path / "new"):
            taken += 1
    assert taken == 2
