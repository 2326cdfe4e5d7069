"""Damage to the files of a run between a kill and its resume: it must be refused, or make no difference."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What was done. files: the damaged ones, within the run; of a damaged folder, its own name."""

    name: str
    files: tuple[str, ...] = ()


SWAPPED = "swapped"


def random_damage(run: Path, draw: random.Random) -> Damage | None:
    """Damage a random file or folder. Hidden ones are drafts and locks. None if there is none."""
    paths = [path for path in sorted(run.rglob("*")) if not is_hidden(path.relative_to(run))]
    is_of_folder = draw.random() < 0.15
    if not (paths := [path for path in paths if path.is_dir() == is_of_folder]):
        return None
    path, name = draw.choice(paths), draw.choice([*(FOLDERS if is_of_folder else FILES), SWAPPED])
    if name == SWAPPED:
        other = _swap(path, path.parent.iterdir() if is_of_folder else run.rglob(path.name), draw)
    else:
        other = (FOLDERS if is_of_folder else FILES)[name](path, draw)
    names = tuple(str(each.relative_to(run)) for each in (path, other) if each is not None)
    return Damage(name=f"{name}: {' and '.join(names)}", files=names)


def is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def flip(file: Path, draw: random.Random) -> None:
    content = bytearray(file.read_bytes() or b"\0")
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(content)


def _cut(file: Path, draw: random.Random) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: draw.randrange(len(content) or 1)])


def _empty(file: Path, draw: random.Random) -> None:
    file.write_bytes(b"")


def _zeros(file: Path, draw: random.Random) -> None:
    content = bytearray(file.read_bytes())
    start = draw.randrange(len(content) or 1)
    length = min(draw.choice((1, 512, 4096)), len(content) - start)
    content[start : start + length] = bytes(length)
    file.write_bytes(content)


def _append(file: Path, draw: random.Random) -> None:
    file.write_bytes(file.read_bytes() + draw.randbytes(50))


def _remove(path: Path, draw: random.Random) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _to_folder(file: Path, draw: random.Random) -> None:
    file.unlink()
    file.mkdir()


def _empty_folder(folder: Path, draw: random.Random) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _swap(path: Path, others: Iterable[Path], draw: random.Random) -> Path | None:
    """Swap the path with another one of the same kind. Returns it, or None if there is none."""
    others = sorted(each for each in others if each.is_dir() == path.is_dir() and each != path)
    others = [each for each in others if not each.name.startswith(".")]
    if not others:
        return None
    other, between = draw.choice(others), path.with_name(f".swapped-{path.name}")
    path.rename(between)
    other.rename(path)
    between.rename(other)
    return other


FILES: dict[str, Callable[[Path, random.Random], None]] = {
    "flipped bit": flip,
    "cut": _cut,
    "empty": _empty,
    "zeros": _zeros,
    "random bytes at the end": _append,
    "removed": _remove,
    "a folder in its place": _to_folder,
}
FOLDERS: dict[str, Callable[[Path, random.Random], None]] = {
    "removed": _remove,
    "emptied": _empty_folder,
}
