"""Notes of readers on the responses of a run: a text, and a label that filters can ask for. One JSON object per line.

    {"rollout": "rl/12/7/3", "label": "hack", "text": "guesses twice", "who": "ana", "time": "2026-11-27T09:30:00Z"}

They lie in the reader's own folder, in `<user data>/ansatz/notes/NAME-DIGEST.jsonl`, or in `notes.jsonl` of the run, so
that they go with it. Both are read. The digest is computed from the first identity in run.json, so that a run can be
moved and resumed, or from the path of a folder without one. rollout: the id of the response.
"""

from __future__ import annotations

import fcntl
import getpass
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ansatz.errors import ConfigError, StorageError
from ansatz.files import append_text, not_written, remedy
from ansatz.json_text import parse_json
from ansatz.links import hold, make_folder, open_file
from ansatz.track.filters import Tree, Within, compile_predicate, map_leaves
from ansatz.track.jsonl import Row, to_line

LABEL, FILE = "label", "notes.jsonl"
MAX_TEXT, MAX_BYTES = 10_000, 1 << 22
"""Characters of a note, and bytes of a file of notes that are read."""
VERDICTS = {"false_negative": "right", "false_positive": "wrong", "hack": "wrong"}
"""Labels that correct the verdict on a response, and the word of the verifier's corpus for the correct verdict."""
_FIELDS = ("rollout", LABEL, "text", "who", "time")
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,40}")


class Notes(NamedTuple):
    """by_rollout: the notes on each response, oldest first. notices: sentences about unreadable files and lines."""

    by_rollout: dict[str, list[Row]]
    notices: list[str]

    @property
    def labels(self) -> dict[str, list[str]]:
        """Return the labels of each response that has one."""
        named = {key: [row[LABEL] for row in rows if row[LABEL]] for key, rows in self.by_rollout.items()}
        return {key: list(dict.fromkeys(labels)) for key, labels in named.items() if labels}


def notes_path(run: Path, *, in_run: bool = False) -> Path:
    """Return where new notes on a run are written."""
    run = hold(run.resolve())
    if in_run:
        return run / FILE
    identity = str(run)
    with suppress(OSError, ValueError, LookupError, TypeError), open_file(run / "run.json") as file:
        identity = f"{run.name} {parse_json(file.read(MAX_BYTES))['identities'][0]}"
    digest = hashlib.sha256(identity.encode(errors="replace")).hexdigest()[:16]
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(data, "ansatz", "notes", f"{re.sub('[^A-Za-z0-9_.-]', '_', run.name)[:60]}-{digest}.jsonl")


def read_notes(run: Path) -> Notes:
    """Return the notes on a run. Lines that are not notes are left out, and a notice says so."""
    notes, notices = dict[str, list[Row]](), list[str]()
    for path in (notes_path(run), notes_path(run, in_run=True)):
        try:
            with open_file(path) as file:
                content = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            continue
        except OSError as error:
            notices.append(f"{path} cannot be read ({error.strerror}).")
            continue
        if len(content) > MAX_BYTES:
            notices.append(f"{path}: only its first {MAX_BYTES:,} bytes are read.")
        wrong = list[int]()
        for number, line in enumerate(content[:MAX_BYTES].split(b"\n"), start=1):
            try:
                if line.strip():
                    row = check_note(parse_json(line, own=True))
                    notes.setdefault(row["rollout"], []).append(row)
            except (ConfigError, ValueError):
                wrong.append(number)
        if wrong:
            more = f", and {len(wrong) - 1} more lines" if len(wrong) > 1 else ""
            notices.append(f"{path}: line {wrong[0]}{more} cannot be read as a note and is left out. Correct the file.")
    return Notes(notes, notices)


def check_note(row: object) -> Row:
    """Return the fields of a note; empty texts if it does not say who wrote it and when. Raise ConfigError if it is
    not one."""
    note = {name: row.get(name, "") for name in _FIELDS} if isinstance(row, dict) else {}
    if not note or not all(isinstance(value, str) for value in note.values()) or not note["rollout"]:
        raise ConfigError(f"{row!r:.60} is not a note: expected the texts rollout, label and text.")
    if note[LABEL] and not _LABEL.fullmatch(note[LABEL]):
        raise ConfigError(
            f"the label {note[LABEL]!r:.60} is not one word of at most 40 letters, digits, _ and -, such as hack."
        )
    if not note[LABEL] and not note["text"].strip():
        raise ConfigError("the note is empty. Write a text or a label.")
    if len(note["text"]) > MAX_TEXT:
        raise ConfigError(f"the text has {len(note['text'])} characters, at most {MAX_TEXT} are kept.")
    return note


def add_note(path: Path, note: object) -> None:
    """Append a note to a file, with who writes it and when. Raise ConfigError if it is not one, and StorageError if the
    file cannot be written."""
    row = {**check_note(note), "who": "", "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
    with suppress(KeyError, OSError):  # of a user without a name
        row["who"] = getpass.getuser()
    try:
        if not path.parent.exists():
            make_folder(path.parent, private=True)
        with open_file(path, "a+b") as file:
            with suppress(OSError):  # of a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
            is_torn = file.read(1) not in (b"", b"\n")
            append_text(path, "\n" * is_torn + to_line(row))
    except OSError as error:
        raise StorageError(f"{not_written(path, error)} {remedy(error)}.") from error


def resolve_labels(tree: Tree, labels: Mapping[str, Sequence[str]]) -> Tree:
    """Return the tree with the ids of the responses that pass instead of each test of their labels."""

    def resolve(test: Tree) -> Tree:
        if getattr(test, "field", "") != LABEL:
            return test
        passes = compile_predicate(test)
        return Within("id", tuple(key for key, words in labels.items() if any(passes({LABEL: word}) for word in words)))

    return map_leaves(tree, resolve)
