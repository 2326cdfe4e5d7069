"""Notes in the viewer over HTTP: who may save one, what is shown of it, and what filters and exports make of labels."""

from __future__ import annotations

import csv
import io
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

for _package in ("duckdb", "starlette"):
    pytest.importorskip(_package, reason="a package of the viewer is not installed")

from starlette.testclient import TestClient  # noqa: E402
from test_viewer_pages import HOSTILE, make_run  # noqa: E402

from ansatz.track.jsonl import to_line  # noqa: E402
from ansatz.track.notes import notes_path, read_notes  # noqa: E402
from ansatz.ui.app import MAX_BYTES, build_app  # noqa: E402
from ansatz.ui.library import Library  # noqa: E402

PAGE = "/run/one/rollout/rl/1/0/0"
NOTE = {"run": "one", "rollout": "rl/1/0/0", "label": "hack", "text": "guesses"}
ORIGIN = "http://testserver"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return make_run(tmp_path / "runs" / "one")


def open_viewer(run: Path, *, token: str = "", notes_in_run: bool = False, cache: str = "cache") -> TestClient:
    library = Library([run.parent], cache=run.parents[1] / cache, notes_in_run=notes_in_run)
    return TestClient(build_app(library, token=token, hosts=["testserver"]), follow_redirects=False)


def page_token(viewer: TestClient) -> str:
    return viewer.get(PAGE).text.partition('data-token="')[2].partition('"')[0]


def save(viewer: TestClient, note: Any = NOTE, **headers: str) -> Any:
    """Send a note as the script of the page does. headers: other ones; an empty one is left out."""
    how = {"content-type": "application/json", "origin": ORIGIN, "x-page-token": page_token(viewer)}
    how |= {name.replace("_", "-"): value for name, value in headers.items()}
    body = note if isinstance(note, bytes) else json.dumps(note).encode()
    return viewer.post("/api/notes", content=body, headers={name: value for name, value in how.items() if value})


def test_a_note_is_shown_on_its_response_and_in_lists_and_writes_nothing_into_the_run(run: Path):
    viewer = open_viewer(run)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert "no notes</a>" in viewer.get(PAGE).text
    assert save(viewer).status_code == 201
    page = viewer.get(PAGE).text
    assert "1 note</a>" in page
    assert "<p>guesses</p>" in page
    assert f"Saved in {notes_path(run)}" in page
    assert "guesses" not in viewer.get("/run/one/rollout/rl/1/0/1").text
    for list_page in ("/run/one/rollouts?q=step+%3D+1", "/run/one/group/rl/1/0"):
        assert viewer.get(list_page).text.count('<span class="badge label">hack</span>') == 1
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_notes_in_the_run_are_written_there_and_read_by_every_viewer(run: Path):
    assert save(open_viewer(run, notes_in_run=True)).status_code == 201
    assert json.loads((run / "notes.jsonl").read_text())["text"] == "guesses"
    assert not notes_path(run).exists()
    assert "<p>guesses</p>" in open_viewer(run, cache="other").get(PAGE).text


def test_a_label_is_a_filter_without_reading_the_run_again(run: Path):
    viewer = open_viewer(run)
    everything = len(viewer.get("/run/one/rollouts.jsonl").text.splitlines())

    def found(query: str) -> list[str]:
        return sorted(
            json.loads(line)["id"] for line in viewer.get(f"/run/one/rollouts.jsonl?q={query}").text.splitlines()
        )

    assert found("label+%3D+hack") == []
    save(viewer)
    save(viewer, {**NOTE, "rollout": "rl/2/0/1", "label": "odd"})
    save(viewer, {**NOTE, "rollout": "rl/2/0/1"})
    assert found("label+%3D+hack") == ["rl/1/0/0", "rl/2/0/1"]
    assert found("label+!%3D+hack") == ["rl/2/0/1"]
    assert found("label+in+(odd,+other)+and+step+%3D+2") == ["rl/2/0/1"]
    assert len(found("not+label+%3D+hack")) == everything - 2
    page = viewer.get("/run/one/rollouts").text
    assert ('href="?q=label%20%3D%20hack">labelled hack (2)' in page, "labelled odd (1)" in page) == (True, True)
    table = csv.DictReader(io.StringIO(viewer.get("/run/one/rollouts.csv?q=step+2..2").text))
    assert {row["id"]: row["label"] for row in table if row["label"]} == {"rl/2/0/1": "odd hack"}
    assert "not sorted by them" in viewer.get("/run/one/rollouts?sort=label").text


