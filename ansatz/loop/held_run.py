"""A run folder while a process holds it: the lock, and the run and stage that each of its files belongs to.

    runs/NAME/STAGE/origin.json   {"stage": ..., "run": ...}, written when the stage begins

    runs/NAME/SHA256SUMS          digests of the stored problems and of the model that was built

Each checkpoint holds the same two values. Without them, a stage folder that was copied from another run, or from
another stage of the same kind, would be taken for this one. The inputs of training stages do not change after the
stage `model`, and a resumed run verifies them. Without this, it would silently train on a damaged problem. `sha256sum
--check SHA256SUMS` verifies them too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansatz.errors import CheckpointError
from ansatz.files import file_digest, write_text
from ansatz.json_text import read_object
from ansatz.links import list_folder, read_text
from ansatz.locks import FolderLock
from ansatz.loop.run_record import identity

ORIGIN_FILE = "origin.json"
ORIGIN = "origin"
"""The key of a stage's origin in the loop's state of a checkpoint."""
DIGESTS_FILE = "SHA256SUMS"
_MODEL_FILES = ("*.safetensors", "config.json", "generation_config.json", "tokenizer*.json", "chat_template.jinja")


class HeldRun:
    """identities: of the run, the newest last; see `RunRecord`. Empty for a run of an older version; then only the
    stages of its folders are compared."""

    def __init__(self, lock: FolderLock, identities: Sequence[str]) -> None:
        self.check_lock = lock.check
        self._identities = identities

    def seal(self, inputs: Mapping[str, str]) -> None:
        """Make the digests of the problems and of the built model a part of the identity, now that they are known."""
        self._identities = [identity(each, dict(inputs)) for each in self._identities]

    def origin(self, folder: Path) -> dict[str, str]:
        """Return the mark that the stage of a folder writes into its files. The name tells the stage and its round."""
        return {"stage": folder.name, "run": self._identities[-1] if self._identities else ""}

    def begin(self, folder: Path) -> None:
        """Check the folder of a stage, or mark it if it has no mark, when the stage begins."""
        self.check_lock()
        if not (path := folder / ORIGIN_FILE).is_file():
            write_text(path, json.dumps(self.origin(folder)))
            return
        advice = "Restore it, or remove it if the folder belongs to this run."
        self.check(read_object(path, error=CheckpointError, advice=advice), folder, what=folder)

    def check(self, origin: Any, folder: Path, *, what: Path) -> None:
        """Raise CheckpointError if a file with this origin belongs to another stage or another run than the folder.

        A file of an older version passes, because it contains no origin.
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


def record_or_verify_inputs(run_dir: Path) -> Mapping[str, str]:
    """Write the digests of the files, or verify them if they were written before. Raise CheckpointError for a change.

    Return the digests by path within the run folder.
    """
    file = run_dir / DIGESTS_FILE
    now = _digests(run_dir)
    if not file.exists():
        write_text(file, "".join(f"{digest}  {name}\n" for name, digest in now.items()))
        return now
    recorded = read_digests(run_dir)
    if changed := [name for name in {**recorded, **now} if recorded.get(name) != now.get(name)]:
        raise CheckpointError(
            f"{run_dir}: {changed[0]} is not as this run wrote it (its SHA-256 differs from that in {DIGESTS_FILE}). "
            "Restore it from a backup, or start the run anew under another name."
        )
    return now


def read_digests(run_dir: Path) -> dict[str, str]:
    """Return the digests that were written, by path within the run folder."""
    lines = read_text(run_dir / DIGESTS_FILE, errors="replace").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def _digests(run_dir: Path) -> dict[str, str]:
    """Return the SHA-256 by path within the run folder, in a fixed order."""
    paths = list_folder(run_dir / "problems", "*.jsonl")
    models = (run_dir / "model", run_dir / "model" / "adapter")
    paths += [path for folder in models for pattern in _MODEL_FILES for path in list_folder(folder, pattern)]
    return {str(path.relative_to(run_dir)): file_digest(path) for path in sorted(paths)}
