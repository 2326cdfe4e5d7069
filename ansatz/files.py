"""Files that are replaced as a whole: after a kill at any moment there is the old file or the new one.

The new content is written to a draft in the same folder, flushed to disk, and renamed over the old file. Without the
flush, a machine that loses power after the rename can come back with an empty file under the final name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """Open a UTF-8 draft of `path`; the draft becomes `path` when the block ends without an error.

    Missing parent folders are made. If the block raises, the draft is removed and `path` stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    try:
        with draft.open("w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace the file by `text`, at once."""
    with replacing(path) as file:
        file.write(text)


def sync(path: Path) -> None:
    """Flush a file, or the list of names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
