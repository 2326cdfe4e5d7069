"""The reading path of docs/architecture.md: its files exist, and they are as few and as short as the page promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def read_path() -> list[tuple[int, int, list[str]]]:
    """Return (files, lines, paths so far) of each of the two parts: what the page promises, and what it lists."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = page.split("## A reading path\n")[1].split("\n## ")[0]
    promises = [(int(files), int(lines.replace(",", ""))) for files, lines in PROMISE.findall(section)]
    paths, parts = list[str](), []
    for part, (files, lines) in zip(PROMISE.split(section)[3::3], promises, strict=True):
        paths += re.findall(r"^\| `([^`]+)`", part, flags=re.MULTILINE)
        parts.append((files, lines, list(paths)))
    return parts


PROMISE = re.compile(r"(\d+) files, at most ([\d,]+) lines")


@pytest.mark.parametrize("part", [0, 1], ids=["one sitting", "one weekend"])
def test_the_reading_path_is_as_short_as_the_page_says(part):
    files, lines, paths = read_path()[part]
    assert len(paths) == len(set(paths)) == files
    assert sum(len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in paths) <= lines
