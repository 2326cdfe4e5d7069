"""Pages in one file say the same as those of the viewer, load nothing, and have no link."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

for _package in ("duckdb", "starlette"):
    pytest.importorskip(_package, reason="a package of the viewer is not installed")

from made_up import NASTY  # noqa: E402
from starlette.testclient import TestClient  # noqa: E402
from test_sweep_pages import row_of, write_rows  # noqa: E402
from test_viewer_pages import HOSTILE, make_run, open_viewer  # noqa: E402

from ansatz.track.report import write_report  # noqa: E402
from ansatz.ui.demo import write_tour  # noqa: E402

Command = Callable[..., tuple[int, str, str]]


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


def bare(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command without the packages of the viewer."""
    code = (
        "import sys; sys.modules |= dict.fromkeys(('starlette', 'duckdb', 'uvicorn', 'latex2mathml'))\n"
        "from ansatz.cli.main import main; main()"
    )
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def rows_of(page: str) -> list[str]:
    """The rows of all tables as text."""
    return [re.sub(r"\s+", " ", unescape(re.sub("<[^>]*>", " ", row))) for row in re.findall(r"<tr.*?</tr>", page)]


def charts_of(page: str) -> list[str]:
    return re.findall(r'<svg class="chart" .*?</svg>', page)


