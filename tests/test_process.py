"""The command's own process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import torch

from ansatz.process import keep_settings, report_exits, take_notes

SCRIPT = """
import os
from ansatz.process import report_exits

with report_exits("Remove the call."):
    os._exit(0)
"""


def test_an_exit_of_users_code_in_the_middle_is_said_and_has_another_code():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "ansatz: os._exit(0) was called in <string>, line 6. Remove the call.\n"


def test_a_fork_ends_as_it_likes_and_afterwards_everything_is_as_before():
    before = os._exit
    with report_exits("Remove the call."):
        if (child := os.fork()) == 0:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert os._exit is before


def test_blocks_that_overlap_put_back_what_was_there_before_all_of_them(tmp_path, monkeypatch):
    """The second block begins while the first has left another folder, and changes it once more."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first, second = keep_settings("the first"), keep_settings("the second")
    first.__enter__()
    os.chdir(tmp_path / "one")
    second.__enter__()
    first.__exit__(None, None, None)
    assert os.getcwd() == str(tmp_path)
    os.chdir(tmp_path / "two")
    second.__exit__(None, None, None)
    assert os.getcwd() == str(tmp_path)
    assert [sentence.split(" changed ")[0] for sentence in take_notes()] == ["the first", "the second"]


def test_a_block_that_never_ends_does_not_hold_the_process_to_what_it_began_with(tmp_path, monkeypatch):
    hanging, go = threading.Event(), threading.Event()

    def hang():
        with keep_settings("a reward that hangs"):
            hanging.set()
            go.wait()

    thread = threading.Thread(target=hang)
    thread.start()
    hanging.wait()
    monkeypatch.chdir(tmp_path)
    with keep_settings("another"):
        torch.set_default_dtype(torch.float64)
    assert (os.getcwd(), torch.get_default_dtype()) == (str(tmp_path), torch.float32)
    assert [sentence.split(" changed ")[0] for sentence in take_notes()] == ["another"]
    monkeypatch.undo()
    go.set()
    thread.join()
    assert take_notes() == []
