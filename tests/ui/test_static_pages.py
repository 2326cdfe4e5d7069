"""Pages in one file say the same as those of the viewer, load nothing, and have no link."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

for _package in ("duckdb", "starlette"):
    pytest.importorskip(_package, reason="the extra ui is not installed")

from made_up import NASTY  # noqa: E402
from starlette.testclient import TestClient  # noqa: E402
from test_viewer_pages import HOSTILE, make_run, open_viewer  # noqa: E402

from ansatz.track.report import write_report  # noqa: E402
from ansatz.ui.demo import write_tour  # noqa: E402


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tour of two runs, and one with hostile texts."""
    folder = write_tour(tmp_path_factory.mktemp("runs"))
    hostile = make_run(folder / "hostile", text=HOSTILE, level="<i>1</i>")
    record = {"ansatz": NASTY, "identities": ["0", NASTY], "code": {NASTY: NASTY}, "changes": [1, 2]}
    (hostile / "run.json").write_text(json.dumps(record))
    return folder


@pytest.fixture(scope="module")
def viewer(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return open_viewer(runs, tmp_path_factory.mktemp("cache"))


def ansatz(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ansatz", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rows_of(page: str) -> list[str]:
    """The rows of all tables as text."""
    return [re.sub(r"\s+", " ", unescape(re.sub("<[^>]*>", " ", row))) for row in re.findall(r"<tr.*?</tr>", page)]


def charts_of(page: str) -> list[str]:
    return re.findall(r'<svg class="chart" .*?</svg>', page)


def check_static(page: str) -> None:
    """It is whole, loads nothing, leads nowhere, and what others wrote is text."""
    assert page.count("<h1>") == 1
    assert page.count("<script>") == 1
    assert "default-src 'none'" in unescape(page)
    assert not re.search(r"<[^>]+\s(src|href|action|style|on\w+)=", page)
    assert not re.search("<(img|i|link|form)[ >]", page)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e\ud800]", page)
    assert not re.search(r"url\(|@import|\{49\}", page)
    assert NASTY not in page


def test_the_report_and_the_viewer_show_the_same_tables_charts_and_checks(runs: Path, viewer: TestClient):
    for name in ("demo", "hostile"):
        report = write_report(runs / name).read_text(encoding="utf-8")
        check_static(report)
        overview, metrics, health = (viewer.get(f"/run/{name}{page}").text for page in ("", "/metrics", "/health"))
        assert len(rows_of(overview)) > 5
        assert set(rows_of(overview)) <= set(rows_of(report))
        assert len(charts_of(metrics)) > 10
        assert set(charts_of(metrics)) < set(charts_of(report))
        assert re.findall('<li class="(?:fine|warn)">.*?</li>', health) == re.findall(
            '<li class="(?:fine|warn)">.*?</li>', report
        )
        assert re.findall('<div class="card tile">.*?</div>', overview) == re.findall(
            '<div class="card tile">.*?</div>', report
        )


def test_the_report_of_several_runs_is_the_page_of_the_viewer(runs: Path, viewer: TestClient, tmp_path: Path):
    names = ("demo", "demo_fewer_prompts")
    out = tmp_path / "both.html"
    assert ansatz("report", *(runs / name for name in names), "--out", out).returncode == 0
    page, served = out.read_text(encoding="utf-8"), viewer.get(f"/compare?runs={','.join(names)}").text
    check_static(page)
    assert rows_of(page) == rows_of(served)
    assert charts_of(page) == charts_of(served)


def test_what_is_known_of_a_run_is_on_its_report_and_its_page_whatever_the_file_says(runs: Path, viewer: TestClient):
    report = write_report(runs / "hostile").read_text(encoding="utf-8")
    pattern = '<dl class="card facts">.*?</dl>'
    (facts,) = re.findall(pattern, report, re.DOTALL)
    assert re.findall(pattern, viewer.get("/run/hostile/recipe").text, re.DOTALL) == [facts]
    assert facts.count("&lt;script&gt;") == 4
    assert "<dd>2</dd>" in facts
    for damaged in ('{"changes": 5, "ansatz": "1", "code": 1, "identities": 3}', '{"ansatz": [}'):
        (runs / "demo" / "run.json").write_text(damaged)
        check_static(write_report(runs / "demo").read_text(encoding="utf-8"))
        assert viewer.get("/run/demo/recipe").status_code == 200
