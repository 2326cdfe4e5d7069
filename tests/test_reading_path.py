"""The reading path of docs/architecture.md: its files exist, and they are as few and as short as the page promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def read_path() -> list[tuple[int, int, list[tuple[str, str]]]]:
    """Return (files, lines, rows so far) of each of the two parts: what the page promises, and what it lists.

    A row is a path and the name at which the reader stops, which is empty where the whole file is read.
    """
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = page.split("## A reading path\n")[1].split("\n## ")[0]
    promises = [(int(files), int(lines.replace(",", ""))) for files, lines in PROMISE.findall(section)]
    rows, parts = list[tuple[str, str]](), []
    for part, (files, lines) in zip(PROMISE.split(section)[3::3], promises, strict=True):
        rows += ROW.findall(part)
        parts.append((files, lines, list(rows)))
    return parts


PROMISE = re.compile(r"(\d+) files, at most ([\d,]+) lines")
ROW = re.compile(r"^\| `([^`]+)` \|.*?(?:Stop at `([^`]+)`.*)?\|$", flags=re.MULTILINE)


def lines_to_read(path: str, stop: str) -> int:
    text = (ROOT / path).read_text(encoding="utf-8")
    if stop:
        (end,) = (match.start() for match in re.finditer(rf"^ *(?:def|class) {stop}\b", text, flags=re.MULTILINE))
        text = text[:end]
    return len(text.splitlines())


@pytest.mark.parametrize("part", [0, 1], ids=["one sitting", "one weekend"])
def test_the_reading_path_is_as_short_as_the_page_says(part):
    files, lines, rows = read_path()[part]
    assert len(rows) == len(dict(rows)) == files
    assert sum(lines_to_read(path, stop) for path, stop in rows) <= lines
