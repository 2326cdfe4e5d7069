"""What every training stage of a run reads: the stored problems and the model that was built.

    runs/NAME/SHA256SUMS    their digests; `sha256sum --check SHA256SUMS` verifies them too

The stage `model` is the last one that changes these files. A resumed run verifies them: without this, it would train on
a damaged problem in silence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from ansatz.errors import CheckpointError
from ansatz.files import write_text

DIGESTS_FILE = "SHA256SUMS"
_MODEL_FILES = ("*.safetensors", "config.json", "generation_config.json", "tokenizer*.json", "chat_template.jinja")


def record_or_verify_inputs(run_dir: Path) -> Mapping[str, str]:
    """Write the digests of the files, or verify them if they have been written. CheckpointError names what changed.

    Returns them by path within the run folder.
    """
    file = run_dir / DIGESTS_FILE
    now = _digests(run_dir)
    if not file.exists():
        write_text(file, "".join(f"{digest}  {name}\n" for name, digest in now.items()))
        return now
    lines = file.read_bytes().decode(errors="replace").splitlines()
    recorded = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    if changed := [name for name in {**recorded, **now} if recorded.get(name) != now.get(name)]:
        raise CheckpointError(
            f"{run_dir}: {changed[0]} is not as this run wrote it (its SHA-256 differs from that in {DIGESTS_FILE}). "
            "Restore it from a backup, or start the run anew under another name."
        )
    return now


def _digests(run_dir: Path) -> dict[str, str]:
    """SHA-256 by path within the run folder, in a fixed order."""
    paths = [*(run_dir / "problems").glob("*.jsonl")]
    paths += [path for pattern in _MODEL_FILES for path in (run_dir / "model").glob(pattern)]
    return {str(path.relative_to(run_dir)): _digest(path) for path in sorted(paths)}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