class Tags(HTMLParser):
    """The tags of a page with the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, list[str]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, [name for name, _ in attrs]))


def check_static(page: str) -> None:
    """It is whole, loads nothing, leads nowhere, and what others wrote is text."""
    assert page.count("<h1>") == 1
    assert page.count("<script>") == 1
    assert "default-src 'none'" in unescape(page)
    tags = Tags(page)
    assert not {"a", "form", "i", "iframe", "img", "link"} & {name for name, _ in tags.found}
    attributes = {name for _, each in tags.found for name in each}
    assert not [name for name in attributes if name.startswith("on") or name in ("action", "href", "src", "style")]
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
    assert bare("report", *(runs / name for name in names), "--out", out).returncode == 0
    page, served = out.read_text(encoding="utf-8"), viewer.get(f"/compare?runs={','.join(names)}").text
    check_static(page)
    assert rows_of(page) == rows_of(served)
    assert charts_of(page) == charts_of(served)


def test_what_is_known_of_a_run_is_on_its_report_and_its_page_whatever_the_file_says(runs: Path, viewer: TestClient):
    report = write_report(runs / "hostile").read_text(encoding="utf-8")
    pattern = '<dl class="card facts record">.*?</dl>'
    (facts,) = re.findall(pattern, report, re.DOTALL)
    assert re.findall(pattern, viewer.get("/run/hostile/recipe").text, re.DOTALL) == [facts]
    assert facts.count("&lt;script&gt;") == 4
    assert "<dd>2</dd>" in facts
    for damaged in ('{"changes": 5, "ansatz": "1", "code": 1, "identities": 3}', '{"ansatz": [}'):
        (runs / "demo" / "run.json").write_text(damaged)
        check_static(write_report(runs / "demo").read_text(encoding="utf-8"))
        assert viewer.get("/run/demo/recipe").status_code == 200


def test_responses_that_pass_a_filter_are_cards_as_on_the_pages_of_their_groups(
    runs: Path, viewer: TestClient, tmp_path: Path
):
    out = tmp_path / "share.html"
    done = bare("report", runs / "demo", "--rollouts", "correct and truncated", "--limit", 12, "--out", out)
    assert (done.returncode, done.stdout) == (0, f"{out}\n"), done.stderr
    page = out.read_text(encoding="utf-8")
    check_static(page)
    count, total = re.findall(r"<b>(\d+)</b> responses .* the first of (\d+) that", page)[0]
    table = viewer.get("/run/demo/rollouts?q=correct+and+truncated").text
    assert (count, re.findall(r"<b>(\d+)</b> of", table)) == ("12", [total])
    groups = re.findall(r"<h2>rl, step (\d+), group (\d+)</h2>\n(.*?)</section>", page, re.DOTALL)
    cards = [card for *_, text in groups for card in re.findall("<article.*?</article>", text, re.DOTALL)]
    assert len(cards) == 12
    for step, number, text in groups:
        served = viewer.get(f"/run/demo/group/rl/{step}/{number}").text
        for pattern in ('<p class="question">.*?</p>', '<p class="facts">.*?</p>'):
            assert re.findall(pattern, text) == re.findall(pattern, served)
        facts = re.findall("<dl>.*?</dl>", text)
        assert facts
        assert set(facts) <= set(re.findall("<dl>.*?</dl>", served))


def test_the_two_commands_for_a_page_of_responses_write_the_same_and_hostile_ones_are_text(
    runs: Path, tmp_path: Path, ansatz: Command, monkeypatch: pytest.MonkeyPatch
):
    names = [tmp_path / name for name in ("report.html", "rollouts.html")]
    assert bare("report", runs / "hostile", "--rollouts", "other(last_number) or correct", "--out", names[0]).stdout
    assert bare("rollouts", runs / "hostile", "--where", "other(last_number) or correct", "--html", names[1]).stdout
    first, second = (name.read_text(encoding="utf-8") for name in names)
    assert first == second
    check_static(first)
    assert "&lt;img" in first
    monkeypatch.chdir(tmp_path)
    assert ansatz("report", runs / "demo", "--rollouts", "step < 0")[1] == "reports/demo-responses.html\n"
    assert "No response passes" in (tmp_path / "reports" / "demo-responses.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["demo", "hostile", "--rollouts", "correct"], "those of one run"),
        (["demo", "--limit", "3"], "those of one run"),
        (["demo", "--rollouts", "trunctaed"], "did you mean 'truncated'"),
        (["none", "--rollouts", ""], "is not a folder"),
        (["demo", "--rollouts", "", "--out", "demo/summary.json"], "both read and written"),
    ],
)
def test_a_report_of_responses_that_cannot_be_written_is_one_sentence(
    runs: Path, arguments: list[str], said: str, ansatz: Command, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(runs)
    code, _, err = ansatz("report", *arguments)
    assert (code, said in err, err.count("\n")) == (2, True, 1), err


def test_a_sweep_in_one_file_is_its_page_with_every_outcome(tmp_path: Path, ansatz: Command):
    rows = [row_of(block, f"lr {lr}, kl {kl}", lr + kl) for block in (0, 1) for lr in (0.1, 0.2) for kl in (0, 1)]
    file = write_rows(tmp_path / "runs" / "sweeps" / "grid.jsonl", rows, control="lr 0.2, kl 0")
    done = bare("report", "grid", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "reports/grid.html\n"), done.stderr
    page = (tmp_path / "reports" / "grid.html").read_text(encoding="utf-8")
    check_static(page)
    viewer = open_viewer(file.parent, tmp_path / "cache")
    served = [viewer.get(f"/sweep/grid?outcome={outcome}").text for outcome in ("exact_pass@k", "other")]
    tables = [rows_of(each) for each in served]
    num_guards = len(rows) // 2 + 1  # the last table: its head and a row for each arm
    assert rows_of(page) == tables[0][:-num_guards] + tables[1]
    assert charts_of(page) == charts_of(served[0])
    assert ansatz("report", file, "--out", tmp_path / "same.html")[0] == 0
    assert (tmp_path / "same.html").read_text(encoding="utf-8") == page


def test_a_hostile_sweep_is_text_and_a_damaged_one_is_a_sentence(tmp_path: Path, ansatz: Command):
    odd = HOSTILE.replace("\ud800", "")  # rows with half a character are refused
    row = row_of(0, odd, 0.5, why=odd, status="failed", outcomes={odd: 0.5}, curves={odd: [[0, 1.0], [1, 2.0]]})
    file = write_rows(tmp_path / "odd.jsonl", [row], file=odd)
    assert ansatz("report", file, "--out", tmp_path / "odd.html")[0] == 0
    check_static((tmp_path / "odd.html").read_text(encoding="utf-8"))
    damaged = write_rows(tmp_path / "damaged.jsonl", [{"block": "first"}])
    other = tmp_path / "other.jsonl"
    other.write_text('{"question": "1 + 1?"}\n')
    for given, said in (([damaged], "line 2: "), ([other], "is not a run folder"), ([file, file], "one sweep")):
        code, _, err = ansatz("report", *given, "--out", tmp_path / "none.html")
        assert (code, said in err, err.count("\n")) == (2, True, 1), err
    assert "both read and written" in ansatz("report", file, "--out", file)[2]
    assert not (tmp_path / "none.html").exists()
