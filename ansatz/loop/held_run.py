"""A run folder while a process holds it: the lock, and which run and stage each of its files belongs to.

    runs/NAME/STAGE/origin.json   {"stage": ..., "run": ...}, written when the stage begins

Each checkpoint holds the same two values. A stage folder that was copied from another run, or from another stage of the
same kind, would otherwise be taken for this one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansatz.errors import CheckpointError
from ansatz.files import write_text
from ansatz.json_text import read_object
from ansatz.locks import FolderLock
from ansatz.loop.run_record import identity

ORIGIN_FILE = "origin.json"
ORIGIN = "origin"
"""The key of a stage's origin in the loop's state of a checkpoint."""


class HeldRun:
    """identities: of the run, the newest last; see `RunRecord`. Empty for a run of an older version, of whose folders
    only the stages are compared."""

    def __init__(self, lock: FolderLock, identities: Sequence[str]) -> None:
        self.check_lock = lock.check
        self._identities = identities

    def seal(self, inputs: Mapping[str, str]) -> None:
        """Make the digests of the problems and of the built model, which are now known, a part of the identity."""
        self._identities = [identity(each, dict(inputs)) for each in self._identities]

    def origin(self, folder: Path) -> dict[str, str]:
        """What the stage of this folder writes into its files. The name of a folder tells the stage and its round."""
        return {"stage": folder.name, "run": self._identities[-1] if self._identities else ""}

    def begin(self, folder: Path) -> None:
        """Check the folder of a stage, and mark it if it has no mark, which it gets when the stage begins."""
        self.check_lock()
        if not (path := folder / ORIGIN_FILE).is_file():
            write_text(path, json.dumps(self.origin(folder)))
            return
        advice = "Restore it, or remove it if the folder belongs to this run."
        self.check(read_object(path, error=CheckpointError, advice=advice), folder, what=folder)

    def check(self, origin: Any, folder: Path, *, what: Path) -> None:
        """CheckpointError if a file with this origin belongs to another stage or another run than the folder.

        A file of an older version has no origin, and passes.
        """
        if not isinstance(origin, Mapping):
            return
        stage, run = (str(origin.get(key, "")) for key in ("stage", "run"))
        of = ""
        if stage and stage != folder.name:
            of = f"the stage {stage}"
        elif run and self._identities and run not in self._identities:
            of = f"another run (its identity is {run}, that of this run is {self._identities[-1]})"
        if of:
            raise CheckpointError(
                f"{what} holds what {of} has made, and is in the place of the stage {folder.name}: it was copied or "
                f"renamed. Restore the folder of this run, or remove {folder} and the folders of later stages, which "
                "starts the stage anew."
            )
