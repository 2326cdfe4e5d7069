"""A run folder while a process holds it: the lock, and which run and stage each of its files belongs to.

    runs/NAME/STAGE/origin.json   {"stage": ..., "run": ...}, written when the stage begins

    runs/NAME/SHA256SUMS          digests of the stored problems and of the model that was built

Each checkpoint holds the same two values. A stage folder that was copied from another run, or from another stage of the
same kind, would otherwise be taken for this one. What every training stage reads is not changed after the stage
`model`, and a resumed run verifies it: without this, it would train on a damaged problem in silence. `sha256sum --check
SHA256SUMS` does so too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansatz.errors import CheckpointError
from ansatz.files import file_digest, write_text
from ansatz.json_text import read_object
from ansatz.links import list_folder, read_bytes
from ansatz.locks import FolderLock
from ansatz.loop.run_record import identity

ORIGIN_FILE = "origin.json"
ORIGIN = "origin"
"""The key of a stage's origin in the loop's state of a checkpoint."""
DIGESTS_FILE = "SHA256SUMS"
_MODEL_FILES = ("*.safetensors", "config.json", "generation_config.json", "tokenizer*.json", "chat_template.jinja")


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


def record_or_verify_inputs(run_dir: Path) -> Mapping[str, str]:
    """Write the digests of the files, or verify them if they have been written. CheckpointError names what changed.

    Returns them by path within the run folder.
    """
    file = run_dir / DIGESTS_FILE
    now = _digests(run_dir)
    if not file.exists():
        write_text(file, "".join(f"{digest}  {name}\n" for name, digest in now.items()))
        return now
    lines = read_bytes(file).decode(errors="replace").splitlines()
    recorded = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    if changed := [name for name in {**recorded, **now} if recorded.get(name) != now.get(name)]:
        raise CheckpointError(
            f"{run_dir}: {changed[0]} is not as this run wrote it (its SHA-256 differs from that in {DIGESTS_FILE}). "
            "Restore it from a backup, or start the run anew under another name."
        )
    return now


def _digests(run_dir: Path) -> dict[str, str]:
    """SHA-256 by path within the run folder, in a fixed order."""
    paths = list_folder(run_dir / "problems", "*.jsonl")
    models = (run_dir / "model", run_dir / "model" / "adapter")
    paths += [path for folder in models for pattern in _MODEL_FILES for path in list_folder(folder, pattern)]
    return {str(path.relative_to(run_dir)): file_digest(path) for path in sorted(paths)}
