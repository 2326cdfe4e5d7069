"""Files of notes: where they lie, what is read, and what appending can meet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansatz.errors import ConfigError, StorageError
from ansatz.track.filters import Compare, FilterError, Within, check_sort, parse_filter
from ansatz.track.notes import MAX_TEXT, add_note, notes_path, read_notes, resolve_labels
from ansatz.track.rollout_table import KINDS


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("LOGNAME", "ana")
    (tmp_path / "runs" / "one").mkdir(parents=True)
    return tmp_path / "runs" / "one"


def note(text: str = "", *, label: str = "", rollout: str = "rl/1/0/0") -> dict[str, Any]:
    return {"rollout": rollout, "label": label, "text": text}


def texts(run: Path, rollout: str = "rl/1/0/0") -> list[str]:
    return [row["text"] for row in read_notes(run).by_rollout.get(rollout, [])]


def mark(run: Path, identity: str) -> Path:
    run.mkdir(parents=True, exist_ok=True)
    (run / "run.json").write_text(json.dumps({"recipe": {}, "changes": [], "identities": [identity, "later"]}))
    return run


def test_a_note_is_one_line_that_says_who_wrote_it_and_when(run: Path):
    path = notes_path(run)
    add_note(path, note("line\none \u2028", label="hack"))
    (line,) = path.read_text().split("\n")[:-1]
    row = json.loads(line)
    assert list(row) == ["rollout", "label", "text", "who", "time"]
    assert (row["who"], row["text"]) == ("ana", "line\none \u2028")
    assert row["time"].endswith("Z")
    assert read_notes(run).by_rollout == {"rl/1/0/0": [row]}
    assert [path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o111] == [0o700, 0]
    assert list(run.iterdir()) == []


def test_a_run_keeps_its_notes_when_it_is_moved_and_another_one_has_its_own(run: Path, tmp_path: Path):
    add_note(notes_path(mark(run, "a")), note("first"))
    moved = run.rename(tmp_path / "one")
    assert texts(moved) == ["first"]
    assert texts(mark(run, "b")) == []
    assert texts(mark(run.with_name("two"), "a")) == []
    assert notes_path(mark(run.with_name("a b"), "a")) != notes_path(mark(run.with_name("a_b"), "a"))


@pytest.mark.parametrize("content", [None, "", "[]", "{", '{"identities": []}', '{"identities": 5}', "[" * 5000])
def test_a_folder_without_an_identity_is_known_by_its_path(run: Path, content: str | None):
    if content is not None:
        (run / "run.json").write_text(content)
    add_note(notes_path(run), note("here"))
    assert texts(run) == ["here"]
    other = run.parents[1] / "elsewhere" / "one"
    other.mkdir(parents=True)
    assert texts(other) == []


def test_notes_in_the_run_go_with_it_and_are_read_together_with_those_of_the_reader(run: Path, tmp_path: Path):
    add_note(notes_path(run), note("mine", label="odd"))
    add_note(notes_path(run, in_run=True), note("ours", label="hack"))
    assert texts(run) == ["mine", "ours"]
    assert read_notes(run).labels == {"rl/1/0/0": ["odd", "hack"]}
    assert texts(run.rename(tmp_path / "copy")) == ["ours"]


@pytest.mark.parametrize(
    "line",
    [
        '{"rollout": "rl/1/0/0", "label": "ha',
        "[1]",
        "null",
        '{"rollout": 5, "label": "hack", "text": ""}',
        '{"rollout": "rl/1/0/0", "label": "two words", "text": ""}',
        '{"rollout": "rl/1/0/0", "text": ["x"]}',
        '{"rollout": "rl/1/0/0", "text": "\\ud800"}',
        "\x00\xff",
        "[" * 5000,
    ],
)
def test_a_damaged_line_is_left_out_and_said_and_the_next_note_is_whole(run: Path, line: str):
    path = notes_path(run)
    add_note(path, note("before"))
    with path.open("ab") as file:
        file.write(line.encode("latin-1"))  # without its newline, as after a kill
    assert texts(run) == ["before"]
    add_note(path, note("after"))
    found = read_notes(run)
    assert texts(run) == ["before", "after"]
    assert found.notices == [f"{path}: line 2 cannot be read as a note and is left out. Correct the file."]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (note(), "the note is empty"),
        (note(" \n"), "the note is empty"),
        (note(label="two words"), "one word of at most 40 letters"),
        (note(label="häck"), "one word of at most 40 letters"),
        (note(label="x" * 41), "one word of at most 40 letters"),
        (note("x" * (MAX_TEXT + 1)), f"{MAX_TEXT + 1} characters"),
        (note("x", rollout=""), "is not a note"),
        ({"rollout": "a", "text": None}, "is not a note"),
        (["rollout"], "is not a note"),
    ],
)
def test_what_is_not_a_note_is_refused_before_anything_is_written(run: Path, row: Any, words: str):
    with pytest.raises(ConfigError, match=words):
        add_note(notes_path(run), row)
    assert not notes_path(run).exists()


def test_notes_of_many_processes_are_all_whole(run: Path):
    code = (
        "import sys; from pathlib import Path; from ansatz.track.notes import add_note\n"
        "for number in range(50):\n"
        "    text = sys.argv[2] * 3000 + str(number)\n"
        "    add_note(Path(sys.argv[1]), {'rollout': 'a', 'label': '', 'text': text})"
    )
    command = [sys.executable, "-c", code, str(notes_path(run))]
    writers = [subprocess.Popen([*command, letter]) for letter in "abcd"]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0, 0]
    found = read_notes(run)
    assert found.notices == []
    assert sorted(texts(run, "a")) == sorted(f"{letter * 3000}{number}" for letter in "abcd" for number in range(50))


def test_a_link_or_a_pipe_in_the_place_of_notes_is_neither_read_nor_written(run: Path, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text(json.dumps({**note("a secret"), "who": "", "time": ""}) + "\n")
    for name in (notes_path(run, in_run=True), run / "run.json"):
        name.symlink_to(secret)
    before = secret.read_bytes()
    assert texts(run) == []
    assert "cannot be read" in read_notes(run).notices[0]
    with pytest.raises(StorageError, match=r"notes\.jsonl could not be written"):
        add_note(notes_path(run, in_run=True), note("x"))
    assert secret.read_bytes() == before
    for name in (notes_path(run, in_run=True), run / "run.json"):
        name.unlink()
        os.mkfifo(name)
    assert texts(run) == []
    with pytest.raises(StorageError, match="could not be written"):
        add_note(notes_path(run, in_run=True), note("x"))


def test_a_label_that_any_note_gives_passes_and_others_are_asked_for_with_not():
    labels = {"a": ["hack"], "b": ["odd", "hack"], "c": ["odd"]}

    def found(text: str) -> object:
        return resolve_labels(parse_filter(text, KINDS).tree, labels)

    assert found("label = hack") == Within("id", ("a", "b"))
    assert found('label in (odd, "none")') == Within("id", ("b", "c"))
    assert found("label != hack") == Within("id", ("b", "c"))
    assert found("tokens > 3") == Compare("tokens", ">", 3.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("label", "label is a word; expected a comparison after it"),
        ('label ~ "a"', "label is a word; ~ is for texts"),
        ("label 3..4", "found '3'; label is a word; expected =, !=, in"),
        ("label < b", "label is a word; expected =, !=, in"),
        ("abs(label) = 3", "label is a word"),
        ("tokens > label", "expected a number or a field that is one"),
        ("sort:label", "a response can have several of label"),
        ("labl = hack", "did you mean 'label'"),
    ],
)
def test_what_a_label_cannot_be_asked_is_said(text: str, words: str):
    with pytest.raises(FilterError, match=words):
        parse_filter(text, KINDS)


def test_responses_are_not_sorted_by_their_labels():
    with pytest.raises(FilterError, match="not sorted by them"):
        check_sort(["-label"], KINDS)
