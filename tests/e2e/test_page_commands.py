"""The commands of pages run in an empty folder, with the files that the page says to save."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from executed_pages import EXECUTED, shown_commands


@pytest.mark.slow
@pytest.mark.parametrize("page", EXECUTED, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run_in_an_empty_folder(page, tmp_path):
    text = page.read_text(encoding="utf-8")
    for name, content in re.findall(r"`([\w.]+)`:\n\n```\w+\n(.*?)^```", text, re.S | re.M):
        (tmp_path / name).write_text(content, encoding="utf-8")
    (tmp_path / "ansatz").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ansatz "$@"\n', encoding="utf-8")
    (tmp_path / "ansatz").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    for block in shown_commands(page):
        done = subprocess.run(
            ["sh", "-e", "-c", block], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{block}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
