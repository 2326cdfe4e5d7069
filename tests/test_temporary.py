"""Folders of dead processes are removed; those of live ones, of others, and whatever has another name stay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansatz.temporary import folder_of_program, make_folder, remove_abandoned

MAKE = """
import sys, time; from ansatz.temporary import make_folder
print(make_folder("kind", sys.argv[1]), flush=True)
time.sleep(600)
"""


def maker(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", MAKE, str(parent)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_only_what_a_killed_process_has_left_is_removed(tmp_path: Path):
    live, in_use = maker(tmp_path)
    dead, left = maker(tmp_path)
    (left / "locked" / "deep").mkdir(parents=True)
    (left / "locked").chmod(0o000)
    others = [tmp_path / "ansatz-kind-odd", tmp_path / f"{in_use.name.rsplit('-', 4)[0]}-zzzz-1-1-0"]
    for other in others:
        other.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    dead.kill()
    assert dead.wait() == -9
    link = tmp_path / f"{left.name.rpartition('-')[0]}-zz"  # what another user could put there
    link.symlink_to(elsewhere)
    mine, ended = make_folder("kind", str(tmp_path)), list[str]()
    remove_abandoned("kind", str(tmp_path), before=ended.append)
    assert not left.exists()
    assert ended == [str(left)]
    assert all(path.exists() for path in (in_use, mine, elsewhere, link, *others))
    live.kill()
    live.wait()
    remove_abandoned("kind", str(tmp_path))
    assert not in_use.exists()


def test_folders_of_another_user_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    dead, left = maker(tmp_path)
    dead.kill()
    dead.wait()
    monkeypatch.setattr(os, "geteuid", lambda: left.stat().st_uid + 1)
    remove_abandoned("kind", str(tmp_path))
    assert left.exists()


def test_only_the_user_can_enter_a_folder_and_its_path_is_short(tmp_path: Path):
    with folder_of_program("sandbox") as folder:
        assert os.stat(folder).st_mode & 0o777 == 0o700
    assert not os.path.exists(folder)
    longest = "/session_2026-11-24_11-52-55_392535_4194304/sockets/plasma_store"
    assert len(f"/tmp/{make_folder('ray', str(tmp_path)).name}{longest}") <= 107
