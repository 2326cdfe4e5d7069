"""The files that a command writes are checked before any work: an hour of sampling must not end in a wrong path."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path

from ansatz.errors import ConfigError


def check_outputs(
    outputs: Sequence[Path | None], *, inputs: Sequence[Path] = (), reports: bool = False, own: str = ""
) -> None:
    """Raise ConfigError if a file to write is a folder, cannot be written, is an input or another output under whatever
    name, or lies in the folder of a run.

    Outputs that are None are not written. inputs can be folders, with all files in them, and patterns such as
    "part-*.jsonl". reports: a report is written next to each output. own: the file of a run that the verb itself
    writes.
    """
    from ansatz.data.hygiene.report import report_path

    files = [out for out in outputs if out is not None]
    for out in files:
        if not out.name:
            raise ConfigError(f"{str(out)!r} is a folder, expected the name of a file to write.")
    written = files + [report_path(out) for out in files if reports]
    for out in written:
        try:
            if out.exists() and any(_is_same(out, file) for file in _files(inputs)):
                raise ConfigError(f"{out} is both read and written. Choose another name for the output.")
            problem = _find_obstacle(out) or _find_run(out, own)
        except (OSError, ValueError) as error:  # a name that is too long, or has a character that no name may have
            problem = str(error)
        if problem:
            raise ConfigError(f"{str(out)[:200]!r} cannot be written: {problem}. Choose another name for the output.")
    if len(set(map(os.path.realpath, written))) < len(written):
        raise ConfigError(f"two outputs, or their reports, would be the file {files[0]}. Choose different names.")


def _files(inputs: Sequence[Path]) -> Iterator[Path]:
    """Yield the inputs, with the files that match instead of a pattern, and with those in a folder."""
    for path in inputs:
        is_pattern = has_magic(str(path)) and not path.exists()
        yield from map(Path, glob(str(path), recursive=True)) if is_pattern else (path, *path.rglob("*"))


def _is_same(out: Path, file: Path) -> bool:
    """Return whether an output is an input. Who reads the input says so if it cannot be reached."""
    try:
        return out.samefile(file)
    except (OSError, ValueError):
        return False


def _find_obstacle(out: Path) -> str:
    """Return why the file cannot be written; empty if it can, perhaps after its folder has been made."""
    if out.is_dir():
        return "it is a folder"
    folder = next(folder for folder in out.absolute().parents if folder.exists())
    if not folder.is_dir():
        return f"{folder} is not a folder"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"the folder {folder} is not writable"


def _find_run(out: Path, own: str) -> str:
    """Return that the file lies in the folder of a run, whose files are the run's own; empty if it may be written."""
    from ansatz.loop.run_record import is_marked

    place = Path(os.path.realpath(out))  # unlike Path.resolve, it takes a link to itself
    run = next((folder for folder in place.parents if is_marked(folder)), None)
    if run is None or (own and place == run / own):
        return ""
    return f"it is in the folder of the run {run.name}, which only the run writes to"
