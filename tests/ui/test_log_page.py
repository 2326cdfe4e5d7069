"""The page of the log: its lines, the newest first, with the events of the run among them."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

for _package in ("duckdb", "starlette"):
    pytest.importorskip(_package, reason="a package of the viewer is not installed")

from made_up import NASTY  # noqa: E402
from test_viewer_pages import make_run, open_viewer  # noqa: E402

from ansatz.track.console import SafeConsole, open_console  # noqa: E402
from ansatz.track.jsonl import append_jsonl  # noqa: E402
from ansatz.track.rollbacks import Rollback, set_aside, write_rollbacks  # noqa: E402
from ansatz.track.tracker import Tracker  # noqa: E402
from ansatz.ui import pages  # noqa: E402


def read_page(run: Path, query: str = "") -> list[tuple[str, str, str]]:
    """(time, event, text) of each line of the page."""
    page = open_viewer(run.parent, run.parents[1] / "cache").get(f"/run/{run.name}/logs{query}").text
    assert "<img" not in page
    rows = re.findall(r'<tr><th scope="row">(.*?)</th><td class="prose">(.*?)</td></tr>', page, flags=re.DOTALL)
    out = list[tuple[str, str, str]]()
    for time, line in rows:
        event, _, text = line.rpartition("</span> ") if line.startswith("<span") else ("", "", line)
        out.append((time, event.rpartition(">")[2], unescape(text)))
    return out


def log(run: Path, *texts: str, seconds: int = 0) -> None:
    with (run / "log.txt").open("a") as file:
        for second, text in enumerate(texts, start=seconds):
            file.write(f"2026-11-27 {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}  {text}\n")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "runs" / "own")


def test_the_log_shows_its_newest_lines_as_text_and_follows_no_link(run: Path, tmp_path: Path):
    log(run, *(f"line {number}" for number in range(20_000)), "<b>the end\x1b[2J</b>")
    shown = read_page(run)
    assert len(shown) == pages.MAX_LOG_LINES
    assert shown[0] == ("2026-11-27 05:33:20", "", r"<b>the end\x1b[2J</b>")
    assert [text for _, _, text in shown[1:3]] == ["line 19999", "line 19998"]
    assert [text for _, _, text in read_page(run, "?q=LINE+77")][-2:] == ["line 770", "line 77"]
    assert read_page(run, "?q=nothing+of+this") == []
    (tmp_path / "secret").write_text("a secret")
    (run / "log.txt").unlink()
    (run / "log.txt").symlink_to(tmp_path / "secret")
    assert read_page(run) == []


def test_a_long_log_is_read_from_a_whole_line_on(run: Path, monkeypatch: pytest.MonkeyPatch):
    log(run, *(f"line {number}" for number in range(9)))
    monkeypatch.setattr(pages, "MAX_LOG_BYTES", 80)  # a line has 28 bytes
    assert [text for _, _, text in read_page(run)] == ["line 8", "line 7"]
    append_jsonl(run / "rl" / "events.jsonl", {"step": 5, "kind": "alarm", "text": "early"})
    page = open_viewer(run.parent, run.parents[1] / "cache").get(f"/run/{run.name}/logs").text
    assert "<b>3</b> of 3 lines at the end of the log, the rest of which is not read." in page
    assert "Events that these lines do not have come last." in page


def test_an_event_is_marked_where_the_console_has_told_of_it(run: Path):
    """A real console and a real tracker write both files. A text of two lines stays together."""
    console = open_console(SafeConsole(stderr=True), log=run / "log.txt")
    tracker = Tracker(run / "rl", console=console, tensorboard=False, total_steps=9)
    console.note("begins\nin two lines")
    tracker.event(5, "alarm", f"too\nhigh \x1b {NASTY}")
    console.note("step 5: not an event")
    tracker.event(6, "alarm", "again")
    tracker.event(6, "alarm", "again")
    tracker.close()
    shown = read_page(run)
    told = [(event, text) for _, event, text in shown]
    again = ("event: alarm", "rl  step 6: again")
    late = ("event: alarm", rf"rl  step 5: too{chr(10)}high \x1b {NASTY}")
    assert told == [again, again, ("", "step 5: not an event"), late, ("", "begins\nin two lines")]
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d", time) for time, _, _ in shown)
    assert [event for _, event, _ in read_page(run, "?q=event%3A")] == ["event: alarm"] * 3
    assert [text for _, _, text in read_page(run, "?q=too%0Ahigh")] == [late[1]]


def test_events_that_the_log_does_not_have_come_last(run: Path):
    for step, text in ((5, "old"), (6, "older than none")):
        append_jsonl(run / "rl" / "events.jsonl", {"step": step, "kind": "not_saved", "text": text})
    assert read_page(run) == [
        ("–", "event: not saved", "rl  step 6: older than none"),
        ("–", "event: not saved", "rl  step 5: old"),
    ]
    log(run, "rl  step 6: older than none", "later")
    assert [(time[-2:], event) for time, event, _ in read_page(run)] == [
        ("01", ""),
        ("00", "event: not saved"),
        ("–", "event: not saved"),
    ]


def test_an_event_of_a_step_that_a_rollback_dropped_says_so(run: Path):
    log(run, "rl  step 4: first", "rl  step 4: first")
    append_jsonl(run / "rl" / "events.jsonl", {"step": 4, "kind": "alarm", "text": "first"})
    dropped = [Rollback(from_step=4, to_step=2, rule="r", lr_scale=1.0, attempts=1)]
    set_aside(run / "rl", dropped)
    write_rollbacks(run / "rl", dropped)
    (run / "rl" / "events.jsonl").unlink()
    append_jsonl(run / "rl" / "events.jsonl", {"step": 4, "kind": "alarm", "text": "first"})
    assert [event for _, event, _ in read_page(run)] == ["event: alarm", "event: alarm, dropped by rollback 1"]
