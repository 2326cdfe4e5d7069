"""Damages to files of a run whose meaning is known: rows, records, checkpoints and finished stages."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from ansatz.train.checkpoint import list_checkpoints

from .damage import flip

Change = Callable[[Path], object]
"""Damages a run folder."""
STAGE = "rl"
"""The stage that was killed. The other stages of the run are finished."""
_ROWS = ("metrics.jsonl", "evaluations.jsonl", "samples/step-000002.jsonl")
STRAY = "stray"
"""In the names of files that a change adds, so that they are not compared."""


def can_be_changed(run: Path) -> bool:
    """Whether the run has all that the changes change, and will read it again."""
    files = (*(f"{STAGE}/{name}" for name in _ROWS), "sft/done.json", f"{STAGE}/events.jsonl")
    if (run / STAGE / "done.json").exists():
        return False
    return len(list_checkpoints(run / STAGE)) > 1 and all((run / name).exists() for name in files)


def changes(run: Path, draw: random.Random) -> dict[str, Change]:
    """Damages by name, for the folder of this run or a copy of it."""
    return {**_of_checkpoints(run), **_of_rows(draw), **_of_records(), **_of_finished_stages(run, draw), **_STRAYS}


def _of_checkpoints(run: Path) -> dict[str, Change]:
    older, newest = (path.name for path in list_checkpoints(run / STAGE)[-2:])
    folder = f"{STAGE}/checkpoints/{newest}"
    named = dict[str, Change]()
    for file in sorted(each for each in (run / folder).rglob("*") if each.is_file()):
        name = str(file.relative_to(run / folder))
        path, other = f"{folder}/{name}", f"{STAGE}/checkpoints/{older}/{name}"
        named[f"checkpoint: {name} empty"] = lambda run, path=path: (run / path).write_bytes(b"")
        named[f"checkpoint: {name} cut"] = lambda run, path=path: _cut(run / path)
        named[f"checkpoint: {name} missing"] = lambda run, path=path: (run / path).unlink()
        if file.read_bytes() != (run / other).read_bytes():
            named[f"checkpoint: {name} swapped with the older one"] = lambda run, path=path, other=other: _swap(
                run / path, run / other
            )
    return named | {
        "checkpoint: empty folder": lambda run: _empty(run / folder),
        "checkpoint: folder swapped with the older one": lambda run: _swap(
            run / folder, run / STAGE / "checkpoints" / older
        ),
        "checkpoint: older one under a later name": lambda run: shutil.copytree(
            run / folder, run / STAGE / "checkpoints" / "step-000010"
        ),
        "checkpoint: an added file": lambda run: (run / folder / f"{STRAY}.safetensors").write_bytes(b"\0" * 64),
    }


def _of_rows(draw: random.Random) -> dict[str, Change]:
    named = dict[str, Change]()
    for file in _ROWS:
        path = f"{STAGE}/{file}"
        named |= {
            f"{file}: last line cut": lambda run, path=path: _cut(run / path),
            f"{file}: first line cut": lambda run, path=path: _replace_first(run / path, lambda line: line[:20]),
            f"{file}: binary line": lambda run, path=path: _replace_first(run / path, lambda _: b"\xff\x00\x80"),
            f"{file}: line without its keys": lambda run, path=path: _replace_first(run / path, lambda _: b"{}"),
            f"{file}: line of another kind": lambda run, path=path: _replace_first(run / path, lambda _: b"[1]"),
            f"{file}: a huge step": lambda run, path=path: _replace_first(
                run / path,
                lambda line: line.replace(b'"step": ', b'"step": 1e400, "was": ').replace(b"1e400", b"9" * 5000),
            ),
            f"{file}: a line twice": lambda run, path=path: _replace_first(
                run / path, lambda line: line + b"\n" + line
            ),
            f"{file}: a line missing": lambda run, path=path: _drop_line(run / path),
            f"{file}: empty": lambda run, path=path: (run / path).write_bytes(b""),
            f"{file}: missing": lambda run, path=path: (run / path).unlink(),
            f"{file}: a folder": lambda run, path=path: _to_folder(run / path),
            f"{file}: a flipped bit": lambda run, path=path: flip(run / path, draw),
        }
    junk = b'{"step": "x"}\n[]\n\xff\n'
    return named | {"events.jsonl: junk": lambda run: (run / STAGE / "events.jsonl").write_bytes(junk)}


def _of_records() -> dict[str, Change]:
    named = dict[str, Change]()
    for file in ("config.yaml", "run.json"):
        named |= {
            f"{file}: empty": lambda run, file=file: (run / file).write_bytes(b""),
            f"{file}: cut": lambda run, file=file: _cut(run / file),
            f"{file}: missing": lambda run, file=file: (run / file).unlink(),
            f"{file}: binary": lambda run, file=file: (run / file).write_bytes(bytes(range(256))),
        }
    return named | {
        "config.yaml: another seed": lambda run: _edit(run / "config.yaml", "seed: 0", "seed: 1"),
        "config.yaml: another learning rate": lambda run: _edit(run / "config.yaml", "lr: 0.001", "lr: 0.002"),
        "config.yaml: another seed, and no run.json": lambda run: (
            _edit(run / "config.yaml", "seed: 0", "seed: 1"),
            (run / "run.json").unlink(),
        ),
    }


def _of_finished_stages(run: Path, draw: random.Random) -> dict[str, Change]:
    (*_, output) = list_checkpoints(run / "sft")
    files = [
        *(f"problems/{name}" for name in ("train.jsonl", "heldout.jsonl", "sft.jsonl")),
        *(f"model/{name}" for name in ("model.safetensors", "tokenizer.json", "config.json")),
        f"{output.relative_to(run)}/model.safetensors",
    ]
    named = dict[str, Change]()
    for file in files:
        named[f"{file}: a flipped bit"] = lambda run, file=file: flip(run / file, draw)
        named[f"{file}: missing"] = lambda run, file=file: (run / file).unlink()
    for stage in ("problems", "model", "sft"):
        named[f"{stage}/done.json: cut"] = lambda run, stage=stage: _cut(run / stage / "done.json")
        named[f"{stage}/done.json: missing"] = lambda run, stage=stage: (run / stage / "done.json").unlink()
    return named


_STRAYS: dict[str, Change] = {
    "stray files and folders in checkpoints": lambda run: [
        *((run / STAGE / "checkpoints" / name).mkdir() for name in (f"step-000004.{STRAY}", STRAY, f".{STRAY}.draft")),
        (run / STAGE / "checkpoints" / f"step-000011.{STRAY}").touch(),
    ],
    "a draft of a killed save": lambda run: (run / STAGE / "checkpoints" / ".step-000009.draft" / "training").mkdir(
        parents=True
    ),
    "stray files and folders in the run": lambda run: [
        (run / STRAY).mkdir(),
        (run / f"{STRAY}.txt").write_text("notes"),
        (run / STAGE / STRAY).mkdir(),
        (run / STAGE / "samples" / f"{STRAY}.jsonl").write_bytes(b"\xff"),
        (run / STAGE / "samples" / f"step-{STRAY}.jsonl").write_bytes(b"\xff"),
    ],
}


def _cut(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) - max(1, len(content) // 10)])


def _swap(one: Path, other: Path) -> None:
    between = one.with_name(f"{STRAY}-{one.name}")
    one.rename(between)
    other.rename(one)
    between.rename(other)


def _empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _replace_first(file: Path, change: Callable[[bytes], bytes]) -> None:
    lines = file.read_bytes().split(b"\n")
    lines[0] = change(lines[0])
    file.write_bytes(b"\n".join(lines))


def _drop_line(file: Path) -> None:
    lines = file.read_bytes().split(b"\n")
    file.write_bytes(b"\n".join(lines[:1] + lines[2:]))


def _to_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _edit(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
