from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ansatz import files
from ansatz.errors import StorageError
from ansatz.links import make_folder


def test_a_text_replaces_the_file_and_leaves_no_draft(tmp_path):
    path = tmp_path / "deep" / "summary.json"
    files.write_text(path, "old")
    files.write_text(path, "n\N{LATIN SMALL LETTER E WITH ACUTE}w")
    assert path.read_bytes() == b"n\xc3\xa9w"
    assert os.listdir(path.parent) == ["summary.json"]


def test_an_error_while_writing_keeps_the_old_file_and_removes_the_draft(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("old")
    with pytest.raises(TypeError), files.replacing(path) as file:
        file.writelines(["half of the new rows", None])
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["rows.jsonl"]


def test_an_append_that_fails_halfway_leaves_the_file_as_it_was(tmp_path):
    """The limit on the size of a file stands for a full disk. The first 100 bytes of the row still fit."""
    path = tmp_path / "new" / "rows.jsonl"
    files.append_text(path, "a" * 100)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            files.append_text(path, "b" * 300)
        with pytest.raises(OSError, match=r"File too large: '.*whole'"):
            files.write_text(tmp_path / "whole", "b" * 300)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert path.read_text() == "a" * 100
    sentence = files.not_written(path, caught.value, needed=2_500_000)
    assert "rows.jsonl could not be written (File too large; 2.5 MB are needed, " in sentence
    assert "B are free on this disk)." in sentence


def test_a_kill_while_writing_keeps_the_old_file(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("old")
    program = (
        "import os, signal, sys; from pathlib import Path; from ansatz import files\n"
        "with files.replacing(Path(sys.argv[1])) as file:\n"
        "    file.write('half'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert path.read_text() == "old"


def test_content_and_folder_are_flushed_before_and_after_the_rename(tmp_path, monkeypatch):
    path, events = tmp_path / "done.json", []
    monkeypatch.setattr(os, "fsync", lambda descriptor: events.append((descriptor_name(descriptor), path.exists())))
    files.write_text(path, "{}")
    assert events == [(".done.json.draft", False), (tmp_path.name, True)]


def descriptor_name(descriptor):
    return os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))


def test_half_a_character_is_written_as_a_question_mark(tmp_path):
    path = tmp_path / "rows.jsonl"
    files.append_text(path, "a\ud800b\n")
    assert path.read_bytes() == b"a?b\n"
    files.write_text(path, "c\udfffd\n")
    assert path.read_bytes() == b"c?d\n"


def test_a_pipe_or_device_is_neither_replaced_nor_waited_for(tmp_path):
    pipe, device = tmp_path / "deep" / "pipe", tmp_path / "deep" / "null"
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    device.symlink_to("/dev/null")
    for path in (pipe, device):
        for write in (files.write_text, files.append_text):
            with pytest.raises(OSError, match="It is a pipe, a device or a socket, expected a file"):
                write(path, "x")
        with pytest.raises(OSError, match="expected a file"):
            files.check_ordinary_files(tmp_path)
        path.unlink()
    files.check_ordinary_files(tmp_path)


def test_a_private_folder_is_its_users_alone_even_if_it_exists(tmp_path: Path):
    (tmp_path / "old").mkdir(mode=0o755)
    for folder in (tmp_path / "old", tmp_path / "new" / "deep"):
        assert make_folder(folder, private=True).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("number", "advice", "has_sizes"),
    [
        (errno.ENOSPC, "Free some space", True),
        (errno.EDQUOT, "quota", True),
        (errno.EFBIG, "ulimit -f", True),
        (errno.EROFS, "Mount the disk for writing", False),
        (errno.EACCES, "right to write", False),
        (errno.EPERM, "right to write", False),
        (errno.EIO, "disk or its connection fails", False),
        (errno.ELOOP, "Remove the link", False),
        (errno.ENXIO, "Remove the cause", False),
    ],
)
def test_what_cannot_be_written_is_answered_with_what_helps(tmp_path, number, advice, has_sizes):
    error = OSError(number, os.strerror(number))
    assert advice in files.remedy(error)
    assert ("free on this disk" in files.not_written(tmp_path / "x", error)) == has_sizes
    of_weights = StorageError("such as of the weights")
    of_weights.__cause__ = error
    assert files.remedy(of_weights) == files.remedy(error)
    assert files.remedy(StorageError("of a library")) == "Free some space"
