"""What a sweep file that cannot be used is answered with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansatz.errors import ConfigError
from ansatz.findings.sweep_file import read_sweep


def make_folder(path: Path) -> None:
    path.mkdir()


def make_binary(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")


def make_list(path: Path) -> None:
    path.write_text("[1, 2]")


def make_nothing(path: Path) -> None:
    assert not path.exists()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (make_nothing, "does not exist"),
        (make_folder, "is a folder, expected a file"),
        (os.mkfifo, "is a pipe, a device or a socket, expected a file"),
        (make_binary, "is not a text file"),
        (make_list, "contains no mapping"),
    ],
)
def test_a_file_that_cannot_be_read_is_answered_with_what_is_there(tmp_path, make, sentence):
    path = tmp_path / "lr.yaml"
    make(path)
    with pytest.raises(ConfigError, match=f"lr.yaml.* {sentence}"):
        read_sweep(path)
