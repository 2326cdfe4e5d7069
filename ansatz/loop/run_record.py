"""run.json: the mark of a run folder, and the recipe and the user's code that the run was started with.

Only a folder with such a file of Ansatz is ever deleted, and only by `--fresh`. A resumed run needs the recorded
recipe, apart from the keys that cannot change its result (`MAY_CHANGE`), and the recorded code. Otherwise the user must
accept the changes, which are then recorded.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ansatz import __version__
from ansatz.config.load import REMOVED, RUN_FILE
from ansatz.config.schema import Config, flat_keys
from ansatz.errors import AnsatzError, CheckpointError, ConfigError, RunInterrupted, RunStopped
from ansatz.files import write_text
from ansatz.json_text import parse_json
from ansatz.links import read_bytes
from ansatz.loop.user_code import file_digests
from ansatz.track.base import LOG, append_line
from ansatz.trust import signature

MAY_CHANGE = ("name", "out", "train.steps", "save.", "cluster.")
"""Keys, and sections with a dot at the end, that may differ when a run is resumed."""
_ABSENT = "(not set)"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """recipe: the current resolved values by dotted key. changes: accepted ones, oldest first.

    code: digests of the user's files (`file_digests`); None in a record of a version that stored none. identities: the
    names of the run, determined by the recipe and the code; every accepted change of either adds one. Empty in a record
    of such a version. signatures: of the user who has started the run, for all its recipes so far. version: the version
    of Ansatz that wrote the record. end: how the run ended (`recorded_end`); None while it continues, and if its
    process was killed.
    """

    recipe: Mapping[str, Any]
    changes: tuple[Mapping[str, Any], ...] = ()
    code: Mapping[str, str] | None = None
    identities: tuple[str, ...] = ()
    signatures: tuple[str, ...] = ()
    version: str = __version__
    end: Mapping[str, str] | None = None

    def write(self, run_dir: Path) -> None:
        content = {
            "ansatz": __version__,
            "recipe": dict(self.recipe),
            "code": self.code,
            "identities": list(self.identities),
            "signatures": list(self.signatures),
            "changes": list(self.changes),
            "end": self.end,
        }
        write_text(run_dir / RUN_FILE, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def recorded_end(run_dir: Path, record: RunRecord) -> Iterator[None]:
    """Record the end of the block: in run.json, which the viewer reads, and in the log, if there is one. Only a process
    that is killed leaves no such record.

    An end consists of a state (done, interrupted by a signal, stopped by the watchdog, or failed), a sentence, the
    command that resumes the run, and the time.
    """
    error = None
    try:
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        end = _end_of(run_dir, error)
        with suppress(OSError):  # if the disk is full, the run has ended all the same
            replace(record, end=end).write(run_dir)
        if (log := run_dir / LOG).is_file():
            append_line(log, f"{end['state']}: {end['sentence']}{' Resume with: ' if error else ''}{end['resume']}")


def _end_of(run_dir: Path, error: BaseException | None) -> dict[str, str]:
    state, sentence = "done", "The run is complete."
    if isinstance(error, RunInterrupted | KeyboardInterrupt | SystemExit):
        state, sentence = "interrupted", f"The run was {error if isinstance(error, RunInterrupted) else 'interrupted.'}"
    elif isinstance(error, RunStopped):
        state, sentence = "stopped", f"The watchdog stopped the run: {error}"
    elif error is not None:
        kind = "" if isinstance(error, AnsatzError) else f"{type(error).__name__}: "
        state, sentence = "failed", f"The run failed: {kind}{error}"
    return {
        "state": state,
        "sentence": " ".join(sentence.partition(" Resume with: ")[0].split())[:2000],
        "resume": "" if error is None else f"ansatz train --resume {shlex.quote(str(run_dir))}",
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def is_run_folder(folder: Path) -> bool:
    return (folder / RUN_FILE).is_file()


def is_marked(folder: Path) -> bool:
    """Tell whether Ansatz wrote the folder's run.json. Other programs write files of that name too, and a damaged one
    marks nothing."""
    try:
        content = parse_json(read_bytes(folder / RUN_FILE), own=True)
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and {"recipe", "changes"} <= content.keys()


def read_record(run_dir: Path) -> RunRecord | None:
    """Read a record; None if the file is missing, as in a run of an old version. CheckpointError for a damaged file."""
    path = run_dir / RUN_FILE
    if not path.is_file():
        return None
    try:
        content = parse_json(read_bytes(path), own=True)
        code = content.get("code")
        return RunRecord(
            recipe=dict(content["recipe"]),
            changes=tuple(content["changes"]),
            code=None if code is None else dict(code),
            identities=tuple(map(str, content.get("identities", ()))),
            signatures=tuple(map(str, content.get("signatures", ()))),
            version=str(content.get("ansatz", __version__)),
            end=content.get("end"),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path} is damaged ({type(error).__name__}: {error}), so it is not known which recipe the run had. "
            "Restore the file from a backup, or start the run anew under another name."
        ) from error


def record_of(config: Config) -> RunRecord:
    """Return the record of a new run."""
    data = config.model_dump(mode="json")
    recipe, code = flat_keys(data), file_digests(config.model_dump())
    decisive = {key: value for key, value in _by_text(recipe).items() if not _may_change(key)}
    signatures = tuple(filter(None, [signature(data)] if config.found_in is None else []))
    return RunRecord(recipe=recipe, code=code, identities=(identity(decisive, code),), signatures=signatures)


def resumed_record(
    record: RunRecord | None,
    config: Config,
    *,
    allow_changes: bool,
    read_by: Callable[[str], str | None] = lambda key: None,
) -> RunRecord:
    """Return the record of a run that is resumed with `config`.

    read_by: the finished stages that were the last to read a key; None if a stage will still read it. A change of such
    a key would be recorded and have no effect, so it is refused.

    Raise ConfigError, naming the keys and files, if values or code that decide results differ or if there is no record,
    unless `allow_changes` is set. A key that is newer than the run, and that the recipe leaves at its default, does not
    differ, and neither does the code of a run whose record names none.
    """
    now = record_of(config)
    if record is None and not allow_changes:
        raise ConfigError(
            f"{config.run_dir / RUN_FILE} is missing, so it is not known which recipe the run had. Restore the file, "
            "or resume with --allow-changes, which takes config.yaml as it is."
        )
    if record is None:  # its stage folders may belong to another identity
        return replace(now, identities=())
    old, new = _by_text(record.recipe), _by_text(now.recipe)
    given = flat_keys(config.model_dump(mode="json", exclude_unset=True))
    values = {
        key: [old.get(key, _ABSENT), new.get(key, _ABSENT)] for key in {**old, **new} if key in old or key in given
    }
    changed = {key: pair for key, pair in values.items() if pair[0] != pair[1] and not _was_empty(key, old, new)}
    decisive = sorted(key for key in changed if not _may_change(key) and not _adds_stages(key, record, now))
    if decisive and not allow_changes:
        listed = "; ".join(f"{key} was {changed[key][0]}, now {changed[key][1]}" for key in decisive)
        raise ConfigError(
            f"the recipe differs from the one that the run was started with: {listed}. Restore these values in "
            "config.yaml, or resume with --allow-changes, which records the change in run.json."
        )
    if late := {key: done for key in decisive if (done := read_by(key)) is not None}:
        listed = "; ".join(f"{key} was read by {done}" for key, done in late.items())
        raise ConfigError(
            f"the change would have no effect: {listed}, which will not run again. Restore these values, or start a "
            "new run with the changed recipe, --name NAME and --model.path CHECKPOINT (a checkpoint of this run)."
        )
    files = _changed_files(record, now)
    if files and not allow_changes:
        listed = "; ".join(f"{name} {what}" for name, what in files.items())
        raise ConfigError(
            f"the user's own files differ from those which the run was started with: {listed}. Restore the files, or "
            "resume with --allow-changes, which records the change in run.json."
        )
    changes, identities = record.changes, record.identities
    if changed or files:
        change = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "changed": dict(sorted(changed.items()))}
        changes += ({**change, "files": files} if files else change,)
    if identities and (decisive or files):
        identities += (identity(identities[-1], {key: changed[key] for key in decisive}, now.code),)
    # After a kill, config.yaml may be the previous one.
    signatures = tuple(dict.fromkeys((*record.signatures, *now.signatures)))
    return RunRecord(recipe=now.recipe, changes=changes, code=now.code, identities=identities, signatures=signatures)


def _changed_files(record: RunRecord, now: RunRecord) -> dict[str, str]:
    """Describe the change of each file of the user's code since the record was written. A file that the recipe named
    then already is not new: an earlier version did not record it."""
    if record.code is None:
        return {}
    recipe, values = _by_text(now.recipe), _by_text(record.recipe)
    same = [text for key, text in values.items() if recipe.get(key) == text]
    unrecorded = {
        name: digest
        for name, digest in (now.code or {}).items()
        if name not in record.code and any(json.dumps(name, ensure_ascii=False) in text for text in same)
    }
    old, new = {**record.code, **unrecorded}, now.code or {}
    changed = sorted(name for name in {**old, **new} if old.get(name) != new.get(name))
    return {name: "is new" if name not in old else "is gone" if name not in new else "has changed" for name in changed}


def identity(*parts: Any) -> str:
    """Return 16 characters that depend only on the parts. They are not drawn, so that equal runs have equal files."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _may_change(key: str) -> bool:
    return any(key.startswith(name) if name.endswith(".") else key == name for name in MAY_CHANGE)


def _adds_stages(key: str, record: RunRecord, now: RunRecord) -> bool:
    """Tell whether the list of stages only has new entries at its end."""
    if key != "stages":
        return False
    old, new = record.recipe.get(key), now.recipe[key]
    return isinstance(old, list) and isinstance(new, list) and new[: len(old)] == old


def _was_empty(key: str, old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Tell whether the key is a section that is empty in the record, and whose keys now all have defaults."""
    return old.get(key) == "{}" and any(name.startswith(f"{key}.") for name in new)


def _by_text(recipe: Mapping[str, Any]) -> dict[str, str]:
    """Return values as JSON, so that lists and tuples, or 1 and 1.0, compare as a recipe would write them. Keys of
    earlier versions are left out."""
    kept = {key: _plain(value) for key, value in recipe.items() if key not in REMOVED}
    return {key: json.dumps(value, ensure_ascii=False, sort_keys=True) for key, value in kept.items()}


def _plain(value: Any) -> Any:
    """Return a whole number as an integer, whatever its type is in the schema."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