def test_hostile_notes_stay_text_wherever_they_are_shown(run: Path):
    viewer = open_viewer(run)
    assert save(viewer, {**NOTE, "text": HOSTILE, "label": ""}).status_code == 201
    shared = {"rollout": "rl/1/0/0", "label": "x", "text": HOSTILE, "who": HOSTILE, "time": HOSTILE}
    (run / "notes.jsonl").write_bytes(to_line(shared).encode(errors="replace") + b'{"rollout": "<img src=x>"')
    pages = [viewer.get(address).text for address in (PAGE, "/run/one/rollouts", "/run/one/group/rl/1/0")]
    assert pages[0].count("{{7*7}}") == 4
    for page in pages:
        assert "<img" not in page
        assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e\ud800]", page)
        assert "{49}" not in page
        assert not re.search(r"<script(?! type=\"module\" src=\"/static/)", page)
    assert f"{run}/notes.jsonl: line 2 cannot be read as a note" in unescape(pages[0])
    assert "cannot be read as a note" in pages[1]


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        ({"content_type": ""}, 415, "as application/json"),
        ({"content_type": "text/plain"}, 415, "as application/json"),
        ({"content_type": "application/x-www-form-urlencoded"}, 415, "as application/json"),
        ({"origin": ""}, 403, "the Origin of this one is another"),
        ({"origin": "null"}, 403, "the Origin of this one is another"),
        ({"origin": "http://testserver:81"}, 403, "the Origin of this one is another"),
        ({"origin": "http://evil.example"}, 403, "the Origin of this one is another"),
        ({"origin": "http://evil.example/testserver"}, 403, "the Origin of this one is another"),
        ({"x_page_token": ""}, 403, "Load the page again"),
        ({"x_page_token": "x"}, 403, "Load the page again"),
        ({"host": "evil.example", "origin": "http://evil.example"}, 421, "name of the host"),
    ],
)
def test_a_note_from_elsewhere_is_refused(run: Path, headers: dict[str, str], status: int, words: str):
    viewer = open_viewer(run)
    answer = save(viewer, **headers)
    assert (answer.status_code, words in answer.text) == (status, True), answer.text
    assert read_notes(run).by_rollout == {}


def test_a_note_needs_the_token_of_the_viewer_too_and_that_of_another_viewer_is_another(run: Path):
    viewer = open_viewer(run, token="secret")
    viewer.get("/?token=secret")
    of_page = page_token(viewer)
    assert of_page not in ("", "secret", page_token(open_viewer(run, cache="other")))
    assert save(viewer).status_code == 201
    viewer.cookies.clear()
    assert save(viewer, x_page_token=of_page).status_code == 403
    assert len(read_notes(run).by_rollout["rl/1/0/0"]) == 1


@pytest.mark.parametrize(
    ("note", "status", "words"),
    [
        ({**NOTE, "label": "two words"}, 400, "one word of at most 40 letters"),
        ({**NOTE, "label": "<b>"}, 400, "one word of at most 40 letters"),
        ({**NOTE, "label": "", "text": " "}, 400, "the note is empty"),
        ({**NOTE, "text": "x" * 10_001}, 400, "10001 characters"),
        ({**NOTE, "text": 5}, 400, "is not a note"),
        ({**NOTE, "rollout": "rl/1/0/99"}, 404, "has no response"),
        ({**NOTE, "rollout": "../../x"}, 404, "has no response"),
        ({**NOTE, "run": "../one"}, 404, "is not a run"),
        ({**NOTE, "run": ["one"]}, 404, "is not a run"),
        ([NOTE], 400, "is not a note"),
        (b"{", 400, "The note is not saved"),
        (b"\xff", 400, "The note is not saved"),
        (b"", 400, "The note is not saved"),
        (b"[" * 5000, 400, "The note is not saved"),
        (b" " * (MAX_BYTES + 1), 413, "in at most 65536 bytes"),
    ],
)
def test_what_is_not_a_note_on_a_response_is_refused_in_words(run: Path, note: Any, status: int, words: str):
    answer = save(open_viewer(run), note)
    assert (answer.status_code, words in answer.text) == (status, True), answer.text
    assert read_notes(run).by_rollout == {}


def test_a_note_that_cannot_be_written_says_why(run: Path, tmp_path: Path):
    (tmp_path / "data").write_text("a file where the folder of the notes would be")
    answer = save(open_viewer(run))
    assert answer.status_code == 400
    assert "could not be written" in answer.text
    assert "The note is not saved" in answer.text


@pytest.mark.parametrize("address", ["/", PAGE, "/api/state", "/api/notes/"])
def test_nothing_else_can_be_posted(run: Path, address: str):
    viewer = open_viewer(run)
    headers = {"content-type": "application/json", "origin": ORIGIN, "x-page-token": page_token(viewer)}
    assert viewer.post(address, content=b"{}", headers=headers).status_code == 405
    assert viewer.put("/api/notes", content=b"{}", headers=headers).status_code == 405
    assert viewer.get("/api/notes").status_code == 405
