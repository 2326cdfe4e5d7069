"""What a finished run has produced, as one digest per file, so that two runs can be compared.

Of rows and records, times and the name of the run folder are left out. Everything else counts byte for byte: weights,
optimizer states, metrics, evaluations, events, samples, responses, problems and summaries.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ansatz.config.load import RUN_FILE
from ansatz.loop.held_run import ORIGIN, ORIGIN_FILE
from ansatz.train.checkpoint import DIGESTS_FILE, STATE_FILE, list_checkpoints

_LEFT_OUT = ("tensorboard", "report.html", "log.txt")
"""The events of TensorBoard and the lines of the log have the time of writing in them. The report shows what the other
files hold, and times."""


_IDENTIFIED = ("/.metadata",)
"""Each checkpoint of several ranks gets an id of its own from torch, in this file."""


_OF_RECIPE = ("card.json", "config.yaml", "run.json", ORIGIN_FILE)
"""Files that say which recipe made a run. A checkpoint's state does, too, under the key ORIGIN."""


_EVENTS, _PAUSED, _EMPTY = "events.jsonl", "paused", hashlib.sha256(b"").hexdigest()
"""Events of this kind are left out: a process can also pause for lack of a processor. So is a file without others."""


def fingerprint(run: Path, *, with_recipe: bool = True) -> dict[str, str]:
    """SHA-256 by path within the run folder. Hidden files are drafts and locks.

    with_recipe: False leaves out what says which recipe made the run, for recipes that only differ in their folders.
    """
    files = (path for path in sorted(run.rglob("*")) if path.is_file())
    names = {path.relative_to(run): path for path in files}
    digests = {
        str(name): hashlib.sha256(_content(path, run, with_recipe=with_recipe)).hexdigest()
        for name, path in names.items()
        if not any(part.startswith(".") or part in _LEFT_OUT for part in name.parts)
        and (with_recipe or name.name not in _OF_RECIPE)
    }
    return {name: digest for name, digest in digests.items() if digest != _EMPTY or Path(name).name != _EVENTS}


def differences(left: Path, right: Path, *, with_recipe: bool = True) -> list[str]:
    """The files that differ between two finished runs, and those that only one of them has."""
    one, other = (fingerprint(run, with_recipe=with_recipe) for run in (left, right))
    return sorted(name for name in one | other if one.get(name) != other.get(name))


def without_older_checkpoints(names: Iterable[str], run: Path) -> list[str]:
    """The names of a run's files except those in checkpoints that are not the last of their stage.

    A signal and a full disk make a run save at other steps than the recipe does.
    """
    last = tuple(f"{list_checkpoints(root.parent)[-1].relative_to(run)}/" for root in run.glob("*/checkpoints"))
    return [name for name in names if "/checkpoints/" not in name or name.startswith(last)]


def untimed(value: Any) -> Any:
    """JSON without what differs from run to run: times (seconds, time/...), speeds and peak memory (perf/...)."""
    if isinstance(value, dict):
        timed = ("time/", "perf/")
        return {key: untimed(each) for key, each in value.items() if key != "seconds" and not key.startswith(timed)}
    return [untimed(each) for each in value] if isinstance(value, list) else value


def _content(path: Path, run: Path, *, with_recipe: bool) -> bytes:
    if path.suffix not in (".json", ".jsonl", ".yaml") and path.name != DIGESTS_FILE:
        return path.read_bytes()
    try:
        text = path.read_text(encoding="utf-8").replace(str(run.parent), "OUT")
        return _without_times(path, text, with_recipe=with_recipe)
    except ValueError:  # a file that was damaged
        return path.read_bytes()


def _without_times(path: Path, text: str, *, with_recipe: bool) -> bytes:
    if path.name == DIGESTS_FILE:  # JSON may name the run folder, and is compared itself
        lines = text.splitlines(keepends=True)
        return "".join(line for line in lines if not line.rstrip().endswith((".json", *_IDENTIFIED))).encode()
    if path.suffix == ".jsonl":
        rows = [untimed(json.loads(line)) for line in text.split("\n")[:-1]]
        if path.name == _EVENTS:
            rows = [row for row in rows if not (isinstance(row, dict) and row.get("kind") == _PAUSED)]
        return "\n".join(map(json.dumps, rows)).encode()
    if path.suffix == ".json":
        record = json.loads(text)
        if path.name == RUN_FILE and record.get("end") is not None:
            del record["end"]["time"]
        if path.parts[-2:] == tuple(STATE_FILE.split("/")):
            del record["random"]  # the global generators, from which other packages draw too, such as Ray
            if not with_recipe:
                record["loop"].pop(ORIGIN, None)
        return json.dumps(untimed(record)).encode()
    if path.suffix == ".yaml":  # a stage that was done before its run was copied names the first folder
        return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("out: ")).encode()
    return text.encode()
